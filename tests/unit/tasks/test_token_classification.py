"""Words and their labels, from records to a registered version's answers."""

import inspect
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from tests.unit.models.sections import section
from understudy.data.ingest import ingest
from understudy.data.loader import open_split
from understudy.data.prepare import prepare
from understudy.data.records import at, read
from understudy.errors import InputError
from understudy.models.build import build_model
from understudy.models.describe import describe
from understudy.models.facts import read_facts
from understudy.models.files import save_model
from understudy.recipe.data import Data
from understudy.store.files import read_json
from understudy.tasks import token_classification as task

LENGTH = 16
SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
BERT, LLAMA = ({"type": name, "config": SIZES} for name in ("bert", "llama"))
Prepared = Callable[..., tuple[Path, list[str]]]


def rows() -> tuple[list[str], list[str]]:
    """60 texts; the fourth has more tokens than a sequence."""
    words = [f"Anna {number} saw unbelievable Rome ." for number in range(60)]
    labels = ["B-PER O O O B-LOC O"] * 60
    words[3], labels[3] = words[3] + " and so on" * 5, labels[3] + " O" * 15
    return words, labels


@pytest.fixture
def prepared(tmp_path: Path) -> Prepared:
    """The examples of the texts, with the records beside them, and the notes."""

    def run(length: int = LENGTH, labels: list[str] | None = None, **tokenizer: Any) -> tuple[Path, list[str]]:
        words, known = rows()
        pq.write_table(pa.table({"words": words, "labels": labels or known}), tmp_path / "all.parquet")
        source = {"type": "parquet", "path": str(tmp_path / "all.parquet")}
        text = {"sequence_length": length, "tokenizer": tokenizer or {"vocab_size": 300}}
        data = Data.model_validate({"source": source, "text": text, "validation": 0.2})
        for name in ("records", "examples"):
            (tmp_path / name).mkdir()
        ingest(data, "token-classification", tmp_path / "records", lambda done, total: None)
        notes = prepare(
            data, "token-classification", tmp_path / "records", tmp_path / "examples", lambda done, total: None
        )
        return tmp_path / "examples", notes

    return run


@pytest.fixture
def wordpiece(tmp_path: Path) -> Path:
    """BERT's tokenizer: small letters, words in pieces."""
    names = [
        "[PAD]",
        "[UNK]",
        "[CLS]",
        "[SEP]",
        "anna",
        "saw",
        "un",
        "##bel",
        "##ie",
        "##vable",
        "rome",
        ".",
        "1",
        "##1",
    ]
    words = models.WordPiece({word: number for number, word in enumerate(names)}, unk_token="[UNK]")
    tokenizer = Tokenizer(words)
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.BertNormalizer(), pre_tokenizers.BertPreTokenizer()
    tokenizer.add_special_tokens(names[:4])
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    special = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token"), names[:4], strict=True))
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(tmp_path / "hub")
    return tmp_path / "hub"


def byte_level() -> Tokenizer:
    letters = [*sorted(pre_tokenizers.ByteLevel.alphabet()), "\u0120c"]
    tokenizer = Tokenizer(models.BPE({letter: at for at, letter in enumerate(letters)}, [("\u0120", "c")]))
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    return tokenizer


@pytest.mark.parametrize("text", ["Anna saw unbelievable rome .", "a", "caf\u00e9 [SEP] \U0001f600 x"])
def test_the_first_token_of_each_word_is_that_of_transformers(wordpiece: Path, text: str) -> None:
    auto = transformers.AutoTokenizer.from_pretrained(wordpiece)
    found = auto(text.split(" "), is_split_into_words=True, split_special_tokens=True)
    word_ids = found.word_ids()
    tokenizer = Tokenizer.from_file(str(wordpiece / "tokenizer.json"))
    tokenizer.encode_special_tokens = True
    expected = [word_ids.index(word) for word in range(len(text.split(" ")))]
    assert task.first_tokens(text, tokenizer.encode(text)) == expected


