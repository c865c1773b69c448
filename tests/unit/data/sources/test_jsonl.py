"""JSON files, compared with what pyarrow reads in the same bytes."""

import gzip
import json
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.json
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.data.ingest import ingest
from understudy.data.raw import Broken, Raw
from understudy.data.sources import json_objects
from understudy.data.sources.jsonl import JsonlSource, read
from understudy.errors import InputError
from understudy.recipe.data import Data
from understudy.recipe.sources import serving
from understudy.recipe.tasks import Kind, TaskName
from understudy.store.files import read_json

TEXTS: dict[str, Kind] = {"text": "text", "second": "optional text", "label": "label"}
TEXT: dict[str, Kind] = {"text": "text"}
GOOD = '{"text": "a", "label": "x"}'


def records(path: Path, fields: Mapping[str, Kind] = TEXTS, **values: Any) -> list[Raw | Broken]:
    return list(read(JsonlSource(type="jsonl", path=str(path), **values), fields).records)


def write(path: Path, content: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def zstd(content: bytes) -> bytes:
    compressed: bytes = pa.compress(content, codec="zstd", asbytes=True)
    return compressed


def test_it_serves_tasks_of_texts() -> None:
    assert "jsonl" in serving("causal-lm")
    assert "jsonl" in serving("text-classification")
    assert "jsonl" not in serving("image-classification")


def test_a_record_is_named_by_its_line_and_has_the_text_and_label_of_its_columns(tmp_path: Path) -> None:
    lines = ['\ufeff{"text": "one", "label": "x", "more": [1]}', "", " \t", '{"label": 3, "text": "caf\\u00e9\\n"}']
    path = write(tmp_path / "a.jsonl", "\r\n".join(lines))
    assert records(path) == [Raw("a.jsonl:1", b"one", "x"), Raw("a.jsonl:4", "caf\u00e9\n".encode(), "3")]


def test_columns_are_those_that_the_recipe_names(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"premise": "a", "kind": -1, "claim": "b"}')
    columns = {"text": "premise", "second": "claim", "label": "kind"}
    assert records(path, columns=columns) == [Raw("a.jsonl:1", b"a", "-1", None, {"second": b"b"})]
    assert records(path, TEXT, columns={"text": "claim"}) == [Raw("a.jsonl:1", b"b")]


def test_the_name_of_a_column_is_no_path(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"a": {"b": "nested"}, "c.d": "flat"}')
    with pytest.raises(InputError, match=r"a\.jsonl:1 has no column a\.b"):
        records(path, TEXT, columns={"text": "a.b"})
    assert records(path, TEXT, columns={"text": "c.d"}) == [Raw("a.jsonl:1", b"flat")]


VALUES = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"))
ROWS = st.lists(st.fixed_dictionaries({"text": VALUES, "label": VALUES.filter(bool)}), min_size=1)


@settings(max_examples=60, deadline=None)
@given(ROWS, st.booleans(), st.sampled_from(["\n", "\r\n", "\n\n"]))
def test_what_is_read_is_what_was_written_and_what_pyarrow_reads(rows: list[Any], escaped: bool, end: str) -> None:
    written = end.join(json.dumps(row, ensure_ascii=escaped) for row in rows)
    with tempfile.TemporaryDirectory() as folder:
        path = write(Path(folder) / "a.jsonl", written)
        raws = records(path)
        schema = pa.schema([("text", pa.string()), ("label", pa.string())])
        table = pa.json.read_json(path, parse_options=pa.json.ParseOptions(explicit_schema=schema))
    assert [{"text": raw.content.decode(), "label": raw.label} for raw in raws if isinstance(raw, Raw)] == rows
    assert table.to_pylist() == rows


@settings(max_examples=60, deadline=None)
@given(ROWS, st.sampled_from([None, 1]), st.sampled_from(["", ".gz", ".zst"]), st.sampled_from(["lines", "array"]))
def test_all_forms_of_a_file_have_the_same_records(rows: list[Any], indent: int | None, ending: str, form: str) -> None:
    text = json.dumps(rows, indent=indent) if form == "array" else "\n".join(map(json.dumps, rows))
    compress: dict[str, Callable[[bytes], bytes]] = {"": bytes, ".gz": gzip.compress, ".zst": zstd}
    content = compress[ending](text.encode())
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / f"a.json{ending}", content)
        reading = read(JsonlSource(type="jsonl", path=folder), TEXTS)
        raws = [raw for raw in reading.records if isinstance(raw, Raw)]
    assert [{"text": raw.content.decode(), "label": raw.label} for raw in raws] == rows
    place = "#{}" if form == "array" else ":{}"
    first = 0 if form == "array" else 1
    assert [raw.name for raw in raws] == [
        f"a.json{ending}{place.format(first + number)}" for number in range(len(rows))
    ]
    assert reading.total == len(rows)


