import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.unit.data.sources.reading import IMAGES
from understudy.data.raw import Broken, Raw
from understudy.data.sources.parquet import ParquetSource, read
from understudy.errors import InputError


def records(path, **columns):
    return list(read(ParquetSource(type="parquet", path=str(path), **columns), IMAGES).records)


def write(path, **columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), path)
    return path


def test_binary_images_with_string_labels(tmp_path):
    path = write(tmp_path / "a.parquet", picture=[b"1", b"2"], kind=["x", "y"])
    assert records(path, image="picture", label="kind") == [
        Raw("a.parquet#0", b"1", "x"),
        Raw("a.parquet#1", b"2", "y"),
    ]


def test_images_of_the_datasets_library_with_numbers_as_labels(tmp_path):
    path = write(tmp_path / "a.parquet", image=[{"bytes": b"1", "path": "1.png"}], label=[3])
    assert records(path) == [Raw("a.parquet#0", b"1", "3")]


def test_labels_have_the_names_that_the_datasets_library_gave_them():
    """The file was written by datasets 5.2.0: Dataset.to_parquet with ClassLabel(names=["dog", "cat", "bird"])."""
    rows = records(Path(__file__).with_name("written_by_datasets.parquet"))
    assert [raw.label for raw in rows] == ["cat", "dog", "bird", "dog"]
    assert all(raw.content.startswith(b"\x89PNG") for raw in rows)


def named(path, labels, feature):
    about = json.dumps({"info": {"features": {"label": feature}}})
    pq.write_table(pa.table({"image": [b"1"] * len(labels), "label": labels}, metadata={"huggingface": about}), path)
    return path


def test_a_number_without_a_name_is_broken(tmp_path):
    path = named(tmp_path / "a.parquet", [0, -1, 2], {"_type": "ClassLabel", "names": ["x", "y"]})
    first, *remaining = records(path)
    assert first == Raw("a.parquet#0", b"1", "x")
    assert remaining == [
        Broken("a.parquet#1", "column label is -1, and only 0 to 1 have a name"),
        Broken("a.parquet#2", "column label is 2, and only 0 to 1 have a name"),
    ]


@pytest.mark.parametrize("feature", [{"_type": "Value", "dtype": "int64"}, None, []])
def test_a_column_of_another_type_has_no_names(tmp_path, feature):
    assert [raw.label for raw in records(named(tmp_path / "a.parquet", [3], feature))] == ["3"]


@pytest.mark.parametrize(("with_names", "without"), [("a", "b"), ("b", "a")])
def test_numbers_with_and_without_names_are_not_mixed(tmp_path, with_names, without):
    named(tmp_path / f"{with_names}.parquet", [0, 1], {"_type": "ClassLabel", "names": ["x", "y"]})
    write(tmp_path / "c.parquet", image=[b"1"], label=["x"])
    plain = write(tmp_path / f"{without}.parquet", image=[b"1"], label=[1])
    fault = rf"data\.source\.label: {without}\.parquet does not name its labels as {with_names}\.parquet does"
    with pytest.raises(InputError, match=fault):
        records(tmp_path)
    plain.unlink()
    assert {raw.label for raw in records(tmp_path)} == {"x", "y"}


def test_names_that_cannot_be_read_are_no_damage_of_the_images(tmp_path):
    broken = {"huggingface": "{not json"}
    pq.write_table(pa.table({"image": [b"1"], "label": ["x"]}, metadata=broken), tmp_path / "a.parquet")
    assert [raw.label for raw in records(tmp_path)] == ["x"]
    pq.write_table(pa.table({"image": [b"1"], "label": [1]}, metadata=broken), tmp_path / "b.parquet")
    with pytest.raises(InputError, match=r"data\.source\.label: b\.parquet: .* is not JSON, and may name the numbers"):
        records(tmp_path)


def test_dictionaries_and_large_columns_are_read_too(tmp_path):
    images = pa.array([b"1"], pa.large_binary())
    path = write(tmp_path / "a.parquet", image=images, label=pa.array(["x"]).dictionary_encode())
    assert records(path) == [Raw("a.parquet#0", b"1", "x")]


def test_a_split_column_is_respected(tmp_path):
    names = ["train", "val", "validation", "test"]
    path = write(tmp_path / "a.parquet", image=[b"1"] * 4, label=[1] * 4, part=names)
    assert [raw.split for raw in records(path, split="part")] == ["train", "validation", "validation", "test"]
    assert {raw.split for raw in records(path)} == {None}


def test_a_split_that_is_none_is_named(tmp_path):
    path = write(tmp_path / "a.parquet", image=[b"1"] * 2, label=[1] * 2, part=["train", "extra"])
    with pytest.raises(InputError, match=r"data\.source\.split: a\.parquet#1: column part says 'extra'\. It may say"):
        records(path, split="part")


def test_files_named_as_on_the_hub_are_splits(tmp_path):
    for name in ("data/train-00000-of-00002.parquet", "data/test-00000-of-00001.parquet", "validation/x.parquet"):
        write(tmp_path / name, image=[b"1"], label=[1])
    assert {raw.name: raw.split for raw in records(tmp_path)} == {
        "data/train-00000-of-00002.parquet#0": "train",
        "data/test-00000-of-00001.parquet#0": "test",
        "validation/x.parquet#0": "validation",
    }