def test_a_token_that_begins_with_the_space_belongs_to_the_word_after_it() -> None:
    """A space alone belongs to neither."""
    assert task.first_tokens("ab c \u00e9", byte_level().encode("ab c \u00e9")) == [0, 2, 4]


def test_words_have_their_labels_at_their_first_tokens(prepared: Prepared) -> None:
    examples, _ = prepared()
    facts, tokenizer = read_facts(examples), Tokenizer.from_file(str(examples / "tokenizer.json"))
    assert facts["labels"] == ["B-LOC", "B-PER", "O"]
    (batch,) = read(examples.parent / "records", "test")
    inputs, labels = open_split(examples, "test").batch(np.arange(len(batch)))
    for tokens, row, record in zip(inputs.tolist(), labels.tolist(), batch, strict=True):
        text, given = record.content.decode(), record.others["labels"].decode().split()
        labelled = [place for place, label in enumerate(row) if label >= 0]
        assert [facts["labels"][row[place]] for place in labelled] == given[: len(labelled)]
        ends = [*labelled[1:], len(tokens)]
        special = {0, tokenizer.token_to_id("<|separator|>")}
        pieces = [
            tokenizer.decode([t for t in tokens[a:b] if t not in special]) for a, b in zip(labelled, ends, strict=True)
        ]
        assert [piece.strip() for piece in pieces] == text.split(" ")[: len(pieces)]


def test_words_that_are_cut_are_counted(prepared: Prepared) -> None:
    examples, notes = prepared(vocab_size=400)
    tokens, _ = task.lengths(examples)
    labelled = sum(len(task.targets(examples, split)) for split in ("train", "validation", "test"))
    cut = sum(len(words.split()) for words in rows()[0]) - labelled
    assert 1 <= cut < 60
    assert notes == [
        f"{cut} words have no token of their own among the first 16 of their text (data.text.sequence_length), and are "
        "neither trained nor measured"
    ]
    assert tokens.sum() == len(task.targets(examples, "test"))


def test_labels_that_training_never_saw_are_named(prepared: Prepared, tmp_path: Path) -> None:
    prepared()
    (first, *_), *_ = read(tmp_path / "records", "test")
    for folder in ("records", "examples"):
        shutil.rmtree(tmp_path / folder)
    words, labels = rows()
    labels[words.index(first.content.decode())] = "B-ORG O O O B-LOC O"
    with pytest.raises(InputError, match=r"the test split has labels that training never saw: B-ORG\. Remove them"):
        prepared(labels=labels)


def test_labels_that_look_alike_are_noted(prepared: Prepared) -> None:
    labels = [" ".join("O" * len(words.split())) for words in rows()[0]]
    _, notes = prepared(length=64, labels=[*labels[:30], *(text.replace("O", "o", 1) for text in labels[30:])])
    assert notes == ["labels that may be meant to be one: O, o"]


def test_one_label_is_too_few(prepared: Prepared) -> None:
    with pytest.raises(InputError, match="all words have the label O"):
        prepared(labels=[" ".join("O" * len(words.split())) for words in rows()[0]])


def test_a_sequence_without_room_for_text_is_refused(prepared: Prepared) -> None:
    with pytest.raises(InputError, match="sequence_length: 2 leaves no room for text; 3 is the least"):
        prepared(length=2)


def test_further_data_has_the_labels_and_tokens_of_data(prepared: Prepared, tmp_path: Path) -> None:
    examples, _ = prepared()
    data = Data.model_validate({"source": {"type": "digits"}, "text": {"sequence_length": LENGTH}})
    (tmp_path / "more").mkdir()
    prepare(data, "token-classification", tmp_path / "records", tmp_path / "more", lambda done, total: None, examples)
    for name in ("test.inputs.npy", "test.labels.npy", "tokenizer.json"):
        assert (tmp_path / "more" / name).read_bytes() == (examples / name).read_bytes()
    assert read_json(tmp_path / "more" / "examples.json")["labels"] == read_facts(examples)["labels"]


