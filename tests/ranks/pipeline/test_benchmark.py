"""Tasks of lm-eval on local files, from a recipe to the report and MLflow, on this machine."""

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast

COLOURS = {"grass": "green", "snow": "white", "coal": "black", "blood": "red"}
TALK = ["please", "now", "friend", "then", "today", "again", "well", "so"]
SIZES = "hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 2, intermediate_size: 64"
RECIPE = f"""
name: colours
task: TASK
data:
  source: {{type: jsonl, path: documents.jsonl}}
  text: {{sequence_length: 64, tokenizer: {{vocab_size: 320}}}}
teacher:
  model: {{type: llama, config: {{{SIZES}}}}}
  train: {{steps: 120, batch_size: 8, optimizer: {{learning_rate: 5.0e-3}}}}
student:
  model: {{type: llama, config: {{{SIZES}}}}}
  train: {{steps: 30, batch_size: 8, optimizer: {{learning_rate: 5.0e-3}}}}
evaluate:
  latency: {{repeats: 2}}
  lm_eval: {{tasks: [choice, answer], include: tasks, batch_size: 3}}
gate: {{margin: 0.9, max_size_ratio: null, max_latency_ratio: null}}
"""
SHARED = """
dataset_path: json
dataset_kwargs: {data_files: {test: ../things.jsonl}}
test_split: test
doc_to_text: "{{thing}} is"
"""
CHOICE = """
task: choice
include: shared.yaml
output_type: multiple_choice
doc_to_choice: "{{colours}}"
doc_to_target: "{{colours.index(colour)}}"
metric_list: [{metric: acc, aggregation: mean, higher_is_better: true}]
"""
ANSWER = """
task: answer
include: shared.yaml
output_type: generate_until
doc_to_target: "{{colour}}"
generation_kwargs: {until: ["."], max_gen_toks: 12}
filter_list: [{name: stripped, filter: [{function: remove_whitespace}, {function: take_first}]}]
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
"""


def write(folder: Path, task: str) -> None:
    """A recipe, its documents, and two tasks with a document for each thing."""
    generator = np.random.default_rng(0)
    rows: list[dict[str, Any]] = []
    for _ in range(300):
        said = [f"{thing} is {COLOURS[thing]}." for thing in generator.choice([*COLOURS], 4)]
        turns = [[("user", f"{text.split()[0]} is"), ("assistant", text.split()[-1])] for text in said[:2]]
        turns.append([("user", " ".join(generator.choice(TALK, 4))), ("assistant", "so.")])
        messages = [{"role": role, "content": content} for turn in turns for role, content in turn]
        rows.append({"messages": messages} if task == "chat" else {"text": "\n".join(said)})
    things = [{"thing": thing, "colour": colour, "colours": [*COLOURS.values()]} for thing, colour in COLOURS.items()]
    (folder / "documents.jsonl").write_text("\n".join(map(json.dumps, rows)))
    (folder / "things.jsonl").write_text("\n".join(map(json.dumps, things)))
    (folder / "tasks").mkdir()
    for name, text in (("shared", SHARED), ("choice", CHOICE), ("answer", ANSWER)):
        (folder / "tasks" / f"{name}.yaml").write_text(text)
    generation = "\n  generation: {examples: 8, max_new_tokens: 8}" if task == "chat" else ""
    (folder / "r.yaml").write_text(RECIPE.replace("TASK", task).replace("evaluate:", f"evaluate:{generation}"))


def run(folder: Path) -> dict[str, Any]:
    """Run the recipe, and return the content of benchmarks.json."""
    command = [sys.executable, "-m", "understudy", "--home", "home", "run", "r.yaml", "--json"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode in (0, 3), done.stderr
    (found,) = (folder / "home" / "store" / "objects").rglob("benchmarks.json")
    return dict(json.loads(found.read_text()))


def scores(benchmarks: dict[str, Any], role: str) -> tuple[float, float]:
    """The shares of right choices and of right answers."""
    tasks = benchmarks["models"][role]["tasks"]
    (choice,), (answer,) = tasks["choice"], tasks["answer"]
    assert (choice["metric"], choice["filter"]) == ("acc", "none")
    assert (answer["metric"], answer["filter"]) == ("exact_match", "stripped")
    return choice["value"], answer["value"]


def expected(folder: Path, digest: str, chat: bool) -> tuple[float, float]:
    """The same shares, by transformers alone: a document's prompt, and one token after the other."""
    model = folder / "home" / "store" / "objects" / digest[:2] / digest
    net = AutoModelForCausalLM.from_pretrained(model).double().eval()
    tokenizer = PreTrainedTokenizerFast.from_pretrained(model)
    chosen = answered = 0
    for thing, colour in COLOURS.items():
        prompt, space = f"{thing} is", " "
        if chat:
            turns = [{"role": "user", "content": prompt}]
            prompt = str(tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True))
            space = ""
        likelihoods = {word: likelihood(net, tokenizer, prompt, f"{space}{word}") for word in COLOURS.values()}
        chosen += max(likelihoods, key=likelihoods.__getitem__) == colour
        answered += greedy(net, tokenizer, prompt) == colour
    return chosen / len(COLOURS), answered / len(COLOURS)


def likelihood(net: Any, tokenizer: Any, prompt: str, continuation: str) -> float:
    stripped = prompt.rstrip()  # lm-eval moves white space at the end of a prompt into the continuation
    before, ids = len(tokenizer.encode(stripped)), tokenizer.encode(prompt + continuation)
    with torch.inference_mode():
        logs = net(torch.tensor([ids[:-1]])).logits[0].log_softmax(dim=-1)
    return float(sum(logs[at - 1, ids[at]] for at in range(before, len(ids))))


def greedy(net: Any, tokenizer: Any, prompt: str) -> str:
    ids = tokenizer.encode(prompt)
    begin = len(ids)
    with torch.inference_mode():
        for _ in range(12):
            ids.append(int(net(torch.tensor([ids])).logits[0, -1].argmax()))
    text = tokenizer.decode(ids[begin:], skip_special_tokens=False)
    return str(text.split(".")[0].split("<|")[0]).replace(" ", "")


@pytest.mark.parametrize("task", ["causal-lm", "chat"])
def test_tasks_of_lm_eval_are_scored_and_shown(tmp_path: Path, task: str) -> None:
    write(tmp_path, task)
    benchmarks = run(tmp_path)
    assert [*benchmarks["models"]] == ["teacher", "student", "control"]
    assert benchmarks["chat_template"] == (task == "chat")
    for role, model in benchmarks["models"].items():
        assert scores(benchmarks, role) == expected(tmp_path, model["digest"], task == "chat"), role
    assert scores(benchmarks, "teacher") == (1, 1)
    assert [benchmarks["tasks"][name]["examples"] for name in ("choice", "answer")] == [4, 4]
    (report,) = (tmp_path / "home" / "store" / "objects").rglob("report.html")
    assert "Tasks of lm-eval" in report.read_text()
    assert "exact_match.stripped" in report.read_text()
    with sqlite3.connect(tmp_path / "home" / "mlflow.db") as database:
        logged = dict(database.execute("select key, value from metrics where key like '%lm_eval%'").fetchall())
    assert logged["teacher.lm_eval.choice.acc"] == 1
    assert logged["control.lm_eval.answer.exact_match.stripped"] == scores(benchmarks, "control")[1]
    assert logged["lm_eval.choice.acc"] in {scores(benchmarks, role)[0] for role in benchmarks["models"]}
    assert "student.lm_eval.choice.acc_stderr" in logged
