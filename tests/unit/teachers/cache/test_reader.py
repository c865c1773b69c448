"""Reading folders of cached logits, of any origin."""

import json
import shutil
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.teachers.cache import folders
from tests.unit.teachers.cache.distributions import rows
from understudy.errors import InputError, UnderstudyError
from understudy.store.files import canonical, sha256
from understudy.teachers.cache.layout import INDEX, MAGIC
from understudy.teachers.cache.reader import CachedLogits


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cache") / "logits"
    folders.write_all(folder)
    return folder


@pytest.fixture
def folder(written: Path, tmp_path: Path) -> Path:
    """A copy to be damaged."""
    return Path(shutil.copytree(written, tmp_path / "logits"))


def test_facts_and_counts_are_those_that_were_written(written: Path) -> None:
    cached = CachedLogits(written)
    assert cached.facts == folders.FACTS
    assert len(cached) == folders.EXAMPLES
    assert cached.vocabulary == 400
    assert cached.count(np.array([4, 0, 22])).tolist() == folders.COUNTS[[4, 0, 22]].tolist()
    assert cached.statistics["positions"] == folders.COUNTS.sum()


@settings(max_examples=40)
@given(st.lists(st.integers(0, folders.EXAMPLES - 1), max_size=12))
def test_any_examples_are_read_in_their_order(written: Path, indices: list[int]) -> None:
    sparse = CachedLogits(written).read(np.array(indices, np.int64))
    positions = [at for index in indices for at in range(folders.FIRSTS[index], folders.FIRSTS[index + 1])]
    expected, width = rows(folders.decoded(), positions), sparse.ids.shape[1]
    assert torch.equal(sparse.ids, expected.ids[:, :width])
    assert torch.equal(sparse.log_probs, expected.log_probs[:, :width])
    assert torch.equal(sparse.tail, expected.tail)
    assert (expected.ids[:, width:] == -1).all()


def test_facts_are_compared_by_name(written: Path) -> None:
    cached = CachedLogits(written)
    cached.check(folders.FACTS)
    with pytest.raises(InputError, match="have examples sha256:34, not sha256:56"):
        cached.check({"teacher": "sha256:12", "examples": "sha256:56"})
    with pytest.raises(InputError, match="have tokenizer None, not sha256:1"):
        cached.check({"tokenizer": "sha256:1"})


@pytest.mark.parametrize("index", [-1, folders.EXAMPLES, 2**40])
def test_an_example_that_is_not_there_is_refused(written: Path, index: int) -> None:
    for query in (CachedLogits(written).read, CachedLogits(written).count):
        with pytest.raises(InputError, match="has 23 examples"):
            query(np.array([0, index]))


def description(**changes: object) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        value = json.loads((folder / "logits.json").read_text())
        (folder / "logits.json").write_text(json.dumps(value | changes))

    return damage