@pytest.mark.parametrize("model", [BERT, LLAMA], ids=["bert", "llama"])
def test_padding_changes_no_answer(prepared: Prepared, model: dict[str, Any]) -> None:
    facts = read_facts(prepared()[0])
    net = build_model(describe(section(model), facts, "student.model")).eval()
    tokens = torch.tensor([[299, 5, 6, 7]])
    padded = torch.nn.functional.pad(tokens, (0, 6), value=facts["special_ids"]["pad_token_id"])
    torch.testing.assert_close(net(padded).logits[:, :4], net(tokens).logits, atol=1e-6, rtol=1e-5)
    assert net(tokens).logits.shape == (1, 4, 3)


@pytest.mark.parametrize("model", [BERT, LLAMA], ids=["bert", "llama"])
def test_a_version_scores_as_it_was_measured(prepared: Prepared, model: dict[str, Any]) -> None:
    examples, _ = prepared()
    description = describe(section(model), read_facts(examples), "student.model")
    built, folder = build_model(description).eval(), examples.parent / "model"
    folder.mkdir()
    save_model(folder, built.state_dict(), description, examples / "tokenizer.json")
    net = transformers.AutoModelForTokenClassification.from_pretrained(folder).eval()
    taken = inspect.signature(net.forward).parameters

    def logits(first: torch.Tensor, **others: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            found = net(first, **{name: value for name, value in others.items() if name in taken}).logits
        return torch.as_tensor(found)

    records = at(examples.parent / "records", "test", [0, 1, 2, 3])
    inputs, labels = open_split(examples, "test").batch(np.arange(4))
    nats = torch.nn.functional.cross_entropy(built(inputs).logits.mT, labels, reduction="none")
    expected = nats.sum(dim=1).tolist()
    columns, params = task.request(records)
    assert [*columns] == [*task.inputs(description)] == [*task.example(description)]
    answers = task.Predictor(description, logits, folder, {}, None).predict(columns, params)
    assert [len(row) for row in answers["labels"]] == [len(words.split()) for words in columns["words"]]
    assert task.losses(description, answers, records) == pytest.approx(expected, abs=1e-5)
    by_transformers, other = task.losses_by_transformers(description, net, folder, records)
    assert by_transformers == pytest.approx(expected, abs=1e-5)
    assert other == ""


def test_words_beyond_the_sequence_have_an_empty_label(prepared: Prepared) -> None:
    examples, _ = prepared()
    predictor = task.Predictor(
        read_facts(examples), lambda first, **_: torch.zeros(*first.shape, 3), examples, {}, None
    )
    answers = predictor.predict({"words": ["so " * 40, "", "a  b"]}, {})
    first, empty, short = answers["labels"]
    assert (len(first), empty, short) == (40, [], ["B-LOC", "B-LOC"])
    seen = first.index("")
    assert set(first[seen:]) == {""}
    assert [len(row) for row in answers["probabilities"]] == [3 * seen, 0, 6]


def test_blank_texts_have_the_shapes_of_real_ones(prepared: Prepared) -> None:
    examples, _ = prepared()
    facts = read_facts(examples)
    real, blank = open_split(examples, "train").batch(np.arange(3)), task.blank(facts, 3)
    assert [(part.shape, part.dtype) for part in blank] == [(part.shape, part.dtype) for part in real]
    data = Data.model_validate({"source": {"type": "digits"}, "text": {"sequence_length": LENGTH}})
    expected = task.expected(data, facts["labels"], facts["vocab_size"])
    assert expected == {key: facts[key] for key in expected}  # type: ignore[literal-required]


def test_a_reader_is_shown_the_text_and_its_labels(prepared: Prepared) -> None:
    examples, _ = prepared(vocab_size=400)
    (record,) = at(examples.parent / "records", "test", [2])
    said = f"{record.content.decode()}\n{record.others['labels'].decode()}"
    assert task.shown(examples, read_facts(examples), 2) == said
