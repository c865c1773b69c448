import hashlib
import json
import unicodedata

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from understudy.data.documents import check_document
from understudy.data.ingest import ingest, ingest_beside
from understudy.data.raw import Raw
from understudy.errors import InputError
from understudy.recipe.data import Data, DataSet
from understudy.recipe.tasks import load


def rows(folder):
    return pq.read_table(folder / "records.parquet").to_pylist()


def facts(folder):
    return json.loads((folder / "records.json").read_text())


class TestImages:
    def test_a_record_is_its_content_with_its_digest_label_and_split(self, image_folder, ingested):
        folder = ingested({"type": "image-folder", "path": str(image_folder)})
        records = rows(folder)
        assert sorted((row["label"], row["content"]) for row in records) == sorted(
            (path.parent.name, path.read_bytes()) for path in image_folder.rglob("*.png")
        )
        assert [row["id"] for row in records] == sorted(row["id"] for row in records)
        assert all(row["id"] == hashlib.sha256(row["content"]).hexdigest() for row in records)
        about = facts(folder)
        assert about["labels"] == ["cat", "dog"]
        assert about["counts"] == {
            s: sum(row["split"] == s for row in records) for s in ("train", "validation", "test")
        }
        assert (about["task"], about["skipped"], about["moved"]) == ("image-classification", [], 0)
        assert sorted(path.name for path in folder.iterdir()) == ["records.json", "records.parquet"]

    def test_twice_gives_identical_bytes(self, image_folder, ingested):
        first, second = (ingested({"type": "image-folder", "path": str(image_folder)}) for _ in range(2))
        for name in ("records.json", "records.parquet"):
            assert (first / name).read_bytes() == (second / name).read_bytes()

    def test_numbers_as_labels_are_sorted_by_value(self, image_folder, ingested):
        (image_folder / "cat").rename(image_folder / "10")
        (image_folder / "dog").rename(image_folder / "9")
        assert facts(ingested({"type": "image-folder", "path": str(image_folder)}))["labels"] == ["9", "10"]

    def test_a_corrupt_image_is_named(self, image_folder, ingested):
        path = image_folder / "cat" / "04.png"
        path.write_bytes(path.read_bytes()[:60])
        with pytest.raises(InputError, match=r"data\.source\.path: .*images: cat/04\.png cannot be decoded.*on_error"):
            ingested({"type": "image-folder", "path": str(image_folder)})

    @pytest.mark.parametrize(
        ("count", "words"),
        [
            (3, r"3 records are damaged: cat/00"),
            (10, r"10 records are damaged: cat/00"),
            (11, r"the first 10 damaged records: cat/00"),
        ],
    )
    def test_one_error_names_all_corrupt_images_up_to_ten(self, image_folder, ingested, count, words):
        for path in sorted((image_folder / "cat").iterdir())[:count]:
            path.write_bytes(b"no image")
        with pytest.raises(InputError, match=words) as refused:
            ingested({"type": "image-folder", "path": str(image_folder)})
        assert str(refused.value).count("cannot be decoded") == min(count, 10)
        assert "Repair or remove them" in str(refused.value)

    def test_an_error_of_the_source_does_not_hide_damaged_records(self, tmp_path, ingested):
        rows = {"image": [b"broken"] * 2, "label": ["cat"] * 2, "split": ["train", "tset"]}
        pq.write_table(pa.table(rows), tmp_path / "a.parquet")
        with pytest.raises(InputError, match=r"a\.parquet#0 cannot be decoded"):
            ingested({"type": "parquet", "path": str(tmp_path), "split": "split"})

    def test_corrupt_images_are_skipped_and_counted_when_asked(self, image_folder, ingested):
        for name in ("dog/05.png", "cat/04.png"):
            (image_folder / name).write_bytes(b"no image")
        folder = ingested({"type": "image-folder", "path": str(image_folder)}, on_error="skip")
        about = facts(folder)
        assert [skipped["name"] for skipped in about["skipped"]] == ["cat/04.png", "dog/05.png"]
        assert all("cannot be decoded" in skipped["reason"] for skipped in about["skipped"])
        assert sum(about["counts"].values()) == len(rows(folder)) == 38

    def test_a_corrupt_parquet_file_is_named_or_skipped(self, tmp_path, ingested):
        (tmp_path / "bad.parquet").write_bytes(b"PAR1 nothing PAR1")
        source = {"type": "parquet", "path": str(tmp_path)}
        with pytest.raises(InputError, match=r"bad\.parquet is damaged or no Parquet file.*on_error: skip"):
            ingested(source)
        with pytest.raises(InputError, match=r"no record is left for train: 0 were read, 1 skipped"):
            ingested(source, on_error="skip")

    def test_labels_that_training_never_saw_are_named(self, tmp_path, picture, ingested):
        for seed, name in enumerate(("train/a/1", "train/b/2", "test/a/3", "test/zebra/4", "test/yak/5")):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / f"{name}.png").write_bytes(picture(seed))
        words = r"the test split has labels that the training split lacks: yak, zebra\. Remove"
        with pytest.raises(InputError, match=words):
            ingested({"type": "image-folder", "path": str(tmp_path)}, validation=0)

    def test_labels_that_are_another_columns_are_refused_with_the_column(self, tmp_path, ingested):
        (tmp_path / "a.csv").write_text("text,id\n" + "".join(f"message {n},{n}\n" for n in range(30)))
        source = {"type": "csv", "path": str(tmp_path / "a.csv"), "columns": {"label": "id"}}
        with pytest.raises(InputError, match=r"a\.csv: 30 labels for 30 records: is id the column of labels\?"):
            ingested(source, "text-classification")

    def test_a_source_without_records_is_refused(self, tmp_path, ingested):
        (tmp_path / "a.csv").write_text("text,label\n")
        with pytest.raises(InputError, match=r"^data\.source\.path: .*a\.csv: has no records\. Give"):
            ingested({"type": "csv", "path": str(tmp_path / "a.csv")}, "text-classification")

    def test_a_single_label_that_is_left_is_refused(self, image_folder, ingested):
        for path in (image_folder / "dog").iterdir():
            path.write_bytes(b"")
        with pytest.raises(InputError, match="all images have the label cat"):
            ingested({"type": "image-folder", "path": str(image_folder)}, on_error="skip")

    @pytest.mark.parametrize(("shares", "split"), [({"test": 0}, "test"), ({"test": 0.6, "validation": 0.6}, "train")])
    def test_an_empty_split_is_refused(self, image_folder, ingested, shares, split):
        with pytest.raises(InputError, match=f"no record is left for {split}: 40 were read.*data.test"):
            ingested({"type": "image-folder", "path": str(image_folder)}, **shares)

    def test_duplicates_across_the_sources_splits_end_in_test(self, tmp_path, picture, ingested):
        for seed, name in enumerate(("train/a/1", "train/b/2", "train/a/3", "test/a/4", "test/b/5")):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / f"{name}.png").write_bytes(picture(4 if name == "train/a/3" else seed))
        folder = ingested({"type": "image-folder", "path": str(tmp_path)}, validation=0)
        assert sorted((row["split"], row["content"]) for row in rows(folder)) == sorted(
            (split, picture(seed))
            for seed, split in ((0, "train"), (1, "train"), (4, "test"), (3, "test"), (4, "test"))
        )
        assert facts(folder)["moved"] == 1

    def test_progress_reaches_the_total(self, image_folder, tmp_path):
        reports = []
        data = Data.model_validate({"source": {"type": "image-folder", "path": str(image_folder)}})
        (tmp_path / "out").mkdir()
        ingest(data, "image-classification", tmp_path / "out", lambda done, total: reports.append((done, total)))
        assert reports == [(n, 40) for n in range(1, 41)]

    def test_labels_that_look_the_same_are_one(self, image_folder, ingested):
        for number, form in enumerate(("NFC", "NFD")):
            (image_folder / ("cat", "dog")[number]).rename(image_folder / unicodedata.normalize(form, "café"))
        with pytest.raises(InputError, match="all images lie in"):
            ingested({"type": "image-folder", "path": str(image_folder)})
        (image_folder / "dog").mkdir()
        (image_folder / "dog" / "1.png").write_bytes(next(image_folder.rglob("*.png")).read_bytes() + b" ")
        about = facts(ingested({"type": "image-folder", "path": str(image_folder)}))
        assert (about["labels"], about["notes"][1:]) == (["café", "dog"], [])

    @pytest.mark.parametrize("count", [3, 4])
    def test_every_label_of_few_images_can_be_ingested(self, tmp_path, ingested, count):
        """At the default share, chance leaves one of 100 labels of three images out of training in 55 % of folders."""
        for number in range(100 * count):
            path = tmp_path / "data" / f"label {number % 100}" / f"{number}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.new("RGB", (2, 2), (number % 256, number // 256, count)).save(path)
        folder = ingested({"type": "image-folder", "path": str(tmp_path / "data")}, test=0.5, validation=0.4)
        assert {row["label"] for row in rows(folder) if row["split"] == "train"} == set(facts(folder)["labels"])
        (note,) = facts(folder)["notes"]
        assert note.startswith(
            "one image of each of these labels was put into training, which had none of them: label "
        )

    def test_transparent_images_are_counted(self, image_folder, ingested):
        for number in range(3):
            Image.new("RGBA", (4, 4), (number, 0, 0, 255 if number == 2 else 9)).save(
                image_folder / "cat" / f"t{number}.png"
            )
        (note,) = facts(ingested({"type": "image-folder", "path": str(image_folder)}))["notes"]
        assert note.startswith("2 images are transparent in part; data.image.background says what lies behind")


