"""A pretrained model's tokenizer, compared with that of the examples."""

import json
from pathlib import Path
from typing import Any

import pytest
from tokenizers import AddedToken, Tokenizer, normalizers, pre_tokenizers, processors

from tests.unit.data.tokenizer_folders import BEGIN_TURN, END, END_TURN, OTHERS, examples, saved
from understudy.data.chat_template import CHATML
from understudy.data.model_tokenizer import Misfit, has_tokenizer, misfits
from understudy.errors import InputError
from understudy.recipe.data import Tokenizer as Settings

AT = "teacher.model.pretrained"
HEADED = CHATML.text.replace("<|im_start|>", "<|im_start|>role: ")


def compared(model: Path, data: Path, *, chats: bool = False, texts: tuple[str, ...] = ()) -> list[Misfit]:
    return list(misfits(Settings(pretrained=str(model)), data, texts, AT, chats=chats))


def reasons(model: Path, data: Path, **how: Any) -> list[tuple[str, bool]]:
    return [(misfit.reason, misfit.is_learned) for misfit in compared(model, data, **how)]


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return saved(tmp_path_factory.mktemp("source"))


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory, source: Path) -> Path:
    return examples(tmp_path_factory.mktemp("documents"), source, "causal-lm")


@pytest.fixture(scope="module")
def chat(tmp_path_factory: pytest.TempPathFactory, source: Path) -> Path:
    return examples(tmp_path_factory.mktemp("chat"), source, "chat")


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory, source: Path) -> Path:
    return examples(tmp_path_factory.mktemp("classes"), source, "text-classification")


def test_the_examples_own_tokenizer_fits(source: Path, documents: Path, chat: Path, classes: Path) -> None:
    assert compared(source, documents) == compared(source, classes) == compared(source, chat, chats=True) == []


def test_other_files_of_the_same_tokenizer_fit(source: Path, chat: Path, tmp_path: Path) -> None:
    """An older form of merges, another layout, a limit of length, a template with another text and the same output."""
    saved(tmp_path / "model", chat_template="{# Chat #}" + CHATML.text)
    path = tmp_path / "model" / "tokenizer.json"
    content = json.loads(path.read_text())
    content["model"]["merges"] = [" ".join(pair) for pair in content["model"]["merges"]]
    content["truncation"] = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    path.write_text(json.dumps(content))
    assert path.read_text() != (source / "tokenizer.json").read_text()
    assert compared(tmp_path / "model", chat, chats=True, texts=("grass is green",)) == []


def test_tokens_after_those_of_the_examples_fit(documents: Path, tmp_path: Path) -> None:
    model = saved(tmp_path, change=lambda tokenizer: tokenizer.add_tokens(["<extra>"]))
    assert compared(model, documents) == []


def test_an_id_with_another_meaning_is_a_misfit(documents: Path, tmp_path: Path) -> None:
    first, *_ = reasons(saved(tmp_path, texts=OTHERS), documents)
    ours, theirs = (Tokenizer.from_file(str(folder / "tokenizer.json")) for folder in (documents, tmp_path))
    shared = range(min(ours.get_vocab_size(), theirs.get_vocab_size()))
    differ = [id_ for id_ in shared if ours.id_to_token(id_) != theirs.id_to_token(id_)]
    at = differ[0]
    assert first == (
        f"token {at} is {theirs.id_to_token(at)!r} in its tokenizer and {ours.id_to_token(at)!r} in that of the data "
        f"({len(differ)} of {len(shared)} differ)",
        False,
    )


def test_a_token_that_the_model_lacks_may_be_learned(source: Path, documents: Path, tmp_path: Path) -> None:
    larger = saved(tmp_path / "larger", change=lambda tokenizer: tokenizer.add_special_tokens(["<extra>"]))
    size = Tokenizer.from_file(str(source / "tokenizer.json")).get_vocab_size()
    data = examples(tmp_path / "data", larger, "causal-lm")
    expected = [(f"its tokenizer has no '<extra>', which is token {size} of the data", True)]
    assert reasons(source, data, texts=("a<extra>b",)) == expected


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda tokenizer: setattr(tokenizer, "normalizer", normalizers.Lowercase()), "Hello, world!"),
        (lambda tokenizer: setattr(tokenizer, "normalizer", normalizers.NFC()), "na\u00efve"),
        (lambda tokenizer: setattr(tokenizer, "normalizer", normalizers.Strip()), "  two  spaces"),
        (
            lambda tokenizer: setattr(tokenizer, "pre_tokenizer", pre_tokenizers.ByteLevel(add_prefix_space=True)),
            "Hello, world!",
        ),
    ],
)
def test_other_tokens_of_a_text_are_a_misfit(documents: Path, tmp_path: Path, change: Any, text: str) -> None:
    ((reason, is_learned),) = reasons(saved(tmp_path, change=change), documents)
    assert reason.startswith(f"in the text '{text}")
    assert " where that of the data has " in reason
    assert not is_learned


def test_the_datas_texts_are_compared(documents: Path, tmp_path: Path) -> None:
    model = saved(
        tmp_path, change=lambda tokenizer: setattr(tokenizer, "normalizer", normalizers.Replace("unusual", "usual"))
    )
    assert compared(model, documents) == []
    ((reason, _),) = reasons(model, documents, texts=("grass", "an unusual text"))
    assert reason.startswith("in the text 'an unusual text' its tokenizer has 's' (")


