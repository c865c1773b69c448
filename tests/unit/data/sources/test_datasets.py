"""The source of the datasets library: folders that it builds, saved data sets, and what both refuse."""

import json
import socket
import struct
import sys
from pathlib import Path
from typing import Any

import datasets
import huggingface_hub
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.unit.data.sources.reading import section
from tests.unit.data.sources.rewriting import rewrite_unseen
from understudy.data.ingest import ingest
from understudy.data.raw import Broken, Raw
from understudy.data.sources import saved_dataset
from understudy.data.sources.datasets import DatasetsSource, digest, read
from understudy.data.sources.registry import source_identity
from understudy.errors import InputError
from understudy.recipe.data import Data
from understudy.recipe.tasks import Kind

TEXTS: dict[str, Kind] = {"text": "text", "label": "label"}
IMAGES: dict[str, Kind] = {"image": "image", "label": "label"}
WORDS: dict[str, Kind] = {"words": "text", "labels": "text"}
CHAT: dict[str, Kind] = {"messages": "messages"}
TURNS = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "a"}]
CANONICAL = b'[{"role":"user","content":"q"},{"role":"assistant","content":"a"}]'


def records(path: Path | str, fields=TEXTS, **values: Any) -> list[Raw | Broken]:
    return list(read(DatasetsSource(type="datasets", path=str(path), **values), fields).records)


def lines(path: Path, *rows: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def card(folder: Path, configs: object) -> None:
    (folder / "README.md").write_text(f"---\nconfigs: {json.dumps(configs)}\n---\n")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """JSON lines of two splits."""
    root = tmp_path / "reviews"
    lines(root / "train.jsonl", {"text": "one", "label": 0}, {"text": "two", "label": 1})
    lines(root / "test.jsonl", {"text": "three", "label": 1})
    return root


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    """A saved data set of two splits, with named labels."""
    root = tmp_path / "saved"
    features = datasets.Features(text=datasets.Value("string"), label=datasets.ClassLabel(names=["bad", "good"]))
    splits = {"train": ["one", "two"], "test": ["three"]}
    tables = {
        name: datasets.Dataset.from_dict({"text": texts, "label": [*range(len(texts))]}, features=features)
        for name, texts in splits.items()
    }
    datasets.DatasetDict(tables).save_to_disk(root)
    return root


SAVED = [
    Raw("train#0", b"one", "bad", "train"),
    Raw("train#1", b"two", "good", "train"),
    Raw("test#0", b"three", "bad", "test"),
]


class TestBuilt:
    @pytest.mark.parametrize("form", ["jsonl", "csv", "parquet", "arrow"])
    def test_files_of_each_form_are_records_with_the_splits_of_the_library(self, tmp_path, form):
        table = datasets.Dataset.from_dict({"text": ["one", "two"], "label": [0, 1]})
        (tmp_path / "d").mkdir()
        for split in ("train", "validation", "test"):
            path = tmp_path / "d" / f"{split}.{form}"
            match form:
                case "jsonl":
                    table.to_json(path)
                case "arrow":
                    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.data.schema) as writer:
                        writer.write_table(table.data.table)
                case _:
                    getattr(table, f"to_{form}")(path)
        assert records(tmp_path / "d") == [
            Raw(f"{split}#{row}", text, str(row), split)
            for split in ("train", "validation", "test")
            for row, text in enumerate((b"one", b"two"))
        ]

    def test_class_labels_have_their_names(self, tmp_path):
        features = datasets.Features(text=datasets.Value("string"), label=datasets.ClassLabel(names=["bad", "good"]))
        table = datasets.Dataset.from_dict({"text": ["a", "b", "c"], "label": [1, 0, -1]}, features=features)
        (tmp_path / "d").mkdir()
        table.to_parquet(tmp_path / "d" / "train.parquet")
        first, second, broken = records(tmp_path / "d")
        assert [first.label, second.label] == ["good", "bad"]
        assert broken == Broken("train#2", "column label is -1, and only 0 to 1 have a name")

    def test_a_folder_of_images_is_read_by_our_own_code(self, tmp_path):
        for split in ("train", "test"):
            for label in ("cat", "dog"):
                path = tmp_path / "d" / split / label / "1.png"
                path.parent.mkdir(parents=True)
                path.write_bytes(f"{split} {label}".encode())  # no image: nothing here decodes it
        assert [(raw.name, raw.content, raw.label) for raw in records(tmp_path / "d", IMAGES)] == [
            ("train#0", b"train cat", "cat"),
            ("train#1", b"train dog", "dog"),
            ("test#0", b"test cat", "cat"),
            ("test#1", b"test dog", "dog"),
        ]

    def test_lists_of_words_and_of_named_tags_are_texts(self, tmp_path):
        tags = datasets.List(datasets.ClassLabel(names=["O", "LOC"]))
        features = datasets.Features(tokens=datasets.List(datasets.Value("string")), tags=tags)
        rows = {"tokens": [["in", "Rome"], ["a b", "c"], ["x"]], "tags": [[0, 1], [0, 0], [-1]]}
        (tmp_path / "d").mkdir()
        datasets.Dataset.from_dict(rows, features=features).to_parquet(tmp_path / "d" / "train.parquet")
        assert records(tmp_path / "d", WORDS, columns={"words": "tokens", "labels": "tags"}) == [
            Raw("train#0", b"in Rome", None, "train", {"labels": b"O LOC"}),
            Broken("train#1", "column tokens: item 0 is 'a b', not a word without spaces"),
            Broken("train#2", "column tags: item 0 is -1, and only 0 to 1 have a name"),
        ]

    def test_conversations_whose_contents_differ_in_type_are_decoded(self, tmp_path):
        parts = [{"role": "user", "content": [{"type": "text", "text": "q"}]}, TURNS[1]]
        lines(tmp_path / "d" / "train.jsonl", {"messages": TURNS}, {"messages": parts})
        assert [raw.content for raw in records(tmp_path / "d", CHAT)] == [CANONICAL, CANONICAL]

    def test_other_formats_of_conversations_are_read(self, tmp_path):
        lines(tmp_path / "d" / "train.jsonl", {"prompt": "q", "completion": "a"})
        assert [raw.content for raw in records(tmp_path / "d", CHAT, format="prompt-completion")] == [CANONICAL]

    def test_more_rows_than_a_batch_are_read_in_order(self, tmp_path):
        lines(tmp_path / "d" / "train.jsonl", *({"text": str(row), "label": row} for row in range(600)))
        assert [raw.content for raw in records(tmp_path / "d")] == [str(row).encode() for row in range(600)]


