"""Pretrained models that do not fit the examples are refused before the first training."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from tokenizers import Tokenizer
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.utils import logging

from tests import ROOT
from tests.unit.data.tokenizer_folders import END, END_TURN, OTHERS, examples, saved
from understudy.data import tokenizer as tokenizers
from understudy.data.chat_template import CHATML
from understudy.errors import BAD_INPUT, InputError
from understudy.models.hub import Unreachable
from understudy.recipe import Recipe
from understudy.recipe.file import load
from understudy.steps import steps_of, training
from understudy.steps.fitting import check_models_fit
from understudy.steps.step import Work

HEADED = CHATML.text.replace("<|im_start|>", "<|im_start|>role: ")
SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
TEACHER, STUDENT = "teacher={model: {pretrained: %s}}", "student.model={pretrained: %s}"
Make = Callable[..., Path]


@pytest.fixture
def model(tmp_path: Path) -> Make:
    """A pretrained model; `rows` is the size of its vocabulary, by default padded to a multiple of 64."""

    def make(name: str, rows: int | None = None, **tokenizer: Any) -> Path:
        folder = saved(tmp_path / name, **tokenizer)
        size = Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab_size()
        rows = rows or -(-size // 64) * 64
        logging.disable_progress_bar()
        LlamaForCausalLM(LlamaConfig(vocab_size=rows, max_position_embeddings=128, **SIZES)).save_pretrained(folder)
        return folder

    return make


@pytest.fixture
def source(model: Make) -> Path:
    return model("source")


@pytest.fixture
def work(tmp_path: Path, source: Path, change: Callable[..., Recipe]) -> Callable[..., Work]:
    """A step with conversations that are encoded with the tokenizer of `source`."""
    data = examples(tmp_path / "data", source, "chat")

    def make(*changes: str) -> Work:
        text = f"data.text={{sequence_length: 128, tokenizer: {{pretrained: {source}}}}}"
        recipe = change(load(ROOT / "recipes" / "chat.yaml"), text, *changes)
        notes: list[str] = []
        run = SimpleNamespace(note=notes.append, notes=notes)
        return cast(Work, SimpleNamespace(recipe=recipe, run=run, input=lambda _: data))

    return make


def check(work: Work, section: str = "teacher.model") -> None:
    check_models_fit(work, work.input("examples"), section)


def refusal(work: Work) -> str:
    with pytest.raises(InputError) as caught:
        check(work)
    assert caught.value.exit_code == BAD_INPUT
    return str(caught.value)


def test_padded_and_unpadded_models_with_the_datas_tokenizer_fit(
    work: Callable[..., Work], source: Path, model: Make
) -> None:
    size = Tokenizer.from_file(str(source / "tokenizer.json")).get_vocab_size()
    context = work(TEACHER % source, STUDENT % model("exact", rows=size))
    check(context)
    assert context.run.notes == []


def test_models_that_a_recipe_builds_are_not_compared(
    work: Callable[..., Work], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenizers, "loaded", lambda _: pytest.fail("a tokenizer was read"))
    check(work())


def test_a_teacher_with_other_tokens_is_refused_with_the_fix(work: Callable[..., Work], model: Make) -> None:
    other = model("other", texts=OTHERS)
    message = refusal(work(TEACHER % other))
    assert message.startswith(f"teacher.model.pretrained: {other} does not fit the data: token ")
    assert message.endswith(f". Set data.text.tokenizer: {{pretrained: {other}}}.")
    trained = work(f"teacher.model={{pretrained: {other}}}")
    assert refusal(trained) == message, "training it does not mend that"


def test_a_student_with_other_tokens_is_refused_before_its_teacher_is_trained(
    work: Callable[..., Work], model: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training, "fetched_model", lambda *_: pytest.fail("a model was fetched"))
    monkeypatch.setattr(training, "train", lambda *_: pytest.fail("a model was trained"))
    context = work(STUDENT % model("other", texts=OTHERS))
    with pytest.raises(InputError, match=r"^student\.model\.pretrained: .* does not fit the data: token ") as caught:
        steps_of(context.recipe)["teacher"].work(context)
    assert str(caught.value).endswith(
        "Take a model with the tokenizer of the data, or give student.model a type and a config: such a model is built "
        "for the data's tokenizer."
    )


@pytest.mark.parametrize(
    ("names", "reason"),
    [
        ({"eos_token": END}, f"its eos_token is '{END}' (0), and that of the data is '{END_TURN}' ("),
        ({"chat_template": HEADED}, "its chat template writes "),
    ],
)
def test_another_end_or_template_is_refused_in_a_model_that_is_used_as_it_is(
    work: Callable[..., Work], model: Make, names: dict[str, str], reason: str
) -> None:
    other = model("other", **names)
    message = refusal(work(TEACHER % other))
    assert message.startswith(f"teacher.model.pretrained: {other} does not fit the data: {reason}")
    fix = f"Set data.text.tokenizer: {{pretrained: {other}}}, or give teacher a section train, so that it learns"
    assert message.endswith(f". {fix} the data's.")
    check(work(f"teacher.model={{pretrained: {other}}}", STUDENT % other))


def test_a_recipes_template_is_named_if_the_teacher_has_another(
    work: Callable[..., Work], source: Path, tmp_path: Path
) -> None:
    (tmp_path / "headed.jinja").write_text(HEADED)
    data = examples(tmp_path / "headed", source, "chat", tmp_path / "headed.jinja")
    context = work(TEACHER % source, f"data.chat={{template: {tmp_path / 'headed.jinja'}}}")
    with pytest.raises(InputError, match=r" Remove data\.chat\.template, or give teacher a section train"):
        check_models_fit(context, data, "teacher.model")


def test_each_model_has_its_line(work: Callable[..., Work], model: Make) -> None:
    other = model("other", texts=OTHERS)
    first, second = refusal(work(TEACHER % other, STUDENT % other)).splitlines()
    assert first.startswith("teacher.model.pretrained: ")
    assert second.startswith("student.model.pretrained: ")


def test_a_student_with_fewer_rows_than_tokens_is_refused_before_its_teacher_is_trained(
    work: Callable[..., Work], model: Make
) -> None:
    size = Tokenizer.from_file(str(model("sized") / "tokenizer.json")).get_vocab_size()
    message = refusal(work(STUDENT % model("few", rows=300)))
    assert message.startswith(f"student.model: has 300 tokens, the data has {size};")


def test_a_model_without_a_tokenizer_is_noted_once(work: Callable[..., Work], source: Path, model: Make) -> None:
    bare = model("bare")
    (bare / "tokenizer.json").unlink()
    context = work(TEACHER % bare)
    for section in ("teacher.model", "student.model"):
        check(context, section)
    note = f"teacher.model: {bare} has no tokenizer.json, so its tokens were not compared with the data's"
    assert context.run.notes == [note]


def test_a_hub_that_is_away_is_no_mistake_of_the_recipe(
    work: Callable[..., Work], monkeypatch: pytest.MonkeyPatch
) -> None:
    def away(*_: object) -> None:
        raise Unreachable("data.text.tokenizer.pretrained: the hub is away")

    monkeypatch.setattr(tokenizers, "hub_file", away)
    context = work(f"student.model={{pretrained: a/b, revision: {'a' * 40}}}")
    check(context)
    assert context.run.notes == [], "it may be there when the student is trained"
    check(context, "student.model")
    assert context.run.notes == [
        "student.model: the hub cannot be reached, so its tokens were not compared with the data's"
    ]
