"""Texts and pairs of texts, from records to a registered version's answers."""

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
import transformers
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from tests.unit.models.sections import section
from understudy.data.ingest import ingest
from understudy.data.loader import open_split
from understudy.data.padded_tokenizer import BEGIN, SEPARATOR
from understudy.data.prepare import prepare
from understudy.data.records import at, read
from understudy.errors import InputError
from understudy.models.build import build_model
from understudy.models.describe import describe
from understudy.models.facts import read_facts
from understudy.models.files import save_model
from understudy.models.pretrained import fetch
from understudy.recipe import PretrainedModel, Recipe
from understudy.recipe.data import Data
from understudy.recipe.file import from_values
from understudy.tasks import text_classification as task

LENGTH = 12
SIZES = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
BERT, LLAMA = ({"type": name, "config": SIZES} for name in ("bert", "llama"))
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "good", "bad", "the", "plot", "is"]
Prepared = Callable[..., tuple[Path, list[str]]]


@pytest.fixture
def prepared(tmp_path: Path) -> Prepared:
    """The examples of 60 texts or pairs, with the records beside them, and the notes."""

    def run(columns: dict[str, str], length: int = LENGTH, **tokenizer: Any) -> tuple[Path, list[str]]:
        rows = [f"the plot {number} is {('good', 'bad')[number % 2]}" for number in range(60)]
        rows[7] += " and so is all of the rest of it" * 3
        table = {"text": rows, "claim": ["is it good", "[SEP] <|separator|> it is"] * 30, "label": ["yes", "no"] * 30}
        pq.write_table(pa.table(table), tmp_path / "all.parquet")
        source = {"type": "parquet", "path": str(tmp_path / "all.parquet"), "columns": columns}
        text = {"sequence_length": length, "tokenizer": tokenizer or {"vocab_size": 300}}
        data = Data.model_validate({"source": source, "text": text, "validation": 0.2})
        for name in ("records", "examples"):
            (tmp_path / name).mkdir()
        ingest(data, "text-classification", tmp_path / "records", lambda done, total: None)
        said = prepare(
            data, "text-classification", tmp_path / "records", tmp_path / "examples", lambda done, total: None
        )
        return tmp_path / "examples", said

    return run


@pytest.fixture
def wordpiece(tmp_path: Path) -> Path:
    """A tokenizer and a model as BERT has them: no end-of-text token, small letters, numbered segments."""
    folder = tmp_path / "hub"
    words = models.WordPiece({word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]")
    tokenizer = Tokenizer(words)
    tokenizer.normalizer, tokenizer.pre_tokenizer = normalizers.Lowercase(), pre_tokenizers.Whitespace()
    tokenizer.add_special_tokens(WORDS[:4])
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    names = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token"), WORDS[:4], strict=True))
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **names).save_pretrained(folder)
    torch.manual_seed(0)
    labels = {"id2label": {0: "yes", 1: "no"}, "label2id": {"yes": 0, "no": 1}}
    config = transformers.BertConfig(vocab_size=len(WORDS), **SIZES, **labels)
    transformers.BertForSequenceClassification(config).save_pretrained(folder)
    return folder


def test_a_pair_is_its_tokens_between_special_ones(prepared: Prepared) -> None:
    examples, _ = prepared({"second": "claim"})
    facts, tokenizer = read_facts(examples), Tokenizer.from_file(str(examples / "tokenizer.json"))
    tokenizer.encode_special_tokens = True
    (batch,) = read(examples.parent / "records", "train")
    inputs, labels = open_split(examples, "train").batch(np.arange(len(batch)))
    begin, separator = (tokenizer.token_to_id(token) for token in (BEGIN, SEPARATOR))
    for row, record, label in zip(inputs.tolist(), batch, labels.tolist(), strict=True):
        assert facts["labels"][label] == record.label
        texts = [record.content.decode(), record.others["second"].decode()]
        first, second = (tokenizer.encode(text, add_special_tokens=False).ids for text in texts)
        whole = [begin, *first, separator, *second, separator]
        if len(whole) <= LENGTH:
            assert row == whole + [facts["special_ids"]["pad_token_id"]] * (LENGTH - len(whole))
        assert row.count(separator) == 2, "a special token's name in a text is text"
        assert len(row) == LENGTH
    assert facts["vocab_size"] <= 300


