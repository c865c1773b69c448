"""Copies on a node's disk: the same bytes or the shared ones, under any faults of the disk and any other users."""

import fcntl
import json
import multiprocessing
import os
import shutil
import signal
import socket
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.unit.jobs.specs import with_payload
from understudy import logs
from understudy.agent import node, node_cache, rendezvous, watchdog
from understudy.agent.node_cache import Cache
from understudy.agent.rendezvous import Rendezvous
from understudy.jobs.specification import JobSpec
from understudy.store import Store

KB = 1000


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.fixture
def messages() -> list[str]:
    return []


@pytest.fixture
def cache(tmp_path: Path, messages: list[str]) -> Cache:
    return Cache(tmp_path / "cache", messages.append)


def publish(store: Store, files: dict[str, bytes]) -> Path:
    staged = store.folder / "staged"
    for name, content in files.items():
        (staged / name).parent.mkdir(parents=True, exist_ok=True)
        (staged / name).write_bytes(content)
    staged.mkdir(exist_ok=True)
    return store.objects.path(store.objects.publish(staged, "examples", {"records": "r"}, {"rows": 1}))


def content(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def examples(store: Store) -> Path:
    return publish(store, {"train.npy": os.urandom(300 * KB), "deep/er/test.npy": os.urandom(10)})


def copies(cache: Path) -> list[str]:
    return sorted(path.name for path in (cache / "objects").glob("??/*"))


# The same bytes


files = st.dictionaries(st.sampled_from(["a", "b.npy", "c/d", "c/e/f"]), st.binary(max_size=50), max_size=4)


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(files=files)
def test_a_copy_has_the_bytes_of_its_original(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes]
) -> None:
    folder = tmp_path_factory.mktemp("same")
    cache = Cache(folder / "cache", lambda _: None)
    published = publish(Store(folder / "store"), files)
    copy = cache.copy(published, "examples")
    assert copy != published
    assert content(copy) == content(published)
    plain = folder / "initial"
    shutil.copytree(published, plain)
    (plain / "manifest.json").unlink()
    assert content(copy) == content(published)
    copied = content(cache.copy(plain, "initial"))
    assert {name: data for name, data in copied.items() if name != "manifest.json"} == content(plain)


def test_a_copy_is_made_once_and_found_again(cache: Cache, examples: Path, tmp_path: Path, messages: list[str]) -> None:
    first = cache.copy(examples, "examples")
    inode = (first / "train.npy").stat().st_ino
    assert Cache(tmp_path / "cache", messages.append).copy(examples, "examples") == first
    assert (first / "train.npy").stat().st_ino == inode
    assert len(messages) == 1
    assert messages[0].startswith("examples: 0.3 MB copied to this node")


def test_a_folder_without_a_manifest_is_copied_by_content(cache: Cache, tmp_path: Path) -> None:
    initial = tmp_path / "work" / "job" / "initial"
    initial.mkdir(parents=True)
    (initial / "model.safetensors").write_bytes(b"one")
    first = cache.copy(initial, "initial")
    (initial / "model.safetensors").write_bytes(b"two")
    second = cache.copy(initial, "initial")
    assert [(folder / "model.safetensors").read_bytes() for folder in (first, second)] == [b"one", b"two"]


# Damage


def test_a_damaged_copy_is_never_used(cache: Cache, examples: Path, tmp_path: Path, messages: list[str]) -> None:
    first = forget(tmp_path, examples)
    array_bytes = (first / "train.npy").read_bytes()
    (first / "train.npy").write_bytes(bytes([array_bytes[0] ^ 1]) + array_bytes[1:])
    assert content(cache.copy(examples, "examples")) == content(examples)
    assert "damaged and is copied again" in messages[0]
    assert not list((tmp_path / "cache" / "trash").glob("*"))


@pytest.mark.parametrize("name", ["train.npy", "manifest.json"])
def test_half_a_copy_is_not_used_either(cache: Cache, examples: Path, tmp_path: Path, name: str) -> None:
    (forget(tmp_path, examples) / name).unlink()
    assert content(cache.copy(examples, "examples")) == content(examples)


def test_a_damaged_copy_in_use_is_left_alone(cache: Cache, examples: Path, tmp_path: Path, messages: list[str]) -> None:
    copy = cache.copy(examples, "examples")
    (copy / "train.npy").write_bytes(b"x")
    assert Cache(tmp_path / "cache", messages.append).copy(examples, "examples") == examples
    assert messages[-1].endswith("(the damaged one is in use): ranks read the shared one, the result is the same")


def test_a_damaged_object_of_the_store_does_not_become_a_copy(
    cache: Cache, examples: Path, tmp_path: Path, messages: list[str]
) -> None:
    (examples / "train.npy").write_bytes(b"x" * 300 * KB)
    assert cache.copy(examples, "examples") == examples
    assert "its bytes do not match its manifest" in messages[-1]
    assert copies(tmp_path / "cache") == []