def test_files_of_a_folder_have_any_of_the_endings(tmp_path: Path) -> None:
    names = ["a.jsonl", "b.ndjson", "c.json", "d/e.JSONL", "f.jsonl.gz", "g.json.zst"]
    for name in [*names, "h.txt", "i.gz"]:
        content = GOOD.encode()
        write(tmp_path / name, gzip.compress(content) if name.endswith("gz") else content)
    write(tmp_path / "g.json.zst", zstd(GOOD.encode()))
    assert [raw.name for raw in records(tmp_path)] == sorted(f"{name}:1" for name in names)


def test_a_folder_without_such_files_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "a.txt", GOOD)
    with pytest.raises(InputError, match=r"holds no \*\.jsonl, \*\.ndjson or \*\.json files .*, only a\.txt"):
        records(tmp_path)


BROKEN = {
    b"{'text': 1}": "is not JSON (column 2: Expecting property name enclosed in double quotes)",
    b'{"text": "a}': "is not JSON (column 10: Unterminated string starting at)",
    b"{} {}": "is not JSON (column 3: Extra data)",
    b'{"text": ': "ends within an object: write each object on one line, as `jq -c .` does",
    b"[": "begins an array, not an object: a file that is one array of objects has the ending .json",
    b'[{"text": "a"}]': "is an array, not an object: a file that is one array of objects has the ending .json",
    b'"text"': "is a string, not an object",
    b"null": "is null, not an object",
    b"1.5": "is a number, not an object",
    b'{"text": "a", "label": "x", "text": "a"}': "has the key 'text' twice",
    b'{"text": "a", "label": "x", "b": [{"c": 1, "c": 1}]}': "has the key 'c' twice",
    b'{"text": "a", "label": "x", "b": NaN}': "has NaN, which is not JSON",
    b'{"text": "a", "label": "x", "b": [-Infinity]}': "has -Infinity, which is not JSON",
    b'{"text": "\\ud800", "label": "x"}': "has a string with half of a surrogate pair, or a byte that is not UTF-8 "
    "(U+D800)",
    b'{"text": "a", "label": "x", "b": {"\\u0000": 1}}': "has a string with the character zero (U+0000)",
    b'{"text": "\xe9"}': "is not UTF-8 text (byte 10)",
    b'{"text": "\x00"}': "is not UTF-8 text (byte 10 is zero, as in UTF-16 and in binary files)",
    b'{"a":' * 100_000: "is nested too deeply",
    b'{"a": ' + b"9" * 5000 + b"}": "has a number with too many digits",
    b'{"text": "a"}': "has no column label",
    b'{"text": null, "label": "x"}': "column text is null, not a string",
    b'{"text": {"a": 1}, "label": "x"}': "column text is an object, not a string",
    b'{"text": "a", "label": null}': "column label is null, not a string or a whole number",
    b'{"text": "a", "label": true}': "column label is true, not a string or a whole number",
    b'{"text": "a", "label": 0.5}': "column label is 0.5, not a string or a whole number",
    b'{"text": "a", "label": ""}': "column label is empty",
}


@pytest.mark.parametrize("line", BROKEN)
def test_a_broken_line_is_named_by_file_and_line_and_the_others_are_read(tmp_path: Path, line: bytes) -> None:
    good = GOOD.encode()
    write(tmp_path / "b" / "a.jsonl", b"\n".join([good, line, good]))
    assert records(tmp_path) == [
        Raw("b/a.jsonl:1", b"a", "x"),
        Broken("b/a.jsonl:2", BROKEN[line]),
        Raw("b/a.jsonl:3", b"a", "x"),
    ]