def copies(text):
    """One document as editors and systems save it."""
    return [mark + text.replace("\n", end).encode() for mark in (b"", b"\xef\xbb\xbf") for end in ("\n", "\r\n", "\r")]


class TestTexts:
    def test_copies_are_counted_by_split_and_noted(self, tmp_path, ingested):
        for number in range(120):
            (tmp_path / f"{number}.txt").write_text(f"text {number % 40}\n")
        folder = ingested({"type": "text-files", "path": str(tmp_path)}, "causal-lm", test=0.4, validation=0)
        about, records = facts(folder), rows(folder)
        contents = {split: {row["content"] for row in records if row["split"] == split} for split in about["counts"]}
        assert about["distinct"] == {split: len(texts) for split, texts in contents.items()}
        assert about["counts"] == {split: 3 * len(texts) for split, texts in contents.items()}
        tested = len(contents["test"])
        note = f"of {3 * tested} documents of the test split {tested} differ; {2 * tested} are copies of others"
        assert note in about["notes"]
        assert len(about["notes"]) == 2  # validation has none

    def test_documents_that_differ_only_in_line_ends_are_copies(self, tmp_path, ingested):
        texts = [content for number in range(40) for content in copies(f"one {number}\ntwo\n")]
        for number, content in enumerate(texts):
            (tmp_path / f"{number}.txt").write_bytes(content)
        about = facts(ingested({"type": "text-files", "path": str(tmp_path)}, "causal-lm", test=0.4, validation=0))
        assert 6 * sum(about["distinct"].values()) == sum(about["counts"].values()) == len(texts)

    def test_data_without_copies_have_no_count_of_them(self, text_folder, ingested):
        about = facts(ingested({"type": "text-files", "path": str(text_folder)}, "causal-lm"))
        assert ("distinct" in about, about["notes"]) == (False, [])

    def test_copies_that_differ_in_line_ends_and_mark_lie_on_one_side(self, tmp_path, ingested):
        texts = {content: number for number in range(40) for content in copies(f"one {number}\ntwo\n\nthree\n")}
        for number, content in enumerate(texts):
            (tmp_path / f"{number}.txt").write_bytes(content)
        records = rows(ingested({"type": "text-files", "path": str(tmp_path)}, "causal-lm", test=0.4, validation=0.2))
        assert len({(texts[row["content"]], row["split"]) for row in records}) == 40
        assert {row["id"] for row in records} == {hashlib.sha256(content).hexdigest() for content in texts}

    @pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
    def test_text_in_wider_units_is_refused(self, text_folder, ingested, encoding):
        (text_folder / "03.txt").write_bytes("plain letters\n".encode(encoding))
        with pytest.raises(InputError, match=r"03\.txt is not UTF-8 text \(byte \d"):
            ingested({"type": "text-files", "path": str(text_folder)}, "causal-lm")

    def test_documents_have_no_labels(self, text_folder, ingested):
        folder = ingested({"type": "text-files", "path": str(text_folder)}, "causal-lm")
        assert facts(folder)["labels"] is None
        assert {row["label"] for row in rows(folder)} == {None}
        assert {row["content"] for row in rows(folder)} == {path.read_bytes() for path in text_folder.iterdir()}

    def test_text_that_is_not_utf_8_is_named_or_skipped(self, text_folder, ingested):
        (text_folder / "03.txt").write_bytes("naïve".encode("latin-1"))
        source = {"type": "text-files", "path": str(text_folder)}
        with pytest.raises(InputError, match=r"03\.txt is not UTF-8 text \(byte 2\).*on_error: skip"):
            ingested(source, "causal-lm")
        folder = ingested(source, "causal-lm", on_error="skip")
        assert facts(folder)["skipped"] == [{"name": "03.txt", "reason": "is not UTF-8 text (byte 2)"}]

    def test_an_empty_document_is_left_out_and_counted(self, text_folder, ingested):
        (text_folder / "03.txt").write_bytes(b"")
        folder = ingested({"type": "text-files", "path": str(text_folder)}, "causal-lm")
        assert facts(folder)["skipped"] == [{"name": "03.txt", "reason": "is empty"}]
        assert len(rows(folder)) == 29


