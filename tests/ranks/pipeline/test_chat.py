"""A chat model, from a recipe of conversations to a registered version that answers, on this machine."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

RECIPE = """
name: colours
task: chat
data:
  source: {type: jsonl, path: colours.jsonl}
  text: {sequence_length: 64, tokenizer: {vocab_size: 320}}
teacher:
  model: {type: llama, config: {hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 2, intermediate_size: 64}}
  train: {steps: 120, batch_size: 8, optimizer: {learning_rate: 5.0e-3}}
student:
  model: {type: llama, config: {hidden_size: 24, num_hidden_layers: 1, num_attention_heads: 2, intermediate_size: 32}}
  train: {steps: 120, batch_size: 8, optimizer: {learning_rate: 5.0e-3}}
  control: false
evaluate: {latency: {repeats: 2}}
gate: {metric: exact_match, margin: 0.1, max_size_ratio: null, max_latency_ratio: null}
"""
ASK = """
import json, sys, mlflow, pandas as pd
mlflow.set_tracking_uri("sqlite:///home/mlflow.db")
version = mlflow.pyfunc.load_model("models:/colours/1")
asked = [[{"role": "user", "content": f"so so, which colour has {thing}?"}] for thing in sys.argv[1:]]
table = pd.DataFrame({"messages": asked})
whole, stopped = (version.predict(table, params={"stop": stop})["answer"].tolist() for stop in ([], [" is"]))
print(json.dumps({"whole": whole, "stopped": stopped}))
"""
COLOURS = {"grass": "green", "snow": "white", "coal": "black", "blood": "red"}
TALK = ["please", "now", "friend", "then", "today", "again", "well", "so"]


def conversations() -> list[list[dict[str, str]]]:
    """Questions about colours, one to three in a conversation."""
    generator, texts = np.random.default_rng(0), []
    for _ in range(400):
        turns = []
        for thing in generator.choice([*COLOURS], generator.integers(1, 4)):
            question = f"{' '.join(generator.choice(TALK, 2))}, which colour has {thing}?"
            answer = f"{thing} is {COLOURS[thing]}."
            turns += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
        texts.append(turns)
    return texts


def test_a_recipe_of_conversations_ends_with_a_registered_student_that_answers(tmp_path: Path) -> None:
    lines = [json.dumps({"messages": turns}) for turns in conversations()]
    (tmp_path / "colours.jsonl").write_text("\n".join(lines))
    (tmp_path / "r.yaml").write_text(RECIPE)
    command = [sys.executable, "-m", "understudy", "--home", "home", "run", "r.yaml", "--json"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    *_, last = (json.loads(line) for line in done.stdout.splitlines())
    metrics = last["measures"]["models"]["student"]["metrics"]
    assert metrics["exact_match"] > 0.9
    assert metrics["agreement"] > 0.9
    done = subprocess.run(
        [sys.executable, "-c", ASK, *COLOURS], cwd=tmp_path, capture_output=True, text=True, env=environment, check=True
    )
    answers = json.loads(done.stdout.splitlines()[-1])
    assert answers["whole"] == [f"{thing} is {colour}." for thing, colour in COLOURS.items()]
    assert answers["stopped"] == [*COLOURS]