class TestSaved:
    def test_each_split_is_read(self, saved):
        assert records(saved) == SAVED

    def test_a_single_data_set_is_for_training(self, saved, tmp_path):
        assert records(saved / "train") == SAVED[:2]

    def test_images_in_it_are_bytes(self, tmp_path):
        features = datasets.Features(image=datasets.Image(), label=datasets.Value("string"))
        rows = {"image": [{"bytes": b"1", "path": None}], "label": ["x"]}
        datasets.Dataset.from_dict(rows, features=features).save_to_disk(tmp_path / "d")
        assert records(tmp_path / "d", IMAGES) == [Raw("train#0", b"1", "x", "train")]

    def test_the_library_does_not_read_it(self, saved, monkeypatch):
        monkeypatch.setattr(datasets, "load_from_disk", None)
        monkeypatch.setattr(datasets, "load_dataset_builder", None)
        assert records(saved) == SAVED

    @pytest.mark.parametrize("cut", [8, 40, 400])
    def test_a_file_that_was_cut_off_is_broken_and_the_others_are_read(self, saved, cut):
        (path,) = (saved / "train").glob("*.arrow")
        path.write_bytes(path.read_bytes()[:-cut])
        found = records(saved)
        broken = [record for record in found if isinstance(record, Broken)]
        assert [record.name for record in broken] == ["train/data-00000-of-00001.arrow (split train)"]
        assert "is damaged, or its rows from train#" in broken[0].reason
        assert found[-1] == SAVED[-1]

    def test_offsets_that_lead_elsewhere_are_damage(self, tmp_path):
        path = tmp_path / "bad.arrow"
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, pa.schema([("text", pa.string())])) as writer:
            writer.write_batch(pa.record_batch([pa.array(["abc"])], names=["text"]))
        content = path.read_bytes()
        offsets = struct.pack("<2i", 0, 3)
        before, after = content.rsplit(offsets, 1)  # the last are those of the text
        path.write_bytes(before + struct.pack("<2i", 0, 10**6) + after)
        with pytest.raises(pa.ArrowInvalid):
            list(saved_dataset._tables(path))

    @pytest.mark.parametrize("name", ["../test/data-00000-of-00001.arrow", "gone.arrow"])
    def test_a_name_that_is_no_file_of_its_folder_is_refused(self, saved, name):
        state = json.loads((saved / "train" / "state.json").read_text())
        state["_data_files"] = [{"filename": name}]
        (saved / "train" / "state.json").write_text(json.dumps(state))
        with pytest.raises(InputError, match=rf"train/state\.json names {name}, which is no file beside it"):
            records(saved)

    def test_a_configuration_is_refused(self, saved):
        with pytest.raises(InputError, match=r"data\.source\.name: .* is a saved data set, without configurations"):
            records(saved, name="x")


