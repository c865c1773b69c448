import json
import os
import random
import re
import string
import subprocess
import sys
from pathlib import Path

import huggingface_hub
import pytest
import tokenizers as tokenizers_library
from huggingface_hub import errors
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import models, normalizers, pre_tokenizers

from understudy.data import tokenizer as tokenizers
from understudy.errors import InputError
from understudy.recipe.data import Tokenizer

TEXTS = ["the cat sat on the mat", "the dog sat on the cat", "<|endoftext|> in the text"] * 3


@pytest.fixture
def folder(tmp_path):
    trained = tokenizers.train(iter(TEXTS), 300)
    trained.enable_truncation(3)
    trained.enable_padding(length=9)
    trained.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": {"content": "<|endoftext|>"}}))
    return tmp_path


def settings(path):
    return Tokenizer(pretrained=str(path))


@pytest.fixture(scope="module")
def tokenizer():
    return tokenizers.train(iter(TEXTS), 280)


@given(text=st.text())
def test_any_text_comes_back(tokenizer, text):
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert 0 not in ids
    assert tokenizer.decode(ids, skip_special_tokens=False) == text


def test_training_is_the_same_in_another_process_and_on_one_core():
    code = (
        "from understudy.data import tokenizer; import sys;"
        "texts = [open(tokenizer.__file__).read(), open(sys.modules['os'].__file__).read()];"
        "print(tokenizer.train(iter(texts), 900).to_str())"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "TOKENIZERS_PARALLELISM": parallel, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
        ).stdout
        for parallel, seed in (("true", "1"), ("false", "2"))
    }
    assert len(outputs) == 1


def test_a_pretrained_folder_is_used_whole(folder):
    tokenizer, end, first = tokenizers.pretrained(settings(folder))
    assert first is None
    assert end == 0
    ids = tokenizer.encode(TEXTS[0], add_special_tokens=False).ids
    assert tokenizer.decode(ids) == TEXTS[0]  # neither cut at 3 tokens nor padded to 9
    assert [path.name for path in tokenizers.files(settings(folder))] == ["tokenizer.json", "tokenizer_config.json"]


@pytest.mark.parametrize(("ids", "expected"), [(5, 5), ([7, 8], 7)])
def test_the_end_of_text_may_stand_in_the_models_config(folder, ids, expected):
    (folder / "tokenizer_config.json").unlink()
    (folder / "config.json").write_text(json.dumps({"eos_token_id": ids}))
    assert tokenizers.pretrained(settings(folder))[1] == expected


@pytest.mark.parametrize("config", ["{}", '{"eos_token": "</never>"}', "[]"])
def test_a_tokenizer_without_end_of_text_is_refused(folder, config):
    (folder / "tokenizer_config.json").write_text(config)
    with pytest.raises(InputError, match=r"data\.text\.tokenizer\.pretrained: .* names no end-of-text token\. Put"):
        tokenizers.pretrained(settings(folder))


@pytest.mark.parametrize(
    ("content", "message"), [("{", "is not JSON"), ("{}", "describes no tokenizer"), ("[1]", "describes no tokenizer")]
)
def test_a_damaged_tokenizer_is_named(folder, content, message):
    (folder / "tokenizer.json").write_text(content)
    with pytest.raises(InputError, match=rf"tokenizer\.json {message}.*Fetch it again"):
        tokenizers.pretrained(settings(folder))


def test_a_folder_without_a_tokenizer_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"has no tokenizer\.json\. Make one"):
        tokenizers.pretrained(settings(tmp_path))


def test_a_folder_that_is_not_there_is_no_hub_id(tmp_path):
    with pytest.raises(InputError, match=r"nowhere does not exist\. Give a folder"):
        tokenizers.pretrained(settings(tmp_path / "nowhere"))