def test_surrogates_in_pairs_and_escaped_backslashes_are_text(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", r'{"text": "\ud83d\ude00 \\ud800 \\u0000"}')
    assert records(path, TEXT) == [Raw("a.jsonl:1", "\U0001f600 \\ud800 \\u0000".encode())]


def test_a_line_has_a_greatest_length(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(json_objects, "LINE_BYTES", 2**20)
    path = write(tmp_path / "a.jsonl", "\n".join([GOOD, json.dumps({"text": "a" * 2**22, "label": "x"}), GOOD]))
    good = Raw("a.jsonl:1", b"a", "x")
    assert records(path) == [good, Broken("a.jsonl:2", "is longer than 1 MiB"), good._replace(name="a.jsonl:3")]


def test_a_large_array_is_refused_and_a_large_file_of_lines_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_objects, "ARRAY_BYTES", 100)
    assert len(records(write(tmp_path / "lines.json", f"{GOOD}\n" * 10))) == 10
    path = write(tmp_path / "array.json", f"[{', '.join([GOOD] * 10)}]")
    with pytest.raises(InputError, match=r"array\.json is one array of more than .* into a \.jsonl file"):
        records(path)


@pytest.mark.parametrize(
    ("content", "broken"),
    [
        (f"[{GOOD}, {GOOD}", ("a.json:1", "is not JSON (column 58: Expecting ',' delimiter)")),
        (f"[{GOOD},\n{GOOD},]", ("a.json:2", "is not JSON (column 29: Expecting value)")),
        (f"[{GOOD},{GOOD}]\n]", ("a.json:2", "is not JSON (column 1: Extra data)")),
        (f"[{GOOD},{GOOD},{'[' * 100_000}]", ("a.json#2", "is nested too deeply")),
    ],
)
def test_the_items_before_the_damage_of_an_array_are_read(
    tmp_path: Path, content: str, broken: tuple[str, str]
) -> None:
    *raws, last = records(write(tmp_path / "a.json", content))
    assert raws == [Raw("a.json#0", b"a", "x"), Raw("a.json#1", b"a", "x")]
    assert last == Broken(broken[0], f"{broken[1]}, and the rest of the file cannot be read")


def test_a_broken_item_of_an_array_is_named_and_the_others_are_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a.json", f'[{GOOD}, 3, {{"text": NaN}}, {{"text": "\xe9"}}, {GOOD}]'.encode("latin-1"))
    assert [(raw.name, getattr(raw, "reason", "")) for raw in records(path)] == [
        ("a.json#0", ""),
        ("a.json#1", "is a number, not an object"),
        ("a.json#2", "has NaN, which is not JSON"),
        ("a.json#3", "has a string with half of a surrogate pair, or a byte that is not UTF-8 (U+DCE9)"),
        ("a.json#4", ""),
    ]
    assert records(write(tmp_path / "a.json", " [ ] \n")) == []


@pytest.mark.parametrize(("ending", "compress"), [("gz", gzip.compress), ("zst", zstd)])
def test_a_compressed_file_that_ends_too_early_is_broken_after_what_it_holds(
    tmp_path: Path, ending: str, compress: Any
) -> None:
    lines = b"\n".join(json.dumps({"text": f"{number}" * 9, "label": "x"}).encode() for number in range(20_000))
    path = write(tmp_path / f"a.jsonl.{ending}", compress(lines)[:-9])
    *raws, last = records(path)
    assert len(raws) > 10_000
    assert last == Broken(f"{path.name}:{len(raws) + 1}", "cannot be read (Truncated compressed stream)")
    assert all(isinstance(raw, Raw) for raw in raws)


def test_a_file_that_is_not_compressed_as_its_ending_says_is_broken(tmp_path: Path) -> None:
    for name in ("a.jsonl.zst", "b.jsonl.gz", "c.json.gz"):
        write(tmp_path / name, GOOD)
    broken = records(tmp_path)
    assert [record.name for record in broken] == ["a.jsonl.zst:1", "b.jsonl.gz:1", "c.json.gz"]
    assert all(isinstance(record, Broken) and "cannot be read" in record.reason for record in broken)


def test_a_file_that_cannot_be_read_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "a.jsonl", GOOD)

    def refuse(*_args: Any, **_options: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    assert records(tmp_path) == [Broken("a.jsonl", "cannot be read (Permission denied)")]


def test_objects_over_several_lines_are_refused_with_the_fix(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", json.dumps({"text": "a", "label": "x"}, indent=1))
    with pytest.raises(InputError, match=r"^data\.source\.path: a\.jsonl:1: the object goes on in .* `jq -c \.`"):
        records(path)


def test_a_first_line_that_was_cut_is_broken_and_the_others_are_read(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", f'{{"text":\n{GOOD}\n')
    assert [record.name for record in records(path) if isinstance(record, Raw)] == ["a.jsonl:2"]
    assert records(write(tmp_path / "b.jsonl", '{"text":')) == [Broken("b.jsonl:1", json_objects.SPREAD)]


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({}, r"data\.source\.columns\.label: a\.jsonl:1 has no column label\. It has text, kind: name one of them"),
        ({"columns": {"label": "text"}, "split": "part"}, r"data\.source\.split: a\.jsonl:1 has no column part"),
        ({"columns": {"words": "text"}}, r"data\.source\.columns\.words: the task has no such field"),
    ],
)
def test_a_column_that_the_first_object_lacks_is_named(tmp_path: Path, values: dict[str, Any], fault: str) -> None:
    path = write(tmp_path / "a.jsonl", '{"text": "a", "kind": "x"}')
    with pytest.raises(InputError, match=fault):
        read(JsonlSource(type="jsonl", path=str(path), **values), TEXTS)


def test_splits_are_those_of_paths_or_of_a_column(tmp_path: Path) -> None:
    line = '{"text": "a", "label": "x", "part": "dev", "number": 1}\n'
    write(tmp_path / "train-00000-of-00001.jsonl.gz", gzip.compress(line.encode() * 2))
    write(tmp_path / "test.json", f"[{line}]")
    reading = read(JsonlSource(type="jsonl", path=str(tmp_path)), TEXTS)
    assert (reading.total, reading.split_sizes, reading.notes) == (3, {"train": 2, "test": 1}, ())
    assert [raw.split for raw in reading.records if isinstance(raw, Raw)] == ["test", "train", "train"]
    by_column = records(tmp_path, split="part")
    assert [raw.split for raw in by_column if isinstance(raw, Raw)] == ["validation"] * 3
    with pytest.raises(InputError, match=r"data\.source\.split: test\.json#0: column number says '1'"):
        records(tmp_path, split="number")


def test_a_line_without_a_split_is_broken(tmp_path: Path) -> None:
    path = write(tmp_path / "a.jsonl", '{"text": "a", "part": "train"}\n{"text": "a"}')
    assert records(path, TEXT, split="part")[1] == Broken("a.jsonl:2", "has no column part")


def test_a_split_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    write(tmp_path / "train.jsonl", GOOD)
    write(tmp_path / "train.jsonl.gz", gzip.compress(GOOD.encode()))
    with pytest.raises(InputError, match=r"train\.jsonl and train\.jsonl\.gz both name the train split"):
        records(tmp_path)


def run(folder: Path, source: dict[str, str], task: TaskName, **data: Any) -> tuple[bytes, Any]:
    folder.mkdir()
    ingest(Data.model_validate({"source": source, **data}), task, folder, lambda done, total: None)
    return (folder / "records.parquet").read_bytes(), read_json(folder / "records.json")


@pytest.mark.parametrize("task", ["causal-lm", "text-classification"])
def test_it_gives_the_records_that_parquet_gives(tmp_path: Path, task: TaskName) -> None:
    """Only contents decide the records object, so its bytes are those of the same table in Parquet."""
    table = pa.table({"text": [f"text {number}" for number in range(40)], "label": ["x", "y"] * 20})
    write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, table.to_pylist())))
    pa.parquet.write_table(table, tmp_path / "a.parquet")
    sources = [{"type": kind, "path": str(tmp_path / f"a.{kind}")} for kind in ("jsonl", "parquet")]
    by_lines, by_table = (run(tmp_path / source["type"], source, task) for source in sources)
    assert by_lines == by_table


def test_broken_lines_stop_ingestion_or_are_left_out_and_counted(tmp_path: Path) -> None:
    lines = [json.dumps({"text": f"text {number}"}) for number in range(40)]
    write(tmp_path / "a.jsonl", "\n".join([*lines, "no JSON", '{"text": ""}']))
    source = {"type": "jsonl", "path": str(tmp_path / "a.jsonl")}
    with pytest.raises(InputError, match=r"a\.jsonl:41 is not JSON .*set data\.on_error: skip"):
        run(tmp_path / "fail", source, "causal-lm")
    _, facts = run(tmp_path / "skip", source, "causal-lm", on_error="skip")
    assert [record["name"] for record in facts["skipped"]] == ["a.jsonl:41", "a.jsonl:42"]
    assert sum(facts["counts"].values()) == 40