class TestSplits:
    def test_the_recipe_names_splits(self, tmp_path):
        for split in ("train", "validation", "test"):
            lines(tmp_path / "d" / f"{split}.jsonl", {"text": split, "label": 0})
        reading = read(DatasetsSource(type="datasets", path=str(tmp_path / "d"), test="validation"), TEXTS)
        assert [(raw.name, raw.split) for raw in reading.records] == [("train#0", "train"), ("validation#0", "test")]
        assert reading.notes == ("not read, since no key of data.source names them: the splits test",)
        assert reading.split_sizes == {"train": 1, "test": 1}

    @pytest.mark.parametrize(
        ("named", "message"),
        [
            ({"test": "heldout"}, r"data\.source\.test: .* has no split heldout\. It has .*train.*: name one of them"),
            ({"test": "train", "train": "train"}, r"data\.source\.test: train is the train split, too"),
        ],
    )
    def test_a_split_that_is_missing_or_named_twice_is_refused(self, folder, named, message):
        with pytest.raises(InputError, match=message):
            records(folder, **named)

    def test_one_is_for_training(self, tmp_path):
        card(lines(tmp_path / "d" / "a.jsonl", {"text": "x", "label": 0}).parent, [
            {"config_name": "default", "data_files": [{"split": "sft", "path": "a.jsonl"}]}
        ])  # fmt: skip
        with pytest.raises(InputError, match=r"data\.source\.train: .* has no split train\. It has sft: name one"):
            records(tmp_path / "d")
        assert records(tmp_path / "d", train="sft") == [Raw("sft#0", b"x", "0", "train")]


class TestConfigurations:
    @pytest.fixture
    def two(self, tmp_path: Path) -> Path:
        for name in ("en", "de"):
            lines(tmp_path / "d" / f"{name}.jsonl", {"text": name, "label": 0})
        card(tmp_path / "d", [{"config_name": name, "data_files": f"{name}.jsonl"} for name in ("en", "de")])
        return tmp_path / "d"

    def test_one_is_chosen_by_name(self, two):
        assert [raw.content for raw in records(two, name="de")] == [b"de"]

    def test_one_of_several_has_to_be_named(self, two):
        with pytest.raises(InputError, match=r"data\.source\.name: .* has the configurations en, de: name one of them"):
            records(two)

    def test_an_unknown_one_is_refused_with_those_there(self, two):
        with pytest.raises(InputError, match=r"data\.source\.name: .* no configuration fr\. It has en, de: name one"):
            records(two, name="fr")


class TestMistakes:
    @pytest.mark.parametrize(
        ("columns", "message"),
        [
            ({"text": "body"}, r"data\.source\.columns\.text: .*train.* has no column body\. It has text, label: name"),
            ({"text": "label", "label": "text"}, r"data\.source\.columns\.text: .*column label is int64\. Name a col"),
            ({"picture": "text"}, r"data\.source\.columns\.picture: the task has no such field"),
        ],
    )
    def test_a_column_that_does_not_fit_is_named(self, folder, columns, message):
        with pytest.raises(InputError, match=message):
            records(folder, columns=columns)

    def test_a_data_set_without_rows_is_refused(self, tmp_path):
        datasets.Dataset.from_dict({"text": [], "label": []}).save_to_disk(tmp_path / "d")
        with pytest.raises(InputError, match=r"data\.source\.path: .*: its splits train have no rows"):
            records(tmp_path / "d")

    def test_a_damaged_parquet_file_among_others_is_named(self, tmp_path):
        root = tmp_path / "d"
        root.mkdir()
        table = pa.table({"text": [f"text {row}" for row in range(100)], "label": [0] * 100})
        for shard in range(2):
            path = root / f"train-0000{shard}-of-00002.parquet"
            pq.write_table(table, path, compression="zstd", use_dictionary=False)
        content = bytearray(path.read_bytes())
        content[40:80] = bytes(40)
        path.write_bytes(content)
        found = records(root)
        assert [type(record) for record in found] == [Raw] * 100 + [Broken]
        assert found[-1].name == "train-00001-of-00002.parquet (split train)"

    def test_without_the_library_the_extra_is_named(self, folder, monkeypatch):
        monkeypatch.setitem(sys.modules, "datasets", None)
        with pytest.raises(InputError, match=r"data\.source\.type: .*pip install understudy\[datasets\]"):
            records(folder)

    def test_a_hub_id_needs_a_commit(self, fingerprints):
        for revision, message in ((None, "is required"), ("main", "is main, and has to be a commit")):
            source = DatasetsSource(type="datasets", path="org/none", revision=revision)
            with pytest.raises(InputError, match=rf"data\.source\.revision: {message}"):
                digest(source, fingerprints)

    def test_a_folder_has_no_revision(self, folder):
        with pytest.raises(InputError, match=r"data\.source\.revision: .* is no hub id"):
            records(folder, revision="a" * 40)