@pytest.mark.parametrize(
    ("error", "message"),
    [
        ("GatedRepoError", r"is gated\. Ask for access.*hf auth login"),
        ("RepositoryNotFoundError", r"no such repository.*\(401\).*HF_TOKEN"),
        ("RevisionNotFoundError", r"has no revision abc\. Give one"),
        ("HfHubHTTPError", r"the hub refused tokenizer\.json.*HF_TOKEN"),
        ("LocalEntryNotFoundError", r"cannot be reached.*Connect to the network"),
        ("OfflineModeIsEnabled", r"cannot be reached.*Connect to the network"),
        ("HFValidationError", r"neither a folder here nor a hub id"),
        ("EntryNotFoundError", r"has no tokenizer\.json"),
    ],
)
def test_what_the_hub_refuses_is_said_with_the_fix(monkeypatch, error, message):
    raised = getattr(errors, error).__new__(getattr(errors, error))
    raised.args = ("the hub's message\nand more",)

    def refuse(*_args, **_options):
        raise raised

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", refuse)
    with pytest.raises(InputError, match=rf"data\.text\.tokenizer\.pretrained: someone/model.*{message}"):
        tokenizers.pretrained(Tokenizer(pretrained="someone/model", revision="abc"))


def test_a_hub_id_is_read_at_its_revision(monkeypatch, folder):
    requests = []

    def download(repository, name, revision):
        requests.append((repository, revision))
        if not (folder / name).exists():
            raise errors.EntryNotFoundError(name)
        return str(Path(folder, name))

    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    assert tokenizers.pretrained(Tokenizer(pretrained="someone/model", revision="abc"))[1] == 0
    assert set(requests) == {("someone/model", "abc")}


runs = st.lists(
    st.tuples(
        st.sampled_from(["a", "\u4e2d", " ", "\n", "_", "7", "\u0e33", "é"]), st.integers(1, 3 * tokenizers.LONGEST)
    ),
    max_size=6,
)


@given(runs)
def test_no_word_that_a_tokenizer_is_trained_on_is_longer_than_the_longest(parts):
    text = "".join(letter * count for letter, count in parts)
    pieces = tokenizers.pieces(text)
    assert "".join(pieces) == text
    words = [word for piece in pieces for word in re.findall(r"\S+|\s+", piece)]
    assert max(map(len, words), default=0) <= tokenizers.LONGEST


@given(st.lists(st.text(max_size=tokenizers.LONGEST)))
def test_texts_without_long_words_are_trained_on_as_they_are(texts):
    assert [tokenizers.pieces(text) for text in texts] == [[text] if text else [] for text in texts]


def test_a_word_of_a_whole_genome_can_be_trained_on_and_comes_back():
    genome = "".join(random.Random(0).choices("ACGT", k=300_000))
    trained = tokenizers.train(iter([genome]), 300)
    assert trained.decode(trained.encode(genome, add_special_tokens=False).ids) == genome


def small(model, normalizer=None):
    tokenizer = tokenizers_library.Tokenizer(model)
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    if normalizer:
        tokenizer.normalizer = normalizer
    return tokenizer


LETTERS = {
    letter: number for number, letter in enumerate(["[UNK]", *"abcdefghijklmnopqrstuvwxyz,.", *string.ascii_uppercase])
}


@pytest.mark.parametrize(
    ("make_tokenizer", "right"),
    [
        (lambda: small(models.BPE(LETTERS, [], unk_token="[UNK]")), True),
        (lambda: small(models.BPE(LETTERS, [], unk_token="[UNK]"), normalizers.Lowercase()), False),
        (lambda: small(models.WordLevel({"[UNK]": 0, "the": 1}, unk_token="[UNK]")), False),
        (lambda: small(models.BPE({"[UNK]": 0, "a": 1}, [], unk_token="[UNK]")), False),
        (lambda: small(models.BPE(LETTERS, [], unk_token="[UNK]"), normalizers.NFD()), True),
        (lambda: tokenizers.train(iter(TEXTS), 280), True),
    ],
    ids=["letters", "lower-casing", "words", "all unknown", "other forms", "bytes"],
)
def test_a_tokenizer_that_loses_text_is_refused(make_tokenizer, right):
    documents = ["The cat sat on the mat.", "A dog, too."] * 30
    if right:
        tokenizers.check_lossless(settings("here"), make_tokenizer(), iter(documents))
        return
    with pytest.raises(InputError, match=r"^data\.text\.tokenizer\.pretrained: here loses text: of .* became "):
        tokenizers.check_lossless(settings("here"), make_tokenizer(), iter(documents))


def test_a_rare_character_that_is_lost_is_no_reason():
    tokenizer = small(models.BPE(LETTERS, [], unk_token="[UNK]"))
    tokenizers.check_lossless(settings("here"), tokenizer, iter(["a cat"] * 200 + ["\N{SNOWMAN}"]))