def forget(folder: Path, source: Path) -> Path:
    """A copy that a process made which has ended."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as other_process:
        return other_process.submit(make, folder / "cache", source).result()


def make(cache: Path, source: Path) -> Path:
    return Cache(cache, print).copy(source, "examples")


# Several at once


def race(cache: Path, source: Path, start: Any) -> tuple[Path, dict[str, bytes]]:
    start.wait()
    path = make(cache, source)
    return path, content(path)


def test_of_several_at_once_each_finds_a_whole_copy_and_one_is_kept(examples: Path, tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    with context.Manager() as manager, ProcessPoolExecutor(4, context) as processes:
        start = manager.Barrier(4)
        results = [processes.submit(race, tmp_path / "cache", examples, start) for _ in range(4)]
        winners = [result.result() for result in results]
    assert {path for path, _ in winners} == {tmp_path / "cache" / "objects" / examples.name[:2] / examples.name}
    assert all(copied == content(examples) for _, copied in winners)
    assert copies(tmp_path / "cache") == [examples.name]
    assert not list((tmp_path / "cache" / "incoming").iterdir())


def test_files_of_a_killed_agent_are_removed_and_those_of_a_running_one_are_not(
    cache: Cache, examples: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def killed() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        shutil.copyfile = lambda *_: killed()  # type: ignore[assignment, misc]
        make(tmp_path / "cache", examples)
    os.waitpid(child, 0)
    incoming = tmp_path / "cache" / "incoming"
    (incomplete,) = incoming.iterdir()
    living = incoming / "living"
    living.mkdir()
    with (tmp_path / "cache" / "locks" / "living").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        cache.copy(examples, "examples")
    assert list(incoming.iterdir()) == [living]
    assert not incomplete.exists()


# Room


def test_without_room_the_shared_one_is_used(store: Store, tmp_path: Path, messages: list[str]) -> None:
    source = publish(store, {"train.npy": os.urandom(300 * KB)})
    assert Cache(tmp_path / "cache", messages.append, 200 * KB).copy(source, "examples") == source
    assert messages == [
        "no copy of examples on this node (it needs 0.3 MB, there is room for 0.2 MB): ranks read the shared one, "
        "the result is the same"
    ]
    assert copies(tmp_path / "cache") == []


def test_a_limit_counts_existing_copies(store: Store, tmp_path: Path, messages: list[str]) -> None:
    first, second = (publish(store, {"train.npy": os.urandom(300 * KB)}) for _ in range(2))
    cache = Cache(tmp_path / "cache", messages.append, 500 * KB)
    assert cache.copy(first, "examples") != first
    assert cache.copy(second, "teacher") == second


def test_copies_that_nobody_uses_make_room_the_longest_unused_first(
    store: Store, tmp_path: Path, messages: list[str]
) -> None:
    sources = [publish(store, {"train.npy": os.urandom(300 * KB)}) for _ in range(4)]
    for age, source in enumerate(sources[:3]):
        copy = forget(tmp_path, source)
        os.utime(copy, (age, age))
    used = Cache(tmp_path / "cache", messages.append)
    used.copy(sources[0], "examples")
    os.utime(used.copy(sources[0], "examples"), (0, 0))
    assert Cache(tmp_path / "cache", messages.append, 1100 * KB).copy(sources[3], "examples") != sources[3]
    assert copies(tmp_path / "cache") == sorted(source.name for source in (sources[0], sources[2], sources[3]))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of one megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(folder)]
    if os.getuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("this user may mount nothing")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)  # this process holds its locks


@pytest.mark.parametrize("seen_before", [True, False])
def test_on_a_full_disk_the_shared_one_is_used_and_nothing_is_left(
    store: Store, small_disk: Path, messages: list[str], monkeypatch: pytest.MonkeyPatch, seen_before: bool
) -> None:
    """Also when another pod takes the room after it was looked at."""
    source = publish(store, {"a.npy": os.urandom(600 * KB), "train.npy": os.urandom(600 * KB)})
    if not seen_before:
        monkeypatch.setattr(Cache, "_room", lambda cache: 10**9)
    assert Cache(small_disk, messages.append).copy(source, "examples") == source
    assert ("there is room for" if seen_before else "No space left on device") in messages[0]
    assert copies(small_disk) == []
    assert not list((small_disk / "incoming").iterdir())
    little = publish(store, {"train.npy": os.urandom(100 * KB)})
    assert Cache(small_disk, messages.append).copy(little, "examples") != little


def test_a_disk_that_cannot_be_used_is_no_reason_to_fail(examples: Path, tmp_path: Path, messages: list[str]) -> None:
    (tmp_path / "cache").write_text("not a folder")
    assert Cache(tmp_path / "cache", messages.append).copy(examples, "examples") == examples
    assert "ranks read the shared one, the result is the same" in messages[0]


# The node's agent


@pytest.fixture
def spec(job: JobSpec, store: Store, examples: Path) -> JobSpec:
    teacher = publish(store, {"model.safetensors": b"weights"})
    spec = with_payload(replace(job, supervised=True), examples=examples, teacher=str(teacher))
    spec.rank_logs.mkdir(parents=True)
    spec.write()
    return spec


@pytest.fixture
def ranks_read(monkeypatch: pytest.MonkeyPatch, spec: JobSpec) -> Callable[[], JobSpec]:
    """Runs the node's agent, whose ranks do nothing: the paths that they would have used."""
    paths: list[Path] = []

    def failures(_: JobSpec, path: Path) -> dict[int, int]:
        paths.append(path)
        return {}

    monkeypatch.setattr(node, "_failures", failures)
    monkeypatch.setattr(watchdog.Watchdog, "start", lambda _: None)
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    logs.configure()  # as main() does

    def run() -> JobSpec:
        assert node.run(spec.path) == 0
        return JobSpec.read(paths[-1])

    return run