def test_digits_keep_their_split(ingested):
    """A change here moves records between splits: all that was measured on them before is void."""
    about = facts(ingested({"type": "digits"}))
    assert about["counts"] == {"train": 1422, "validation": 0, "test": 375}
    assert about["labels"] == [str(digit) for digit in range(10)]


class TestFields:
    TASK = "image-classification"
    """Its name; its check and fields are replaced."""

    @pytest.fixture
    def pairs(self, monkeypatch, tmp_path, ingested):
        """Ingest rows of two texts and a label."""
        module = load(self.TASK)
        monkeypatch.setattr(module, "FIELDS", {"text": "text", "second": "optional text", "label": "label"})
        monkeypatch.setattr(module, "check", check_document)

        def run(**columns):
            pq.write_table(pa.table({"text": ["a"] * 40, "label": [0, 1] * 20, **columns}), tmp_path / "a.parquet")
            return ingested({"type": "parquet", "path": str(tmp_path), "columns": {"second": "second"}}, self.TASK)

        return run

    def test_a_record_has_all_fields_and_its_digest_is_of_all(self, pairs):
        records = rows(pairs(second=[f"text {number}" for number in range(40)]))
        assert sorted(row["second"] for row in records) == sorted(f"text {number}".encode() for number in range(40))
        assert {row["content"] for row in records} == {b"a"}
        assert len({row["id"] for row in records}) == 40

    def test_records_are_split_alike_only_if_all_fields_are_alike(self):
        lf, crlf, different = (
            check_document(Raw("1", b"a", others={"second": text})) for text in (b"x\n", b"x\r\n", b"y")
        )
        assert lf.key == crlf.key != different.key

    def test_a_damaged_field_is_named_by_its_record(self):
        assert check_document(Raw("1", b"a", others={"second": b"a\0"})).reason.startswith("is not UTF-8 text (byte 1")


