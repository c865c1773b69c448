"""CSV files, compared with what pyarrow reads in the same bytes."""

import csv
import io
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.data.ingest import ingest
from understudy.data.raw import Broken, Raw
from understudy.data.sources.csv import CsvSource, read
from understudy.errors import InputError
from understudy.recipe.data import Data
from understudy.recipe.sources import serving
from understudy.recipe.tasks import Kind
from understudy.store.files import read_json

TEXTS: dict[str, Kind] = {"text": "text", "second": "optional text", "label": "label"}


def records(path: Path, fields: Mapping[str, Kind] = TEXTS, **values: Any) -> list[Raw | Broken]:
    return list(read(CsvSource(type="csv", path=str(path), **values), fields).records)


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_it_serves_tasks_of_texts() -> None:
    assert "csv" in serving("causal-lm")
    assert "csv" in serving("text-classification")
    assert "csv" not in serving("image-classification")


def test_a_record_is_named_by_its_first_line(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'label,text\r\nx,one\r\ny,"two\r\nlines, and ""words"""\r\n\r\nx,caf\u00e9\r\n')
    assert records(path) == [
        Raw("a.csv:2", b"one", "x"),
        Raw("a.csv:3", b'two\r\nlines, and "words"', "y"),
        Raw("a.csv:6", "caf\u00e9".encode(), "x"),
    ]


def by_pyarrow(path: Path) -> pa.Table:
    texts = pa.csv.ConvertOptions(column_types={"text": pa.string(), "label": pa.string()}, strings_can_be_null=False)
    return pa.csv.read_csv(path, None, pa.csv.ParseOptions(newlines_in_values=True), texts)


VALUES = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0"))


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(VALUES, VALUES.filter(bool)), min_size=1), st.sampled_from(["\n", "\r\n"]))
def test_what_is_read_is_what_was_written_and_what_pyarrow_reads(rows: list[tuple[str, str]], end: str) -> None:
    written = io.StringIO()
    writer = csv.writer(written, quoting=csv.QUOTE_ALL, lineterminator=end)
    writer.writerows([("text", "label"), *rows])
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder) / "a.csv", written.getvalue())
        raws, table = records(path), by_pyarrow(path)
    assert [(raw.content.decode(), raw.label) for raw in raws if isinstance(raw, Raw)] == rows
    assert list(zip(*table.to_pydict().values(), strict=True)) == rows


def test_columns_are_those_that_the_recipe_names(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "\ufeffpremise,kind,claim\na,1,b\n")
    columns = {"text": "premise", "second": "claim", "label": "kind"}
    assert records(path, columns=columns) == [Raw("a.csv:2", b"a", "1", None, {"second": b"b"})]
    assert records(path, {"text": "text"}, columns={"text": "claim"}) == [Raw("a.csv:2", b"b")]


def test_broken_rows_are_named_by_file_and_line_and_the_others_are_read(tmp_path: Path) -> None:
    rows = ["text,label", "one", "two,x,y", '"thr"ee,x', "four,", "five,x"]
    write(tmp_path / "b" / "a.csv", "\n".join(rows))
    assert records(tmp_path) == [
        Broken("b/a.csv:2", "has 1 values, and the header has 2"),
        Broken("b/a.csv:3", "has 3 values, and the header has 2"),
        Broken("b/a.csv:4", "is not CSV (',' expected after '\"')"),
        Broken("b/a.csv:5", "column label is empty"),
        Raw("b/a.csv:6", b"five", "x"),
    ]


