import io
import json
import math
from fractions import Fraction

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image
from tokenizers import Tokenizer

from understudy.data.image_arrays import moments
from understudy.data.prepare import prepare
from understudy.recipe.data import Data
from understudy.store import Store

SPLITS = ("train", "validation", "test")


@pytest.fixture
def prepared(tmp_path_factory, ingested):
    def run(source, task="image-classification", **values):
        records = ingested(source, task, **{key: values[key] for key in ("test", "validation") if key in values})
        folder = tmp_path_factory.mktemp("examples")
        data = Data.model_validate({"source": source, **values})
        prepare(data, task, records, folder, lambda done, total: None)
        return records, folder

    return run


def rows(records, split):
    return [row for row in pq.read_table(records / "records.parquet").to_pylist() if row["split"] == split]


def facts(folder):
    return json.loads((folder / "examples.json").read_text())


def in_parquet(path, root, numbers):
    """The pictures of a class folder in one Parquet file, those of these numbers in their order."""
    paths = sorted(root.rglob("*.png"))
    images = [{"bytes": paths[number].read_bytes(), "path": None} for number in numbers]
    labels = [paths[number].parent.name for number in numbers]
    path.parent.mkdir(exist_ok=True)
    pq.write_table(pa.table({"image": images, "label": labels}), path)


def published(store, run):
    """The digests of records and examples, as the steps publish them."""
    records, examples = run
    digest = store.objects.publish(records, "records", {}, {})
    return digest, store.objects.publish(examples, "examples", {"records": digest}, {})


def identical(first, second):
    names = sorted(path.name for path in first.iterdir())
    assert names == sorted(path.name for path in second.iterdir())
    return all((first / name).read_bytes() == (second / name).read_bytes() for name in names)


class TestImages:
    @pytest.mark.parametrize("channels", [1, 3])
    def test_arrays_hold_every_record_in_order(self, image_folder, prepared, channels):
        source = {"type": "image-folder", "path": str(image_folder)}
        records, folder = prepared(source, image={"size": 4, "channels": channels})
        for split in SPLITS:
            images, labels = (np.load(folder / f"{split}.{name}.npy", mmap_mode="r") for name in ("images", "labels"))
            expected = rows(records, split)
            assert (images.dtype, images.shape) == (np.uint8, (len(expected), channels, 4, 4))
            assert labels.dtype == np.int64
            assert [facts(folder)["labels"][label] for label in labels] == [row["label"] for row in expected]
            for image, row in zip(images, expected, strict=True):
                picture = Image.open(io.BytesIO(row["content"])).convert("L" if channels == 1 else "RGB")
                reference = np.asarray(picture.resize((4, 4), Image.Resampling.BILINEAR))
                np.testing.assert_array_equal(image, np.atleast_3d(reference).transpose(2, 0, 1))

    def test_mean_and_deviation_are_those_of_training_alone(self, image_folder, prepared):
        _, folder = prepared({"type": "image-folder", "path": str(image_folder)}, image={"size": 5, "channels": 3})
        train = np.load(folder / "train.images.npy") / 255
        about = facts(folder)
        np.testing.assert_allclose(about["mean"], train.mean(axis=(0, 2, 3)), rtol=1e-12)
        np.testing.assert_allclose(about["std"], train.std(axis=(0, 2, 3)), rtol=1e-12)
        assert about["image"] == {"size": 5, "channels": 3}
        assert about["counts"]["train"] == len(train)

    def test_mean_and_deviation_are_exact(self):
        counts = np.random.default_rng(0).integers(0, 10**9, (3, 256))
        levels = [Fraction(level, 255) for level in range(256)]
        for row, mean, deviation in zip(counts.tolist(), *moments(counts), strict=True):
            true = sum(count * level for count, level in zip(row, levels, strict=True)) / sum(row)
            spread = sum(count * (level - true) ** 2 for count, level in zip(row, levels, strict=True)) / sum(row)
            assert mean == float(true)
            assert deviation == math.sqrt(spread)

    def test_a_channel_that_never_changes_can_be_divided_by(self, image_folder, prepared):
        for number, path in enumerate(sorted(image_folder.rglob("*.png"))):
            Image.new("L", (2 + number, 2), 7).save(path)
        _, folder = prepared({"type": "image-folder", "path": str(image_folder)}, image={"size": 4, "channels": 1})
        np.testing.assert_allclose(facts(folder)["mean"], 7 / 255)
        assert facts(folder)["std"] == [1 / 255]

    def test_a_split_without_records_is_an_empty_array(self, image_folder, prepared):
        _, folder = prepared({"type": "image-folder", "path": str(image_folder)}, validation=0)
        assert np.load(folder / "validation.images.npy", mmap_mode="r").shape == (0, 3, 32, 32)
        assert np.load(folder / "validation.labels.npy").shape == (0,)

    def test_twice_gives_identical_bytes(self, image_folder, prepared):
        source = {"type": "image-folder", "path": str(image_folder)}
        (_, first), (_, second) = prepared(source), prepared(source)
        assert identical(first, second)

    def test_the_same_pictures_are_the_same_examples_in_whichever_files_and_order(
        self, image_folder, prepared, tmp_path
    ):
        store = Store(tmp_path / "store")
        single, sharded = tmp_path / "single.parquet", tmp_path / "sharded"
        in_parquet(single, image_folder, range(39, -1, -1))
        for shard in range(3):
            in_parquet(sharded / f"part-{shard}.parquet", image_folder, range(shard, 40, 3))
        folder = published(store, prepared({"type": "image-folder", "path": str(image_folder)}))
        assert published(store, prepared({"type": "parquet", "path": str(single)})) == folder
        assert published(store, prepared({"type": "parquet", "path": str(sharded)})) == folder
        (image_folder / "cat" / "00.png").rename(image_folder / "cat" / "zz.png")
        assert published(store, prepared({"type": "image-folder", "path": str(image_folder)})) == folder

    def test_progress_reaches_the_total(self, image_folder, ingested, tmp_path):
        source = {"type": "image-folder", "path": str(image_folder)}
        records, reports = ingested(source), []
        (tmp_path / "out").mkdir()
        data = Data.model_validate({"source": source})
        prepare(data, "image-classification", records, tmp_path / "out", lambda *state: reports.append(state))
        assert reports[-1] == (40, 40)


