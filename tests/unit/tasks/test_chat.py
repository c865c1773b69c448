"""Conversations, from records to the answers of a registered version."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from tests.unit.models.sections import section
from understudy.data.ingest import ingest
from understudy.data.loader import IGNORED, open_split
from understudy.data.prepare import prepare
from understudy.data.records import at
from understudy.errors import InputError
from understudy.models.build import build_model
from understudy.models.describe import describe
from understudy.models.facts import read_facts
from understudy.models.files import save_model
from understudy.recipe.data import Data
from understudy.tasks import chat as task

LENGTH = 80
SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
LLAMA = {"type": "llama", "config": SIZES}
Turns = list[dict[str, str]]
Prepared = Callable[..., tuple[Path, list[str]]]


def asked(*pairs: tuple[str, str], system: str = "") -> Turns:
    turns = [{"role": "system", "content": system}] if system else []
    for question, answer in pairs:
        turns += [{"role": "user", "content": question}, {"role": "assistant", "content": answer}]
    return turns


def conversations() -> list[Turns]:
    """41 conversations: one is long, one too long, one has a special token, and one has it where it is cut away."""
    rows = [asked((f"what is {n}?", f"it is {n}."), ("sure?", f"yes, {n}")) for n in range(37)]
    rows.append(asked(("a", "b"), ("c", "d " * 60)))
    rows.append(asked(("a " * 60, "e")))
    rows.append(asked(("<|im_end|>", "f")))
    rows.append(asked(("g", "h"), ("<|im_end|> " + "i " * 60, "j")))
    return rows


@pytest.fixture
def prepared(tmp_path: Path) -> Prepared:
    """The examples of conversations, with the records beside them, and the notes."""

    def run(rows: list[Turns] | None = None, tokenizer: Any = None, **chat: Any) -> tuple[Path, list[str]]:
        lines = [json.dumps({"messages": turns}) for turns in rows or conversations()]
        (tmp_path / "all.jsonl").write_text("\n".join(lines))
        source = {"type": "jsonl", "path": str(tmp_path / "all.jsonl")}
        text = {"sequence_length": LENGTH, "tokenizer": tokenizer or {"vocab_size": 300}}
        data = Data.model_validate({"source": source, "text": text, "chat": chat, "validation": 0.2, "test": 0.4})
        for name in ("records", "examples"):
            (tmp_path / name).mkdir()
        ingest(data, "chat", tmp_path / "records", lambda done, total: None)
        notes = prepare(data, "chat", tmp_path / "records", tmp_path / "examples", lambda done, total: None)
        return tmp_path / "examples", notes

    return run


def test_each_conversation_that_does_not_fit_is_counted(prepared: Prepared) -> None:
    _, notes = prepared()
    setting = "80 tokens (data.text.sequence_length)"
    assert notes == [
        f"2 of 41 conversations cut after the last answer that fits {setting}",
        f"1 of 41 conversations left out, since their first answer does not end within {setting}",
        "1 of 41 conversations left out, since a message has the text of a special token, which would end its turn",
    ]


@pytest.mark.parametrize(("loss_on", "train_on_eos"), [("assistant", True), ("assistant", False), ("last", True)])
def test_the_labels_of_a_sequence_are_the_answers_alone(prepared: Prepared, loss_on: str, train_on_eos: bool) -> None:
    examples, _ = prepared(loss_on=loss_on, train_on_eos=train_on_eos)
    tokenizer = transformers.PreTrainedTokenizerFast.from_pretrained(examples)
    split = open_split(examples, "train")
    inputs, labels = split.batch(np.arange(len(split)))
    positions = split.positions(np.arange(len(split)))
    assert positions is not None
    assert int((labels != IGNORED).sum()) == split.targets(np.arange(len(split)))
    learned = sorted(
        tokenizer.decode(labels[row][part][labels[row][part] != IGNORED])
        for row in range(len(split))
        for part in np.split(np.arange(LENGTH), np.flatnonzero(positions[row] == 0)[1:])
        if (labels[row][part] != IGNORED).any()
    )
    end = "<|im_end|>" if train_on_eos else ""
    kept = [json.loads(row.content) for row in at(examples.parent / "records", "train", range(10**4))]
    fitting = [turns[:2] if max(len(turn["content"]) for turn in turns[2:] or turns) > 100 else turns for turns in kept]
    fitting = [turns for turns in fitting if len(turns[0]["content"]) < 100 and "<|" not in turns[0]["content"]]
    answers = [[turn["content"] for turn in turns if turn["role"] == "assistant"] for turns in fitting]
    assert learned == sorted("".join(f"{text}{end}" for text in (a[-1:] if loss_on == "last" else a)) for a in answers)
    follows = (labels[:, :-1] != IGNORED) & (positions[:, 1:] > 0)
    assert torch.equal(inputs[:, 1:][follows], labels[:, :-1][follows])


def test_the_files_make_transformers_ask_as_the_student_was_trained(prepared: Prepared) -> None:
    examples, _ = prepared()
    tokenizer = transformers.AutoTokenizer.from_pretrained(examples)
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "so?"}], tokenize=False, add_generation_prompt=True
    )
    assert prompt == "<|im_start|>user\nso?<|im_end|>\n<|im_start|>assistant\n"
    facts = read_facts(examples)
    assert tokenizer.eos_token_id == facts["eos_id"] == tokenizer.convert_tokens_to_ids("<|im_end|>")
    generation = json.loads((examples / "generation_config.json").read_text())
    assert generation["eos_token_id"] == facts["eos_id"]


def test_a_template_of_the_recipe_replaces_chatml_and_its_failure_names_the_conversation(
    prepared: Prepared, tmp_path: Path
) -> None:
    (tmp_path / "shout.jinja").write_text("{% for m in messages %}{{ m.content | upper }}<|im_end|>{% endfor %}")
    with pytest.raises(InputError, match=r"^data\.chat: in the conversation that begins with .*turn 2: .*template"):
        prepared(template=str(tmp_path / "shout.jinja"))


def test_a_split_without_a_conversation_that_fits_is_an_error(prepared: Prepared) -> None:
    with pytest.raises(
        InputError, match=r"^data\.chat: nothing is left of the train split: 20 of 20 conversations left out"
    ):
        prepared([asked((f"{n} " * 60, "e")) for n in range(20)])


@pytest.fixture
def model(prepared: Prepared, tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    examples, _ = prepared()
    facts = read_facts(examples)
    description = describe(section(LLAMA), facts, "student.model")
    torch.manual_seed(0)
    module = build_model(description)
    folder = tmp_path / "model"
    folder.mkdir()
    save_model(folder, module.state_dict(), description, examples / "tokenizer.json")
    return folder, dict(description)


def predictor(folder: Path, facts: dict[str, Any]) -> Any:
    net = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()

    def logits(inputs: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            rows: torch.Tensor = net(inputs).logits
        return rows

    from understudy.data import served_turns

    return task.Predictor(facts, logits, folder, {"turns": served_turns.__file__}, None)  # type: ignore[arg-type]


def test_a_version_answers_as_transformers_generates(model: tuple[Path, dict[str, Any]]) -> None:
    folder, facts = model
    messages = [{"role": "user", "content": "what is 3?"}]
    answered = predictor(folder, facts).predict({"messages": [messages]}, {"max_new_tokens": 8})
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    net = transformers.AutoModelForCausalLM.from_pretrained(folder)
    inputs = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    generated = net.generate(**inputs, max_new_tokens=8, do_sample=False)[0, inputs["input_ids"].shape[1] :]
    assert answered["answer"] == [tokenizer.decode(generated, skip_special_tokens=True)]
    assert (answered["nll"], answered["tokens"]) == ([0.0], [0])


def test_a_version_scores_answers_as_the_evaluation_counts_them(model: tuple[Path, dict[str, Any]]) -> None:
    folder, facts = model
    examples = folder.parent / "examples"
    records = at(folder.parent / "records", "test", range(10**4))
    served = predictor(folder, facts)
    columns, params = task.request(records)
    answers = served.predict(columns, params)
    losses = task.losses(facts, answers, records)  # type: ignore[arg-type]
    split = task.test_split(examples, facts, facts, None, None, None)  # type: ignore[arg-type]
    expected = np.zeros(len(records))
    for batch in split.batches(5):
        logits = served.logits(torch.from_numpy(batch.inputs))
        nll = torch.nn.functional.cross_entropy(
            logits.transpose(1, 2), torch.from_numpy(batch.targets), reduction="none"
        )
        counted = batch.examples >= 0
        np.add.at(expected, batch.examples[counted], nll.double().numpy()[counted])
    assert losses == pytest.approx(expected.tolist(), rel=1e-5, abs=1e-5)
    net = transformers.AutoModelForCausalLM.from_pretrained(folder)
    by_transformers, other = task.losses_by_transformers(facts, net, folder, records)  # type: ignore[arg-type]
    assert by_transformers == pytest.approx(expected.tolist(), rel=1e-5, abs=1e-5)
    assert other == ""
    assert answers["tokens"] == split.tokens.tolist()
    assert (expected > 0).sum() == (split.tokens > 0).sum() > 10


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ([], "conversation 0 is empty"),
        ([{"role": "user", "content": None}], "the content of turn 1 is None, not a text"),
        ([{"content": "a"}], "the role of turn 1 is None"),
    ],
)
def test_a_request_that_is_no_conversation_is_refused(
    model: tuple[Path, dict[str, Any]], row: list[dict[str, Any]], reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        predictor(*model).predict({"messages": [row]}, {})


def test_a_message_with_a_special_token_is_refused(model: tuple[Path, dict[str, Any]]) -> None:
    folder, facts = model
    with pytest.raises(ValueError, match=r"^a message contains <\|im_end\|>, which would end its turn; remove it$"):
        predictor(folder, facts).predict({"messages": [[{"role": "user", "content": "a<|im_end|>b"}]]}, {})


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_padded_rows_of_a_network_are_in_no_answer_and_in_no_loss(
    model: tuple[Path, dict[str, Any]], tmp_path: Path, temperature: float
) -> None:
    """With logits above all others, they would be each token of an answer, and all of the probability."""
    folder, facts = model
    net = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
    exact = predictor(folder, facts)

    def padded(inputs: torch.Tensor) -> torch.Tensor:
        with torch.inference_mode():
            return torch.nn.functional.pad(net(inputs).logits, (0, 24), value=1000.0)

    served = predictor(folder, facts)
    served._logits = padded
    question, params = asked(("what is 3?", "it is 3."))[:1], {"max_new_tokens": 8, "temperature": temperature}
    answers = []
    for each in (exact, served):
        torch.manual_seed(0)
        answers.append(each.predict({"messages": [question, asked(("what is 3?", "it is 3."))]}, params))
    assert answers[0] == answers[1]
    records = at(tmp_path / "records", "test", range(4))
    without, _ = task.losses_by_transformers(facts, net, folder, records)  # type: ignore[arg-type]

    def network(inputs: torch.Tensor) -> SimpleNamespace:
        return SimpleNamespace(logits=padded(inputs))

    assert task.losses_by_transformers(facts, network, folder, records)[0] == without  # type: ignore[arg-type]


def with_files(prepared: Prepared, tmp_path: Path, **config: Any) -> Path:
    """Examples by a pretrained tokenizer of the same data, with changes of its tokenizer_config.json."""
    examples, _ = prepared()
    hub = tmp_path / "hub"
    hub.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        (hub / name).write_text((examples / name).read_text())
    settings = json.loads((hub / "tokenizer_config.json").read_text()) | config
    if "chat_template" in config:
        (hub / "chat_template.jinja").write_text(config["chat_template"])
    (hub / "tokenizer_config.json").write_text(json.dumps(settings))
    for name in ("records", "examples"):
        shutil.rmtree(tmp_path / name)
    return prepared(tokenizer={"pretrained": str(hub)})[0]


def test_a_pretrained_tokenizer_that_would_split_special_tokens_does_not(prepared: Prepared, tmp_path: Path) -> None:
    examples = with_files(prepared, tmp_path, split_special_tokens=True)
    assert "split_special_tokens" not in json.loads((examples / "tokenizer_config.json").read_text())


def test_texts_that_make_a_special_token_together_are_left_out(prepared: Prepared, tmp_path: Path) -> None:
    """The template writes the system's text and the user's without anything between them."""
    template = (
        "{% for m in messages %}{% if m.role != 'user' %}<|im_start|>{{ m.role }}\n{% endif %}{{ m.content }}"
        "{% if m.role != 'system' %}<|im_end|>\n{% endif %}{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    (tmp_path / "joined.jinja").write_text(template)
    rows = [asked((f"is it {n}?", f"it is {n}"), system="short") for n in range(30)]
    rows.append(asked(("end|> so", "k"), system="hi <|im_"))
    _, notes = prepared(rows, template=str(tmp_path / "joined.jinja"))
    assert notes == [
        "1 of 31 conversations left out, since a message has the text of a special token, which would end its turn"
    ]


def test_a_token_that_the_files_name_is_written_by_the_template(prepared: Prepared, tmp_path: Path) -> None:
    template = (
        "{% for m in messages %}{{ turn_token }}{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
        "{% if add_generation_prompt %}{{ turn_token }}assistant\n{% endif %}"
    )
    named = {"turn_token": "<|im_start|>"}
    examples = with_files(prepared, tmp_path, chat_template=template, extra_special_tokens=named)
    assert task.learned(examples)[0][0][0].startswith("<|im_start|>user\n")


def test_other_tokens_of_servers_are_an_error_before_any_training(
    prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    from understudy.data import served_turns

    whole = served_turns.ServedTurns.learned

    def shorter(*args: Any) -> Any:
        ids, learned = whole(*args)
        return ids[:-1], learned[:-1]

    monkeypatch.setattr(served_turns.ServedTurns, "learned", shorter)
    with pytest.raises(InputError, match=r"^data\.chat: servers would see other tokens"):
        prepared()


def test_a_report_marks_what_is_learned(prepared: Prepared) -> None:
    examples, _ = prepared()
    first, *others = task.learned(examples)
    assert len(others) == 2
    question, answer = first[0], first[1]
    assert not question[1]
    assert question[0].startswith("<|im_start|>user\n")
    assert question[0].endswith("<|im_start|>assistant\n")
    assert answer[1]
    assert answer[0].endswith("<|im_end|>")