class TestHostile:
    def test_a_loading_script_is_refused_and_not_run(self, folder):
        (folder / "reviews.py").write_text("raise SystemExit('run')")
        with pytest.raises(InputError, match=r"has a loading script, reviews\.py, and code .* is never run"):
            records(folder)

    @pytest.mark.parametrize(
        "pattern", ["https://there/x.csv", "../secret.jsonl", "/etc/*.csv", "zip://x.csv::a.zip", "hf://datasets/o/n/x"]
    )
    def test_a_card_that_names_other_files_is_refused(self, folder, tmp_path, pattern):
        lines(tmp_path / "secret.jsonl", {"text": "key", "label": 0})
        card(folder, [{"config_name": "default", "data_files": [{"split": "train", "path": [pattern]}]}])
        with pytest.raises(InputError, match=r"README\.md names .*, and only files of the folder itself are read"):
            records(folder)

    def test_a_folder_of_the_card_cannot_lead_out_either(self, folder):
        card(folder, [{"config_name": "default", "data_dir": "../other"}])
        with pytest.raises(InputError, match=r"README\.md names '\.\./other/\*\*'"):
            records(folder)

    def test_a_hidden_file_which_no_digest_covers_is_refused(self, folder):
        lines(folder / ".hidden" / "x.jsonl", {"text": "x", "label": 0})
        card(folder, [{"config_name": "default", "data_files": ".hidden/x.jsonl"}])
        with pytest.raises(InputError, match=r"x\.jsonl, which is hidden, or no file of the folder"):
            records(folder)

    def test_a_link_out_of_the_folder_is_refused(self, folder, tmp_path, fingerprints):
        (folder / "more.jsonl").symlink_to(lines(tmp_path / "secret.jsonl", {"text": "key", "label": 0}))
        with pytest.raises(InputError, match=r"more\.jsonl is a link that leads out of the folder"):
            records(folder)
        with pytest.raises(InputError, match=r"more\.jsonl is a link that leads out of the folder"):
            source_identity(section(type="datasets", path=str(folder)), fingerprints)

    def test_an_image_outside_of_the_folder_is_broken(self, tmp_path):
        (tmp_path / "key").write_bytes(b"secret")
        features = datasets.Features(image=datasets.Image(), label=datasets.Value("string"))
        image = pa.array([{"bytes": None, "path": str(tmp_path / "key")}], features.arrow_schema.field("image").type)
        rows = pa.table({"image": image, "label": ["x"]})
        (tmp_path / "d").mkdir()
        pq.write_table(rows.replace_schema_metadata(features.arrow_schema.metadata), tmp_path / "d" / "train.parquet")
        (broken,) = records(tmp_path / "d", IMAGES)
        assert "which is no file of the data set's folder" in broken.reason

    @pytest.mark.parametrize("name", ["a.h5", "a.tar", "a.xml"])
    def test_formats_that_run_more_than_readers_of_tables_are_refused(self, tmp_path, name):
        (tmp_path / "d").mkdir()
        (tmp_path / "d" / name).write_bytes(b"x")
        with pytest.raises(InputError, match=r"data\.source\.path: .*have the format \w+, which is not read"):
            records(tmp_path / "d")

    def test_no_network_is_used_for_a_folder(self, folder, saved, monkeypatch):
        def refuse(*_: object) -> None:
            raise AssertionError("the network")

        for name in ("connect", "connect_ex", "sendto"):
            monkeypatch.setattr(socket.socket, name, refuse)
        monkeypatch.setattr(socket, "getaddrinfo", refuse)
        assert len(records(folder)) == 3
        assert records(saved) == SAVED