TEXT = {"sequence_length": 16, "tokenizer": {"vocab_size": 300}}


class TestTexts:
    def source(self, folder):
        return {"type": "text-files", "path": str(folder)}

    def test_tokens_decode_to_the_documents(self, text_folder, prepared):
        (text_folder / "odd.txt").write_text(" \ufeff\n\tünïcode 🦆 <|endoftext|> \x01 \r\n", newline="")
        records, folder = prepared(self.source(text_folder), "causal-lm", text=TEXT)
        tokenizer, about = Tokenizer.from_file(str(folder / "tokenizer.json")), facts(folder)
        for split in SPLITS:
            tokens, offsets, sizes = (np.load(folder / f"{split}.{n}.npy") for n in ("tokens", "offsets", "bytes"))
            expected = [row["content"] for row in rows(records, split)]
            assert (tokens.dtype, offsets.dtype, sizes.dtype) == (np.uint16, np.int64, np.int64)
            assert about["tokens"][split] == len(tokens) == offsets[-1]
            assert sizes.tolist() == [len(content) for content in expected]
            assert about["counts"][split] == len(expected) == len(offsets) - 1
            for start, end, content in zip(offsets, offsets[1:], expected, strict=False):
                assert tokens[end - 1] == about["eos_id"]
                assert about["eos_id"] not in tokens[start : end - 1]
                assert tokenizer.decode(tokens[start : end - 1], skip_special_tokens=False).encode() == content

    def test_documents_are_packed_where_they_are_learned_from(self, text_folder, prepared):
        _, folder = prepared(
            self.source(text_folder), "causal-lm", validation=0.2, text={**TEXT, "packing": "documents"}
        )
        _, wrapped = prepared(self.source(text_folder), "causal-lm", validation=0.2, text=TEXT)
        assert facts(folder) == {**facts(wrapped), "packing": "documents"}
        added = {f"{split}.{name}.npy" for split in ("train", "validation") for name in ("pieces", "sequences")}
        assert {path.name for path in folder.iterdir()} - {path.name for path in wrapped.iterdir()} == added
        for split in ("train", "validation"):
            pieces = np.load(folder / f"{split}.pieces.npy")
            assert pieces[:, 1].sum() == facts(folder)["tokens"][split] > 0
            assert pieces[:, 1].max() <= 16

    def test_the_tokenizer_never_saw_the_test_split(self, tmp_path, prepared):
        for split, word in (("train", "saxophone"), ("validation", "trombone"), ("test", "xylophone")):
            (tmp_path / split).mkdir()
            for number in range(5):
                (tmp_path / split / f"{number}.txt").write_text(f"the {word} {number} " * 20)
        _, folder = prepared(self.source(tmp_path), "causal-lm", text=TEXT)
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        assert tokenizer.token_to_id("Ġsaxophone") is not None
        assert tokenizer.token_to_id("Ġxylophone") is None
        assert tokenizer.token_to_id("Ġtrombone") is None

    def test_the_vocabulary_is_as_large_as_asked_or_as_the_text_gives(self, text_folder, prepared):
        for vocab_size, expected in ((270, 270), (60_000, None)):
            text = {"tokenizer": {"vocab_size": vocab_size}}
            _, folder = prepared(self.source(text_folder), "causal-lm", text=text)
            vocabulary = Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab_size()
            assert facts(folder)["vocab_size"] == vocabulary
            assert vocabulary == expected or 257 < vocabulary < vocab_size

    def test_twice_gives_identical_bytes(self, text_folder, prepared):
        (_, first), (_, second) = (prepared(self.source(text_folder), "causal-lm", text=TEXT) for _ in range(2))
        assert identical(first, second)

    def test_a_vocabulary_beyond_16_bits_gets_wider_tokens(self, text_folder, prepared, tmp_path):
        from tokenizers import decoders, models, pre_tokenizers

        words = {f"w{number}": number for number in range(70_000)}
        letters = sorted(pre_tokenizers.ByteLevel.alphabet())
        ids = {letter: 70_002 - len(letters) + number for number, letter in enumerate(letters)}
        words = {word: number for word, number in words.items() if number < 70_002 - len(letters)}
        tokenizer = Tokenizer(models.BPE({**words, **ids, "</s>": 70_002}, []))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = decoders.ByteLevel()
        (tmp_path / "pretrained").mkdir()
        tokenizer.save(str(tmp_path / "pretrained" / "tokenizer.json"))
        (tmp_path / "pretrained" / "tokenizer_config.json").write_text('{"eos_token": "</s>"}')
        text = {"tokenizer": {"pretrained": str(tmp_path / "pretrained")}}
        _, folder = prepared(self.source(text_folder), "causal-lm", text=text)
        tokens = np.load(folder / "train.tokens.npy")
        assert tokens.dtype == np.uint32
        assert tokens.max() == facts(folder)["eos_id"] == 70_002
        assert facts(folder)["vocab_size"] == 70_003