def test_truncated_texts_are_counted(prepared: Prepared) -> None:
    examples, notes = prepared({}, vocab_size=400)
    tokenizer = Tokenizer.from_file(str(examples / "tokenizer.json"))
    texts = [row.content.decode() for batch in read(examples.parent / "records") for row in batch]
    count = sum(len(encoding.ids) > LENGTH for encoding in tokenizer.encode_batch(texts))
    assert 1 <= count < 60
    assert notes == [f"{count} texts have more than 12 tokens (data.text.sequence_length), and are cut to as many"]


def test_segments_and_mask_are_those_of_the_tokenizer(prepared: Prepared, wordpiece: Path) -> None:
    examples, _ = prepared({"second": "claim"}, pretrained=str(wordpiece))
    facts, auto = read_facts(examples), transformers.AutoTokenizer.from_pretrained(examples)
    (batch,) = read(examples.parent / "records", "test")
    texts = [[row.content.decode() for row in batch], [row.others["second"].decode() for row in batch]]
    expected = auto(
        *texts,
        truncation=True,
        max_length=LENGTH,
        padding="max_length",
        split_special_tokens=True,
        return_token_type_ids=True,
    )
    tokens, named = task._arguments(open_split(examples, "test").batch(np.arange(len(batch)))[0], 0, 3)
    assert (facts["special_ids"], facts["details"]) == ({"pad_token_id": 0}, {"separator": 3, "texts": 2})
    assert tokens.tolist() == expected["input_ids"]
    assert named["attention_mask"].tolist() == expected["attention_mask"]
    assert named["token_type_ids"].tolist() == expected["token_type_ids"]


@pytest.mark.parametrize("model", [BERT, LLAMA], ids=["bert", "llama"])
def test_padding_changes_no_answer(prepared: Prepared, model: dict[str, Any]) -> None:
    facts = read_facts(prepared({"second": "claim"})[0])
    net = build_model(describe(section(model), facts, "student.model")).eval()
    tokens = torch.tensor([[299, 5, 6, facts["details"]["separator"], 7, facts["details"]["separator"]]])
    padded = torch.nn.functional.pad(tokens, (0, 6), value=facts["special_ids"]["pad_token_id"])
    torch.testing.assert_close(net(padded).logits, net(tokens).logits, atol=1e-6, rtol=1e-5)
    other = torch.cat([tokens[:, :4], tokens[:, :2]], dim=1)
    assert not torch.allclose(net(other).logits, net(tokens).logits, atol=1e-6)


def test_a_pretrained_model_answers_with_the_labels_in_the_datas_order(prepared: Prepared, wordpiece: Path) -> None:
    examples, _ = prepared({}, pretrained=str(wordpiece))
    folder = examples.parent / "model"
    folder.mkdir()
    fetch(PretrainedModel(pretrained=str(wordpiece)), examples, folder, "teacher.model")
    texts = [row.content.decode() for row in at(examples.parent / "records", "test", [0, 1, 2])]
    tokenizer = transformers.AutoTokenizer.from_pretrained(wordpiece)
    given = tokenizer(texts, truncation=True, max_length=LENGTH, padding=True, return_tensors="pt")
    with torch.no_grad():
        expected = transformers.AutoModelForSequenceClassification.from_pretrained(wordpiece)(**given).logits
        found = transformers.AutoModelForSequenceClassification.from_pretrained(folder)(**given).logits
    assert read_facts(examples)["labels"] == ["no", "yes"]
    torch.testing.assert_close(found, expected[:, [1, 0]])


def test_a_tokenizer_without_padding_is_refused(prepared: Prepared, wordpiece: Path) -> None:
    (wordpiece / "tokenizer_config.json").write_text(json.dumps({"cls_token": "[CLS]"}))
    with pytest.raises(InputError, match=r"tokenizer\.pretrained: .*hub has no token for padding\. Put pad_token into"):
        prepared({}, pretrained=str(wordpiece))


@pytest.mark.parametrize(("columns", "least"), [({}, 3), ({"second": "claim"}, 5)], ids=["one", "pair"])
def test_a_sequence_without_room_for_text_is_refused(prepared: Prepared, columns: dict[str, str], least: int) -> None:
    with pytest.raises(
        InputError, match=rf"sequence_length: {least - 1} leaves no room for text; {least} is the least"
    ):
        prepared(columns, length=least - 1)


def test_a_tokenizer_that_puts_nothing_between_two_texts_is_refused(prepared: Prepared, wordpiece: Path) -> None:
    path = wordpiece / "tokenizer.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "post_processor": None}))
    with pytest.raises(InputError, match=r"tokenizer\.pretrained: it puts no special token between two texts"):
        prepared({"second": "claim"}, pretrained=str(wordpiece))