def test_special_tokens_inside_a_text_are_compared_as_the_task_reads_them(
    chat: Path, documents: Path, tmp_path: Path
) -> None:
    """A token that takes the spaces before it: a chat template may write some, and in documents it is plain text."""
    stripping = AddedToken(BEGIN_TURN, lstrip=True, special=True)
    model = saved(tmp_path, change=lambda tokenizer: tokenizer.add_special_tokens([stripping]))
    ((reason, is_learned),) = reasons(model, chat, chats=True)
    assert reason.startswith(f"in the text 'a{END} {END}b a{BEGIN_TURN} {BEGIN_TURN}b")
    assert not is_learned
    assert compared(model, documents) == []


def test_special_tokens_around_a_text_are_compared_where_models_get_them(
    classes: Path, documents: Path, tmp_path: Path
) -> None:
    def end(tokenizer: Tokenizer) -> None:
        special = [(END_TURN, tokenizer.token_to_id(END_TURN))]
        tokenizer.post_processor = processors.TemplateProcessing(single=f"$A {END_TURN}", special_tokens=special)

    model = saved(tmp_path, change=end)
    number = Tokenizer.from_file(str(model / "tokenizer.json")).token_to_id(END_TURN)
    ((reason, _),) = reasons(model, classes)
    assert reason.endswith(f"its tokenizer has '{END_TURN}' ({number}) where that of the data has no further token")
    assert compared(model, documents) == []


def test_another_padding_is_a_misfit_where_texts_are_padded(classes: Path, documents: Path, tmp_path: Path) -> None:
    model = saved(tmp_path, pad_token=BEGIN_TURN)
    ((reason, is_learned),) = reasons(model, classes)
    assert reason.startswith(f"its pad_token is '{BEGIN_TURN}' (")
    assert reason.endswith(f"and that of the data is '{END}' (0)")
    assert not is_learned
    assert compared(model, documents) == []


@pytest.mark.parametrize("task", ["causal-lm", "chat"])
def test_another_end_token_is_a_misfit_that_training_mends(
    request: pytest.FixtureRequest, tmp_path: Path, task: str
) -> None:
    data = request.getfixturevalue({"causal-lm": "documents", "chat": "chat"}[task])
    number = Tokenizer.from_file(str(data / "tokenizer.json")).token_to_id(END_TURN)
    expected = [(f"its eos_token is '{END}' (0), and that of the data is '{END_TURN}' ({number})", True)]
    model = saved(tmp_path, eos_token=END)
    assert reasons(model, data, chats=task == "chat") == expected
    (model / "generation_config.json").write_text(json.dumps({"eos_token_id": [0, number]}))
    assert reasons(model, data, chats=task == "chat") == [], "one of several ends"


def test_an_end_that_the_template_alone_writes_fits_its_own_tokenizer(tmp_path: Path) -> None:
    """Published models name another end than their template's."""
    model = saved(tmp_path / "model", eos_token=END)
    assert compared(model, examples(tmp_path / "data", model, "chat"), chats=True) == []


def test_another_first_token_is_a_misfit_that_training_mends(documents: Path, tmp_path: Path) -> None:
    model = saved(tmp_path, bos_token=BEGIN_TURN)
    path = model / "tokenizer_config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "add_bos_token": True}))
    number = Tokenizer.from_file(str(model / "tokenizer.json")).token_to_id(BEGIN_TURN)
    expected = [(f"its bos_token is '{BEGIN_TURN}' ({number}), and that of the data is nothing", True)]
    assert reasons(model, documents) == expected


def test_another_template_is_a_misfit_that_training_mends(chat: Path, documents: Path, tmp_path: Path) -> None:
    model = saved(tmp_path, chat_template=HEADED)
    written, other = f"{BEGIN_TURN}role: user\\n", f"{BEGIN_TURN}user\\n"
    expected = [(f"its chat template writes '{written}' where that of the data writes '{other}'", True)]
    assert reasons(model, chat, chats=True) == expected
    assert compared(model, documents) == [], "documents have no template"


@pytest.mark.parametrize(
    "template",
    [
        None,
        "{% if messages[0].role == 'system' %}{{ raise_exception('no system') }}{% endif %}" + CHATML.text,
        "{{ strftime_now('%Y') }}" + CHATML.text,
    ],
)
def test_templates_that_cannot_be_compared_are_no_misfit(chat: Path, tmp_path: Path, template: str | None) -> None:
    assert compared(saved(tmp_path, chat_template=template), chat, chats=True) == []


def test_a_damaged_tokenizer_is_an_error_at_the_models_path(documents: Path, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(InputError, match=rf"^{AT}: {tmp_path}/tokenizer\.json is not JSON"):
        compared(tmp_path, documents)


def test_a_folder_without_a_tokenizer_has_none(source: Path, tmp_path: Path) -> None:
    assert has_tokenizer(Settings(pretrained=str(source)), AT)
    assert not has_tokenizer(Settings(pretrained=str(tmp_path)), AT)