@pytest.mark.parametrize(("background", "level"), [("white", 255), ("black", 0)])
def test_transparent_images_lie_on_the_recipes_background(tmp_path, prepared, background, level):
    for label in ("cat", "dog"):
        (tmp_path / "data" / label).mkdir(parents=True)
        for number in range(20):
            colour = (number, "cd".index(label[0]), 0, 0)
            Image.new("RGBA", (4, 4), colour).save(tmp_path / "data" / label / f"{number}.png")
    shape = {"size": 4, "channels": 3, "background": background}
    _, examples = prepared({"type": "image-folder", "path": str(tmp_path / "data")}, image=shape)
    assert set(np.load(examples / "train.images.npy").ravel().tolist()) == {level}
    facts = json.loads((examples / "examples.json").read_text())["image"]
    assert facts == ({"size": 4, "channels": 3} if background == "white" else shape)


@pytest.mark.parametrize("task", ["image-classification", "causal-lm", "text-classification"])
def test_further_examples_have_the_tokenizer_or_the_moments_of_the_first(tmp_path, ingested, image_folder, task):
    """And are of the same models: their facts differ in counts alone."""
    if task == "image-classification":
        source = {"type": "image-folder", "path": str(image_folder)}
    else:
        label = {"label": ["a", "b"] * 20} if task == "text-classification" else {}
        table = {"text": [f"sentence {number} of many" for number in range(40)], **label}
        pq.write_table(pa.table(table), tmp_path / "texts.parquet")
        source = {"type": "parquet", "path": str(tmp_path / "texts.parquet")}
    shape = (
        {} if task == "image-classification" else {"text": {"tokenizer": {"vocab_size": 300}, "sequence_length": 16}}
    )
    data = Data.model_validate({"source": source, **shape})
    records, folders = ingested(source, task), (tmp_path / "first", tmp_path / "second")
    for folder, like in zip(folders, (None, folders[0]), strict=True):
        folder.mkdir()
        prepare(data, task, records, folder, lambda done, total: None, like)
    changed = json.loads((folders[0] / "examples.json").read_text())
    if "mean" in changed:
        changed["mean"] = [0.25 for _ in changed["mean"]]
        (folders[0] / "examples.json").write_text(json.dumps(changed))
        third = tmp_path / "third"
        third.mkdir()
        prepare(data, task, records, third, lambda done, total: None, folders[0])
        assert facts(third)["mean"] == changed["mean"]
        return
    assert facts(folders[1]) == facts(folders[0])
    for path in folders[0].iterdir():
        assert path.read_bytes() == (folders[1] / path.name).read_bytes(), path.name
