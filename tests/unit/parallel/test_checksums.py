from pathlib import Path

import pytest

from understudy.parallel.checksums import SUMS, is_damaged, write_checksums


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in (".metadata", "__0_0.distcp", "__1_0.distcp", "progress.json"):
        (tmp_path / name).write_text(f"of {name}")
    write_checksums(tmp_path)
    return tmp_path


def test_what_is_as_it_was_written_is_not_damaged(folder: Path) -> None:
    assert not any(is_damaged(folder, part, 3) for part in range(3))


@pytest.mark.parametrize("damage", ["torn", "another byte", "gone", "one more", "no sums", "sums are none"])
def test_every_damage_is_found_by_one_of_the_readers(folder: Path, damage: str) -> None:
    part = folder / "__1_0.distcp"
    if damage == "torn":
        part.write_text(part.read_text()[:-1])
    elif damage == "another byte":
        part.write_text(part.read_text().replace("1", "2"))
    elif damage == "gone":
        part.unlink()
    elif damage == "one more":
        (folder / "__2_0.distcp").touch()
    elif damage == "no sums":
        (folder / SUMS).unlink()
    else:
        (folder / SUMS).write_text("[]")
    assert any(is_damaged(folder, reader, 3) for reader in range(3))
