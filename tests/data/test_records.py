import pyarrow.parquet as pq
import pytest

from understudy.data import records
from understudy.data.records import Record, write


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


def test_records_without_labels_have_none(tmp_path):
    write(tmp_path / "r.parquet", [record(1, None), record(2, None)])
    assert pq.read_table(tmp_path / "r.parquet")["label"].to_pylist() == [None, None]


def test_no_records_are_a_file_too(tmp_path):
    write(tmp_path / "r.parquet", [])
    assert pq.read_table(tmp_path / "r.parquet").num_rows == 0