def replaced(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        path = folder / name
        path.write_bytes(change(path.read_bytes()))

    return damage


def removed(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def index_header(text: bytes) -> bytes:
    text = text.ljust(118 - 1) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


HUGE = index_header(b"{'descr': '<u8', 'fortran_order': False, 'shape': (1152921504606846976,), }")
PICKLE = index_header(b"{'descr': '|O', 'fortran_order': False, 'shape': (5,), }") + b"cos\nsystem\n(S'true'\ntR."

DAMAGE = {
    "no description": (removed("logits.json"), "logits.json: is missing; this is no folder of cached logits"),
    "a description that is no JSON": (replaced("logits.json", lambda data: data[:40]), "logits.json: is damaged"),
    "a description of deep nesting": (replaced("logits.json", lambda data: b"[" * 100_000), "logits.json: is damaged"),
    "a description of bytes": (replaced("logits.json", lambda data: b"\xff\xfe\x00"), "logits.json: is damaged"),
    "another format": (description(format=2), "logits.json: format"),
    "no number of examples": (description(examples=None), "logits.json: examples"),
    "parts of no examples": (description(examples_per_part=0), "logits.json: examples_per_part"),
    "not complete": (description(complete=False), "is not complete"),
    "more examples": (description(examples=24), r"part-00004\.npy: is not the index of 4 examples"),
    "very many examples": (description(examples=10**18), r"part-00004\.npy: is not the index of 5 examples"),
    "parts that overlap": (description(examples_per_part=4), r"part-00000\.npy: is not the index of 4 examples"),
    "another vocabulary": (description(vocabulary=401), r"tables\.json: has 400 classes, logits.json 401"),
    "no tables": (removed("tables.json"), r"tables\.json: is missing"),
    "other tables": (replaced("tables.json", lambda data: data.replace(b"0.15", b"0.25")), r"tables\.json: is damaged"),
    "no part": (removed("part-00002.bin"), r"part-00002\.bin: is missing; write part 2 again"),
    "no index": (removed("part-00002.npy"), r"part-00002\.npy: is missing; write part 2 again"),
    "a part cut short": (replaced("part-00002.bin", lambda data: data[:-1]), r"part-00002\.bin: has .* bytes"),
    "a longer part": (replaced("part-00002.bin", lambda data: data + b"x"), r"part-00002\.bin: has .* bytes"),
    "a part of another kind": (
        replaced("part-00002.bin", lambda data: b"X" + data[1:]),
        r"part-00002\.bin: is no part of cached logits",
    ),
    "an empty part": (replaced("part-00002.bin", lambda data: b""), r"part-00002\.bin: is no part"),
    "an index cut short": (replaced("part-00002.npy", lambda data: data[:-3]), r"part-00002\.npy: is not as long"),
    "a longer index": (replaced("part-00002.npy", lambda data: data + b"x"), r"part-00002\.npy: is not as long"),
    "an empty index": (replaced("part-00002.npy", lambda data: b""), r"part-00002\.npy: is damaged"),
    "an index of noise": (replaced("part-00002.npy", lambda data: b"\x93NUMPY\x01\x00\xff\xff{"), r"part-00002\.npy"),
    "an index of another dtype": (replaced("part-00002.npy", lambda data: HUGE), r"part-00002\.npy: is not the index"),
    "a pickle": (replaced("part-00002.npy", lambda data: PICKLE), r"part-00002\.npy: is not the index"),
}


@pytest.mark.parametrize(("damage", "message"), DAMAGE.values(), ids=DAMAGE)
def test_a_folder_that_nothing_wrote_is_refused_by_name(
    folder: Path, damage: Callable[[Path], None], message: str
) -> None:
    damage(folder)
    with pytest.raises(UnderstudyError, match=message):
        CachedLogits(folder)


def test_any_byte_that_changes_in_a_part_is_noticed(folder: Path) -> None:
    path = folder / "part-00001.bin"
    content = path.read_bytes()
    for at in range(len(MAGIC), len(content), 7):
        path.write_bytes(content[:at] + bytes([content[at] ^ 16]) + content[at + 1 :])
        with pytest.raises(UnderstudyError, match=r"part-00001\.bin: example \d \(part 1\) is damaged: a wrong checks"):
            CachedLogits(folder).read(np.arange(folders.EXAMPLES))
    path.write_bytes(content)
    CachedLogits(folder).read(np.arange(folders.EXAMPLES))


def forged(folder: Path, number: int, change: Callable[[np.ndarray, list[bytes]], None]) -> None:
    """Change a part's index and blocks, and let sizes and checksums fit again."""
    index_path, path = folder / f"part-{number:05}.npy", folder / f"part-{number:05}.bin"
    index = np.load(index_path)
    ends = len(MAGIC) + np.cumsum(index["bytes"])
    content = path.read_bytes()
    blocks = [content[end - size : end] for end, size in zip(ends, index["bytes"], strict=True)]
    change(index, blocks)
    index["bytes"], index["crc32"] = [len(block) for block in blocks], [zlib.crc32(block) for block in blocks]
    np.save(index_path, index)
    path.write_bytes(MAGIC + b"".join(blocks))


def more_positions(index: np.ndarray, blocks: list[bytes]) -> None:
    index["positions"][1] += 1


def very_many_positions(index: np.ndarray, blocks: list[bytes]) -> None:
    index["positions"][1] = 2**32 - 1


def another_width(index: np.ndarray, blocks: list[bytes]) -> None:
    blocks[1] = b"\x03" + blocks[1][1:]


def no_block(index: np.ndarray, blocks: list[bytes]) -> None:
    blocks[1] = b""


def other_lengths(index: np.ndarray, blocks: list[bytes]) -> None:
    blocks[1] = blocks[1][:1] + bytes([blocks[1][1] + 1]) + blocks[1][2:]


def lengths_moved(index: np.ndarray, blocks: list[bytes]) -> None:
    blocks[1] = blocks[1][:1] + bytes([blocks[1][1] + 1, blocks[1][2] - 1]) + blocks[1][3:]


def an_empty_position(index: np.ndarray, blocks: list[bytes]) -> None:
    blocks[1] = blocks[1][:1] + bytes([0, blocks[1][1] + blocks[1][2]]) + blocks[1][3:]


def other_streams(index: np.ndarray, blocks: list[bytes]) -> None:
    blocks[1] = blocks[1][:-20] + bytes(byte ^ 255 for byte in blocks[1][-20:])


@pytest.mark.parametrize(
    "change",
    [
        more_positions,
        very_many_positions,
        another_width,
        no_block,
        other_lengths,
        lengths_moved,
        an_empty_position,
        other_streams,
    ],
)
def test_a_forged_block_with_the_right_checksum_is_refused_by_name(
    folder: Path, change: Callable[[np.ndarray, list[bytes]], None]
) -> None:
    forged(folder, 0, change)
    with pytest.raises(UnderstudyError, match=r"part-00000\.bin: example 1 \(part 0\) is damaged"):
        CachedLogits(folder).read(np.array([0, 7, 1, 3]))


@settings(max_examples=60)
@given(st.data())
def test_forged_streams_never_crash(
    written: Path, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = Path(shutil.copytree(written, tmp_path_factory.mktemp("forged") / "logits"))
    random = np.random.default_rng(data.draw(st.integers(0, 2**32)))

    def noise(index: np.ndarray, blocks: list[bytes]) -> None:
        start = 1 + int(index["positions"][0])
        blocks[0] = blocks[0][:start] + random.bytes(len(blocks[0]) - start)

    forged(folder, 0, noise)
    with pytest.raises(UnderstudyError, match=r"part-00000\.bin: example 0 \(part 0\) is damaged"):
        CachedLogits(folder).read(np.array([0]))


def test_forged_tables_with_the_right_digest_are_refused(folder: Path) -> None:
    value = json.loads((folder / "tables.json").read_text())
    value["frequencies"][0] = value["frequencies"][0][:-1]
    (folder / "tables.json").write_bytes(canonical(value))
    description(tables=sha256(canonical(value)))(folder)
    with pytest.raises(UnderstudyError, match=r"tables\.json: tables of cached logits"):
        CachedLogits(folder)


def test_the_index_has_no_room_for_alignment() -> None:
    assert INDEX.itemsize == 32