def test_a_text_that_begins_anew_has_no_number(wordpiece: Path) -> None:
    """Llama's template: the second text begins as the first, and no model takes numbers."""
    tokenizer = Tokenizer.from_file(str(wordpiece / "tokenizer.json"))
    begin = [("[CLS]", 2)]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A", pair="[CLS] $A [CLS]:1 $B:1", special_tokens=begin
    )
    assert task._segments(tokenizer) == {}


@pytest.mark.parametrize("model", [BERT, LLAMA], ids=["bert", "llama"])
@pytest.mark.parametrize("columns", [{}, {"second": "claim"}], ids=["one", "pair"])
def test_a_version_scores_as_it_was_measured(
    prepared: Prepared, model: dict[str, Any], columns: dict[str, str]
) -> None:
    examples, _ = prepared(columns)
    description = describe(section(model), read_facts(examples), "student.model")
    built, folder = build_model(description).eval(), examples.parent / "model"
    folder.mkdir()
    save_model(folder, built.state_dict(), description, examples / "tokenizer.json")
    net = transformers.AutoModelForSequenceClassification.from_pretrained(folder).eval()
    taken = inspect.signature(net.forward).parameters

    def logits(first: torch.Tensor, **others: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            found = net(first, **{name: value for name, value in others.items() if name in taken}).logits
        return torch.as_tensor(found)

    records = at(examples.parent / "records", "test", [0, 1, 2, 3])
    inputs, labels = open_split(examples, "test").batch(np.arange(4))
    expected = torch.nn.functional.cross_entropy(built(inputs).logits, labels, reduction="none").tolist()
    columns_of, params = task.request(records)
    assert [*columns_of] == [*task.inputs(description)] == [*task.example(description)]
    rows = task.Predictor(description, logits, folder, {}, None).predict(columns_of, params)
    assert task.losses(description, rows, records) == pytest.approx(expected, abs=1e-5)
    by_transformers, other = task.losses_by_transformers(description, net, folder, records)
    assert by_transformers == pytest.approx(expected, abs=1e-5)
    assert other == ""


def test_a_version_answers_no_texts_with_no_rows(prepared: Prepared) -> None:
    examples, _ = prepared({})
    rows = task.Predictor(read_facts(examples), lambda first: first, examples, {}, None).predict({"text": []}, {})
    assert all(not len(column) for column in rows.values())


def test_a_reader_is_shown_the_text_without_padding_and_the_tokens_around_it(prepared: Prepared) -> None:
    examples, _ = prepared({}, vocab_size=400)
    (record,) = at(examples.parent / "records", "test", [2])
    assert task.shown(examples, read_facts(examples), 2) == record.content.decode()


def test_a_reader_is_shown_words_that_the_tokenizer_lacks(prepared: Prepared, wordpiece: Path) -> None:
    examples, _ = prepared({}, pretrained=str(wordpiece))
    texts = [task.shown(examples, read_facts(examples), number) for number in range(4)]
    assert any("[UNK]" in text for text in texts)
    assert not any(token in text for token in ("[CLS]", "[SEP]", "[PAD]") for text in texts)


def test_a_reader_can_tell_the_texts_of_a_pair_apart(prepared: Prepared) -> None:
    examples, _ = prepared({"second": "claim"}, vocab_size=400)
    text = task.shown(examples, read_facts(examples), 2)
    assert text.startswith(BEGIN)
    assert text.count(SEPARATOR) == 2


VALUES: dict[str, Any] = {
    "name": "pairs",
    "task": "text-classification",
    "data": {"source": {"type": "parquet", "path": "/pairs"}, "text": {"sequence_length": 16}},
    "teacher": {"model": BERT, "train": {"steps": 1}},
    "student": {"model": BERT, "train": {"steps": 1}},
}


def test_a_recipe_measures_answers_and_learns_from_labels_and_logits() -> None:
    recipe = Recipe.model_validate(VALUES)
    assert recipe.metrics == task.METRICS
    assert [(one.type, one.weight) for one in recipe.objectives] == [("labels", 0.3), ("logits", 0.7)]


def test_documents_are_not_packed_and_texts_have_no_images() -> None:
    with pytest.raises(InputError, match=r"data\.text\.packing: does not apply to the task text-classification"):
        from_values({**VALUES, "data": {**VALUES["data"], "text": {"packing": "documents"}}}, [], "here")
    with pytest.raises(InputError, match=r"data\.source\.type: text-files holds no records for the task.*use parquet"):
        from_values({**VALUES, "data": {"source": {"type": "text-files", "path": "/texts"}}}, [], "here")