def agents_log(spec: JobSpec) -> str:
    """The agent's files beside the ranks' logs."""
    [log] = spec.rank_logs.glob("agent-*.log")
    return log.read_text()


def test_ranks_read_copies_and_write_where_they_always_do(
    spec: JobSpec, ranks_read: Callable[[], JobSpec], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = spec.path.read_bytes()
    monkeypatch.setenv(node_cache.CACHE, str(tmp_path / "cache"))
    local_spec = ranks_read()
    for name in ("examples", "teacher"):
        copy, source = local_spec.payload.reads[name], spec.payload.reads[name]
        assert Path(copy).is_relative_to(tmp_path / "cache")
        assert content(Path(copy)) == content(Path(source))
    assert replace(local_spec, payload=spec.payload) == spec
    assert spec.path.read_bytes() == before
    assert "examples: 0.3 MB copied" in agents_log(spec)


def test_without_a_cache_ranks_read_the_store(spec: JobSpec, ranks_read: Callable[[], JobSpec]) -> None:
    assert ranks_read() == spec


def test_the_limit_is_the_pods(
    spec: JobSpec, ranks_read: Callable[[], JobSpec], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(node_cache.CACHE, str(tmp_path / "cache"))
    monkeypatch.setenv(node_cache.LIMIT, str(200 * KB))
    local_spec = ranks_read()
    assert local_spec.payload.reads["examples"] == spec.payload.reads["examples"]
    assert local_spec.payload.reads["teacher"] != spec.payload.reads["teacher"]
    assert "no copy of examples on this node" in agents_log(spec)


# Meeting the others


def meeting(port: int, host: str = "127.0.0.1") -> Rendezvous:
    return Rendezvous(2, 2, "none", "c10d", f"{host}:{port}")


def test_nodes_meet_as_ever_where_nothing_is_copied() -> None:
    assert rendezvous.await_others(meeting(1)) == meeting(1)


def test_a_node_knows_itself() -> None:
    assert rendezvous._is_this_node(socket.gethostname())
    assert not rendezvous._is_this_node("192.0.2.1")
    assert not rendezvous._is_this_node("nowhere.invalid")


def test_the_host_waits_longer_for_the_other_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(node_cache.CACHE, "/cache")
    assert rendezvous.await_others(meeting(1)) == replace(meeting(1), configs={"join_timeout": rendezvous.JOIN_TIMEOUT})
    static = Rendezvous(2, 2, "none", "static", "x:1", {"rank": 1})
    assert rendezvous.await_others(static).configs == {"rank": 1, "timeout": rendezvous.JOIN_TIMEOUT}


def test_the_other_nodes_wait_for_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(node_cache.CACHE, "/cache")
    monkeypatch.setattr(rendezvous, "_is_this_node", lambda host: False)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    monkeypatch.setattr(rendezvous, "JOIN_TIMEOUT", 60)
    waiter = threading.Thread(target=rendezvous.await_others, args=(meeting(port),))
    waiter.start()
    waiter.join(0.7)
    assert waiter.is_alive()
    with socket.create_server(("127.0.0.1", port)):
        waiter.join(10)
        assert not waiter.is_alive()


def test_a_specification_is_json_for_ranks_too(spec: JobSpec, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(node_cache.CACHE, str(tmp_path / "cache"))
    local_path = node_cache.local(spec, spec.path)
    assert local_path != spec.path
    assert json.loads(local_path.read_text()).keys() == json.loads(spec.path.read_text()).keys()