def test_rows_without_an_image_or_label_are_broken(tmp_path):
    path = write(tmp_path / "a.parquet", image=[None, b"1"], label=["x", None])
    assert records(path) == [
        Broken("a.parquet#0", "column image holds no bytes"),
        Broken("a.parquet#1", "column label is null"),
    ]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"image": "img"}, r"data\.source\.image: a\.parquet has no column img\. It has image, label, score"),
        ({"label": "score"}, r"data\.source\.label: a\.parquet: column score is double\. Name a column of strings"),
        ({"image": "score"}, r"data\.source\.image: a\.parquet: column score is double\. Name a column of binary"),
        ({"split": "label"}, r"data\.source\.split: a\.parquet: column label is int64\. Name a column of strings"),
    ],
)
def test_a_column_that_does_not_fit_is_named(tmp_path, columns, message):
    path = write(tmp_path / "a.parquet", image=[b"1"], label=[1], score=[0.5])
    with pytest.raises(InputError, match=message):
        records(path, **columns)


def test_a_file_that_is_not_parquet_is_broken_and_the_others_are_read(tmp_path):
    (tmp_path / "a.parquet").write_bytes(b"not this")
    write(tmp_path / "b.parquet", image=[b"1"], label=[1])
    broken, raw = records(tmp_path)
    assert broken.name == "a.parquet"
    assert "is damaged or no Parquet file" in broken.reason
    assert raw.name == "b.parquet#0"


def test_damage_in_the_middle_is_found(tmp_path):
    path = tmp_path / "a.parquet"
    table = pa.table({"image": [bytes([n]) * 50 for n in range(100)], "label": [1] * 100})
    pq.write_table(table, path, write_page_checksum=True, compression="none", use_dictionary=False)
    content = bytearray(path.read_bytes())
    content[2000] ^= 1
    path.write_bytes(content)
    broken = records(path)[-1]
    assert broken.name == "a.parquet"
    assert "is damaged" in broken.reason


def test_a_single_file_may_be_a_link_that_the_recipe_names(tmp_path):
    write(tmp_path / "a.parquet", image=[b"1"], label=[1])
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "b.parquet").symlink_to(tmp_path / "a.parquet")
    assert records(tmp_path / "elsewhere" / "b.parquet") == [Raw("b.parquet#0", b"1", "1")]
    with pytest.raises(InputError, match=r"b\.parquet is a link that leads out of the folder"):
        records(tmp_path / "elsewhere")


@pytest.mark.parametrize("column", ["image", "label", "part"])
def test_a_column_that_is_there_twice_is_named(tmp_path, column):
    names = ["image", "label", "part", "other", column]
    columns = {"image": [b"1"], "label": ["x"], "part": ["train"], "other": [1]}
    pq.write_table(pa.table([pa.array(columns[name]) for name in names], names=names), tmp_path / "a.parquet")
    fault = rf"a\.parquet has 2 columns called {column}, as a join leaves them\. Write it again with one"
    with pytest.raises(InputError, match=fault):
        records(tmp_path, split="part")


def test_other_columns_may_have_one_name(tmp_path):
    columns = [pa.array([b"1"]), pa.array(["x"]), pa.array([1]), pa.array([2])]
    pq.write_table(pa.table(columns, names=["image", "label", "other", "other"]), tmp_path / "a.parquet")
    assert records(tmp_path) == [Raw("a.parquet#0", b"1", "x")]


def test_a_struct_with_two_fields_of_one_name_holds_no_images(tmp_path):
    images = pa.StructArray.from_arrays([pa.array([b"1"]), pa.array([b"2"])], names=["bytes", "bytes"])
    pq.write_table(pa.table([images, pa.array(["x"])], names=["image", "label"]), tmp_path / "a.parquet")
    with pytest.raises(InputError, match=r"data\.source\.image: a\.parquet: column image is struct"):
        records(tmp_path)


PAIRS = {"text": "text", "second": "optional text", "label": "label"}


def pairs(path, columns=(), fields=PAIRS):
    return list(read(ParquetSource(type="parquet", path=str(path), columns=dict(columns)), fields).records)


def test_texts_are_records_with_the_fields_of_the_task(tmp_path):
    path = write(tmp_path / "a.parquet", premise=["caf\u00e9", "x"], hypothesis=["y", "z"], label=[0, 1])
    columns = {"text": "premise", "second": "hypothesis"}
    assert pairs(path, columns) == [
        Raw("a.parquet#0", "caf\u00e9".encode(), "0", None, {"second": b"y"}),
        Raw("a.parquet#1", b"x", "1", None, {"second": b"z"}),
    ]
    assert [raw.others for raw in pairs(path, {"text": "premise"})] == [{}, {}]


def test_documents_are_records_without_a_label(tmp_path):
    path = write(tmp_path / "a.parquet", text=["one", None], label=["x", "x"])
    assert pairs(path, fields={"text": "text"}) == [
        Raw("a.parquet#0", b"one"),
        Broken("a.parquet#1", "column text holds no text"),
    ]


@pytest.mark.parametrize(
    ("columns", "fault"),
    [
        ({"picture": "text"}, r"data\.source\.columns\.picture: the task has no such field\. Its fields are text, "),
        (
            {"second": "number"},
            r"data\.source\.columns\.second: a\.parquet: column number is int64\. Name a column of s",
        ),
        ({"second": "b"}, r"data\.source\.columns\.second: a\.parquet has no column b"),
    ],
)
def test_a_column_that_does_not_fit_a_field_is_named(tmp_path, columns, fault):
    path = write(tmp_path / "a.parquet", text=["one"], label=[1], number=[1])
    with pytest.raises(InputError, match=fault):
        pairs(path, columns)