class TestFurtherData:
    """Records of a data set beside `data`: all are trained on, but for those that `data` sets aside."""

    def beside(self, folder, records, source, **more):
        target = folder / "beside"
        target.mkdir()
        data_set = DataSet.model_validate({"source": source, **more})
        ingest_beside(data_set, "data_sets.more", "image-classification", records, target, lambda done, total: None)
        return target

    def test_what_data_sets_aside_is_left_out_and_counted(self, tmp_path, image_folder, ingested):
        source = {"type": "image-folder", "path": str(image_folder)}
        records = ingested(source, test=0.3, validation=0.2)
        further = self.beside(tmp_path, records, source)
        trained = {row["id"] for row in rows(records) if row["split"] == "train"}
        assert {row["id"] for row in rows(further)} == trained
        assert {row["split"] for row in rows(further)} == {"train"}
        held_out = len(rows(records)) - len(trained)
        assert facts(further)["counts"] == {"train": len(trained), "validation": 0, "test": 0}
        assert any(note.startswith(f"{held_out} images are left out") for note in facts(further)["notes"])
        assert facts(further)["labels"] == facts(records)["labels"]

    def test_its_own_test_split_is_left_out(self, tmp_path, image_folder, ingested):
        records = ingested({"type": "image-folder", "path": str(image_folder)})
        for split, shade in (("train", 1), ("test", 2)):
            for label in ("cat", "dog"):
                target = tmp_path / "own" / split / label
                target.mkdir(parents=True)
                Image.new("RGB", (8, 8), (shade, shade, len(label) + ord(label[0]))).save(target / "a.png")
        further = self.beside(tmp_path, records, {"type": "image-folder", "path": str(tmp_path / "own")})
        assert facts(further)["counts"] == {"train": 2, "validation": 0, "test": 0}

    def test_a_label_that_data_has_not_is_named(self, tmp_path, image_folder, ingested):
        records = ingested({"type": "image-folder", "path": str(image_folder)})
        for label in ("cat", "owl"):
            target = tmp_path / "own" / label
            target.mkdir(parents=True)
            Image.new("RGB", (8, 8), (1, 2, ord(label[0]))).save(target / "a.png")
        with pytest.raises(InputError, match=r"^data_sets\.more\.source\.path: .*own: has labels .*: owl"):
            self.beside(tmp_path, records, {"type": "image-folder", "path": str(tmp_path / "own")})

    def test_a_damaged_record_is_named_with_its_section(self, tmp_path, image_folder, ingested):
        source = {"type": "image-folder", "path": str(image_folder)}
        records = ingested(source)
        path = image_folder / "cat" / "04.png"
        path.write_bytes(path.read_bytes()[:60])
        words = r"^data_sets\.more\.source\.path: .*cat/04\.png cannot be decoded.*set data_sets\.more\.on_error: skip"
        with pytest.raises(InputError, match=words):
            self.beside(tmp_path, records, source)

    def test_an_error_of_its_source_has_its_place(self, tmp_path, image_folder, ingested):
        records = ingested({"type": "image-folder", "path": str(image_folder)})
        with pytest.raises(InputError, match=r"^data_sets\.more\.source\.path: .*nowhere"):
            self.beside(tmp_path, records, {"type": "image-folder", "path": str(tmp_path / "nowhere")})

    def test_nothing_left_is_an_error(self, tmp_path, image_folder, ingested):
        source = {"type": "image-folder", "path": str(image_folder)}
        records = ingested(source, test=0.3)
        training_ids = {row["id"] for row in rows(records) if row["split"] == "train"}
        for file in image_folder.rglob("*.png"):
            if hashlib.sha256(file.read_bytes()).hexdigest() in training_ids:
                file.unlink()
        with pytest.raises(InputError, match="no record is left"):
            self.beside(tmp_path, records, source)