def test_a_quote_that_is_never_closed_is_refused_with_the_lines_that_it_takes(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", 'text,label\nfive,x\n"six,x\nseven,x\neight,x\n')
    with pytest.raises(InputError, match=r"^data\.source\.path: a\.csv:3: .* lines 3 to 5 are no records"):
        records(path)


def test_text_that_is_not_utf_8_is_named_by_its_line(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", b"text,label\ncaf\xe9,x\nb,\xe9\nc,x\n" + "d,e\u0301\n".encode() * 2)
    data = Data.model_validate({"source": {"type": "csv", "path": str(tmp_path)}, "on_error": "fail"})
    with pytest.raises(InputError, match=r"a\.csv:2 is not UTF-8 text \(byte 3\); a\.csv:3 column label is not UTF-8"):
        ingest(data, "text-classification", tmp_path, lambda done, total: None)


def test_files_without_a_header_in_utf_8_are_broken(tmp_path: Path) -> None:
    write(tmp_path / "a.csv", "")
    write(tmp_path / "b.csv", "text,label\nx,y\n".encode("utf-16"))
    write(tmp_path / "c.csv", "text,label\nx,y\n".encode("utf-16-le"))
    assert records(tmp_path) == [
        Broken("a.csv", "has no header"),
        Broken("b.csv", "is not UTF-8 text"),
        Broken("c.csv", "is not UTF-8 text"),
    ]


def test_a_file_that_cannot_be_read_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a.csv", "text,label\n")

    def refuse(*_args: Any, **_options: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    assert records(tmp_path) == [Broken("a.csv", "cannot be read (Permission denied)")]


def test_a_value_may_be_longer_than_the_modules_limit(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", f"text,label\n{'a' * 200_000},x\n")
    (record,) = records(path)
    assert isinstance(record, Raw)
    assert len(record.content) == 200_000


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({}, r"data\.source\.columns\.label: a\.csv has no column label\. It has text, kind, kind"),
        ({"columns": {"label": "kind"}}, r"data\.source\.columns\.label: a\.csv has 2 columns called kind"),
        ({"columns": {"label": "other"}, "split": "part"}, r"data\.source\.split: a\.csv has no column part"),
        ({"columns": {"words": "text"}}, r"data\.source\.columns\.words: the task has no such field"),
    ],
)
def test_a_column_that_does_not_fit_is_named(tmp_path: Path, values: dict[str, Any], fault: str) -> None:
    path = write(tmp_path / "a.csv", "text,kind,kind,other\n")
    with pytest.raises(InputError, match=fault):
        records(path, **values)


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_another_separator_than_commas_is_named(tmp_path: Path, separator: str) -> None:
    path = write(tmp_path / "a.csv", f"text{separator}label\none{separator}x\n")
    with pytest.raises(InputError, match=r"^data\.source\.path: a\.csv separates columns by .*; write it again with"):
        records(path)


def test_splits_are_those_of_paths_or_of_a_column(tmp_path: Path) -> None:
    for name in ("train", "test"):
        write(tmp_path / f"{name}.csv", "text,label,part\na,x,dev\n")
    reading = read(CsvSource(type="csv", path=str(tmp_path)), TEXTS)
    assert [raw.split for raw in reading.records if isinstance(raw, Raw)] == ["test", "train"]
    assert (reading.total, reading.split_sizes) == (2, {"train": 1, "test": 1})
    by_column = records(tmp_path, split="part")
    assert [raw.split for raw in by_column if isinstance(raw, Raw)] == ["validation"] * 2
    with pytest.raises(InputError, match=r"data\.source\.split: test\.csv:2: column text says 'a'"):
        records(tmp_path, split="text")


def test_it_gives_the_records_that_parquet_gives(tmp_path: Path) -> None:
    """Only contents decide the records object, so its bytes are those of the same table in Parquet."""
    table = pa.table({"text": [f"text {number}" for number in range(40)], "label": ["x", "y"] * 20})
    pa.csv.write_csv(table, tmp_path / "a.csv")
    pa.parquet.write_table(table, tmp_path / "a.parquet")
    objects = []
    for kind in ("csv", "parquet"):
        folder = tmp_path / kind
        folder.mkdir()
        source = {"type": kind, "path": str(tmp_path / f"a.{kind}")}
        ingest(Data.model_validate({"source": source}), "text-classification", folder, lambda done, total: None)
        objects.append(((folder / "records.parquet").read_bytes(), read_json(folder / "records.json")))
    assert objects[0] == objects[1]