class TestIdentity:
    def test_a_change_that_keeps_size_and_time_gives_another_digest_and_other_records(self, folder, fingerprints):
        source = section(type="datasets", path=str(folder))
        before, first = source_identity(source, fingerprints), records(folder)
        assert (source_identity(source, fingerprints), records(folder)) == (before, first)
        path = folder / "train.jsonl"
        rewrite_unseen(path, path.read_bytes().replace(b"one", b"ONE"))
        assert source_identity(source, fingerprints) != before
        assert [raw.content for raw in records(folder)] == [b"ONE", b"two", b"three"]

    def test_a_saved_data_set_too(self, saved, fingerprints):
        source = section(type="datasets", path=str(saved))
        before = source_identity(source, fingerprints)
        (path,) = (saved / "train").glob("*.arrow")
        rewrite_unseen(path, path.read_bytes().replace(b"onetwo", b"ONEtwo"))
        assert source_identity(source, fingerprints) != before
        assert [raw.content for raw in records(saved)] == [b"ONE", b"two", b"three"]

    def test_the_library_writes_no_cache(self, folder, tmp_path, monkeypatch):
        monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
        records(folder)
        assert not (tmp_path / "cache").exists()

    def test_a_hub_id_is_its_commit(self, fingerprints):
        one, two = (digest(DatasetsSource(type="datasets", path="o/n", revision=c * 40), fingerprints) for c in "ab")
        assert one != two
        assert one == digest(DatasetsSource(type="datasets", path="mirror/n", revision="a" * 40), fingerprints)


class TestHub:
    """huggingface_hub is stood in for: a folder is what the hub has."""

    @pytest.fixture
    def hub(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        root = tmp_path / "hub"
        for name in ("en", "de", "fr"):
            lines(root / name / "train.jsonl", {"text": name, "label": 0})
        card(root, [{"config_name": name, "data_files": f"{name}/*"} for name in ("en", "de", "fr")])

        def download(path: str, *, repo_type: str, revision: str, allow_patterns: list[str]) -> str:
            """Files are links to blobs, as in the hub's cache."""
            assert (path, repo_type, revision) == ("org/words", "dataset", "a" * 40)
            for name in allow_patterns:
                link = tmp_path / "cache" / revision / name
                link.parent.mkdir(parents=True, exist_ok=True)
                if (root / name).exists() and not link.exists():
                    link.symlink_to(root / name)
            return str(tmp_path / "cache" / revision)

        def names(_api: object, path: str, *, repo_type: str, revision: str) -> list[str]:
            return [".gitattributes", *(str(path.relative_to(root)) for path in root.glob("**/*") if path.is_file())]

        monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
        monkeypatch.setattr(huggingface_hub.HfApi, "list_repo_files", names)
        return tmp_path

    def test_the_files_of_one_configuration_are_downloaded_and_read(self, hub):
        assert [raw.content for raw in records("org/words", revision="a" * 40, name="de")] == [b"de"]
        present = {path.parent.name for path in (hub / "cache").glob("**/*.jsonl")}
        assert present == {"en", "de"}  # the library looks at the first one for the format

    def test_an_incomplete_copy_in_the_cache_is_not_read(self, hub, monkeypatch):
        monkeypatch.setattr(
            huggingface_hub.HfApi, "list_repo_files", lambda *_, **__: ["README.md", "en/train.jsonl", "en/more.jsonl"]
        )
        with pytest.raises(InputError, match=r"org/words: .* the hub cannot be reached and its files are not in"):
            records("org/words", revision="a" * 40, name="en")

    def test_an_unreachable_hub_is_an_error_of_the_path(self, hub, monkeypatch):
        def refuse(*_: object, **__: object) -> list[str]:
            raise ConnectionError("no route")

        monkeypatch.setattr(huggingface_hub.HfApi, "list_repo_files", refuse)
        with pytest.raises(InputError, match=r"data\.source\.path: org/words: .* the hub cannot be reached"):
            records("org/words", revision="a" * 40)


def test_ingest_reads_it(tmp_path, picture):
    for split, number in (("train", 6), ("test", 2)):
        for label in ("cat", "dog"):
            for image in range(number):
                path = tmp_path / "d" / split / label / f"{image}.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(picture(image * 100 + len(split) * 10 + (label == "cat")))
    (tmp_path / "records").mkdir()
    data = Data.model_validate({"source": {"type": "datasets", "path": str(tmp_path / "d")}})
    ingest(data, "image-classification", tmp_path / "records", lambda done, total: None)
    facts = json.loads((tmp_path / "records" / "records.json").read_text())
    assert facts["counts"] == {"train": 12, "validation": 0, "test": 4}
    assert facts["labels"] == ["cat", "dog"]
