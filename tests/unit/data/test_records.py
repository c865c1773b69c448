import pyarrow.parquet as pq
import pytest

from understudy.data import records
from understudy.data.records import Content, Record, at, read, write


def record(number: int, label: str | None = "a") -> Record:
    return Record(f"{number:064}", "train", label, bytes(number))


@pytest.mark.parametrize(("limit", "value", "groups"), [("GROUP_ROWS", 4, [4, 4, 2]), ("GROUP_BYTES", 15, [6, 3, 1])])
def test_a_row_group_is_closed_when_it_is_full(tmp_path, monkeypatch, limit, value, groups):
    monkeypatch.setattr(records, limit, value)
    written = [record(number) for number in range(10)]
    write(tmp_path / "r.parquet", written)
    with pq.ParquetFile(tmp_path / "r.parquet") as file:
        assert [file.metadata.row_group(at).num_rows for at in range(file.num_row_groups)] == groups
        assert [Record(**row) for row in file.read().to_pylist()] == written


def test_records_are_read_in_their_order_some_at_a_time(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "BATCH_ROWS", 4)
    written = [record(number)._replace(split=("train", "test")[number % 2]) for number in range(10)]
    write(tmp_path / "records.parquet", written)
    expected = [Content(row.split, row.label, row.content) for row in written]
    assert [len(batch) for batch in read(tmp_path)] == [4, 4, 2]
    assert [row for batch in read(tmp_path) for row in batch] == expected
    assert [row for batch in read(tmp_path, "test") for row in batch] == expected[1::2]


def test_records_without_labels_have_none(tmp_path):
    write(tmp_path / "r.parquet", [record(1, None), record(2, None)])
    assert pq.read_table(tmp_path / "r.parquet")["label"].to_pylist() == [None, None]


def test_no_records_are_a_file_too(tmp_path):
    write(tmp_path / "r.parquet", [])
    assert pq.read_table(tmp_path / "r.parquet").num_rows == 0


def test_further_fields_are_columns_of_their_names(tmp_path):
    written = [record(number)._replace(others={"second": b"x" * number}) for number in range(3)]
    write(tmp_path / "records.parquet", written, ["second"])
    assert pq.read_table(tmp_path / "records.parquet").schema.names == ["id", "split", "label", "content", "second"]
    (batch,) = read(tmp_path)
    assert [row.others for row in batch] == [{"second": b""}, {"second": b"x"}, {"second": b"xx"}]
    assert at(tmp_path, "train", [2]) == batch[2:]
