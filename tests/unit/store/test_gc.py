import errno
import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from understudy.errors import UnderstudyError
from understudy.store import Run, Store, gc, lease
from understudy.store.files import write_json
from understudy.store.gc import collect, plan

DAY = 86400.0


@contextmanager
def patient() -> Iterator[Store]:
    """A store whose objects are all old enough to be collected."""
    young, gc.YOUNG = gc.YOUNG, -1.0
    try:
        with TemporaryDirectory() as folder:
            yield Store(Path(folder) / "store")
    finally:
        gc.YOUNG = young


def publish(store: Store, content: str, inputs: dict[str, str] | None = None) -> str:
    staged = store.folder / "staged"
    staged.mkdir()
    (staged / "content").write_text(content)
    return store.objects.publish(staged, "things", inputs or {})


def remember(store: Store, key: str, digest: str, used: float = 0.0) -> Path:
    """Write a step into the step cache, last used so many seconds ago."""
    path = store.folder / "step-cache" / f"{key}.json"
    write_json(path, {"key": key, "step": "s", "parts": {}, "digest": digest, "seconds": 1.0, "at": 0.0})
    os.utime(path, (time.time() - used,) * 2)
    return path


def live_run(store: Store, *uses: str) -> Run:
    run = store.create_run("r", {}, "")
    for digest in uses:
        run.use(digest)
    return run


def paths(store: Store, removals: list[gc.Removal]) -> set[str]:
    return {str(removal.path.relative_to(store.folder)) for removal in removals}


# Reachable objects stay


@dataclass
class Graph:
    """Objects, each made from earlier ones, and who holds on to which."""

    inputs: list[list[int]] = field(default_factory=list)
    remembered: set[int] = field(default_factory=set)
    forgotten: set[int] = field(default_factory=set)
    registered: set[int] = field(default_factory=set)
    live: set[int] = field(default_factory=set)
    ended: set[int] = field(default_factory=set)

    def reachable(self) -> set[int]:
        roots = self.remembered | self.registered | self.live
        return roots | {at for root in roots for at in self.below(root)}

    def below(self, at: int) -> set[int]:
        return {inner for above in self.inputs[at] for inner in {above} | self.below(above)}


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    count = draw(st.integers(1, 8))
    inputs = [draw(st.lists(st.integers(0, at - 1), unique=True, max_size=3)) if at else [] for at in range(count)]
    subset = st.sets(st.integers(0, count - 1), max_size=2)
    return Graph(inputs, draw(subset), draw(subset), draw(subset), draw(subset), draw(subset))


@settings(deadline=None, max_examples=25)
@given(graphs())
def test_exactly_the_unreachable_objects_are_removed(graph: Graph) -> None:
    with patient() as store:
        digests: list[str] = []
        for at, inputs in enumerate(graph.inputs):
            digests.append(publish(store, str(at), {str(i): digests[i] for i in inputs}))
        for at in graph.remembered:
            remember(store, f"{at:064x}", digests[at])
        for at in graph.forgotten - graph.remembered:
            remember(store, f"{at:064x}", digests[at], used=3 * DAY)
        live_run(store, *(digests[at] for at in graph.live))
        live_run(store, *(digests[at] for at in graph.ended)).end(0)
        registered = {digests[at] for at in graph.registered}
        planned = plan(store, registered, forget_after=2 * DAY)
        reachable = {digests[at] for at in graph.reachable()}
        assert {p.path.name for p in planned if p.path.parent.parent.name == "objects"} == set(digests) - reachable
        assert set(store.objects) == set(digests)
        collect(store, planned, registered)
        assert set(store.objects) == reachable
        assert not [problem for digest in reachable for problem in store.objects.damage(digest, thorough=True)]
        assert {cached.digest for cached in store.step_cache} == {digests[at] for at in graph.remembered}


def test_without_forgetting_every_cached_step_counts() -> None:
    with patient() as store:
        remember(store, "ab" * 32, publish(store, "x"), used=400 * DAY)
        assert plan(store, ()) == []


# What may still be on its way


def test_a_young_object_is_left_alone(store: Store) -> None:
    digest = publish(store, "x")
    assert plan(store, ()) == []
    os.utime(store.objects.path(digest), (0, 0))
    (removal,) = plan(store, ())
    assert removal.path == store.objects.path(digest)
    manifest = (removal.path / "manifest.json").stat().st_size
    assert (removal.size, removal.reason) == (1 + manifest, "no cached step, model or live run reaches it")


def test_an_object_published_again_after_the_plan_is_left_alone(store: Store) -> None:
    digest = publish(store, "x")
    os.utime(store.objects.path(digest), (0, 0))
    planned = plan(store, ())
    assert publish(store, "x") == digest
    assert collect(store, planned, ()) == 0
    assert store.objects.damage(digest, thorough=True) == []


@pytest.mark.parametrize("how", ["used", "remembered", "as an input"])
def test_an_object_used_after_the_plan_is_given_back(how: str) -> None:
    with patient() as store:
        digest = publish(store, "x")
        planned = plan(store, ())
        assert len(planned) == 1
        if how == "used":
            live_run(store, digest)
        elif how == "remembered":
            remember(store, "ab" * 32, digest)
        else:
            live_run(store, publish(store, "y", {"x": digest}))
        assert collect(store, planned, ()) == 0
        assert store.objects.damage(digest, thorough=True) == []


def test_an_object_made_again_during_the_collection_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    with patient() as store:
        digest = publish(store, "x")
        planned = plan(store, ())
        reachable = gc.reachable

        def meanwhile(*roots: object) -> set[str]:
            live_run(store, publish(store, "x"))
            return reachable(*roots)  # type: ignore[arg-type]

        monkeypatch.setattr(gc, "reachable", meanwhile)
        collect(store, planned, ())
        assert store.objects.damage(digest, thorough=True) == []


def test_objects_that_a_slow_gc_holds_are_given_back_although_another_gc_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with patient() as store:
        digest = publish(store, "x")
        planned = plan(store, ())
        live_run(store, digest)
        reachable = gc.reachable

        def meanwhile(*roots: object) -> set[str]:
            monkeypatch.setattr(gc, "reachable", reachable)
            monkeypatch.setattr(gc, "SETTLED", -1.0)
            collect(store, plan(store, ()), ())
            return reachable(*roots)  # type: ignore[arg-type]

        monkeypatch.setattr(gc, "reachable", meanwhile)
        collect(store, planned, ())
        assert store.objects.damage(digest, thorough=True) == []


def test_objects_that_a_run_published_again_go_from_the_trash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gc, "SETTLED", -1.0)
    with patient() as store:
        trash = store.objects.set_aside(publish(store, "x"))
        assert trash is not None
        live_run(store, publish(store, "x"))
        collect(store, plan(store, ()), ())
        assert not trash.exists()


# Forgetting


def test_forgetting_takes_old_steps_and_the_objects_that_only_they_reach(store: Store) -> None:
    digests = {name: publish(store, name) for name in ("old", "new")}
    for digest in digests.values():
        os.utime(store.objects.path(digest), (0, 0))
    remember(store, "aa" * 32, digests["old"], used=3 * DAY)
    remember(store, "bb" * 32, digests["new"], used=1 * DAY)
    planned = plan(store, (), forget_after=2 * DAY)
    old = str(store.objects.path(digests["old"]).relative_to(store.folder))
    assert paths(store, planned) == {f"step-cache/{'aa' * 32}.json", old}
    assert collect(store, planned, ()) == sum(removal.size for removal in planned)
    assert list(store.objects) == [digests["new"]]


def test_abandoned_work_is_forgotten_and_work_in_hand_is_not(store: Store) -> None:
    working, released = store.acquire("aa" * 32), store.acquire("bb" * 32)
    assert working is not None
    assert released is not None
    released.release()
    remember(store, "bb" * 32, publish(store, "x"))
    planned = plan(store, (), forget_after=-1)
    assert f"work/{'aa' * 32}" not in paths(store, planned)
    planned = [removal for removal in planned if removal.path.parent.name == "work"]
    assert paths(store, planned) == {f"work/{'bb' * 32}"}
    again = store.acquire("bb" * 32)
    assert again is not None
    collect(store, planned, ())
    again.check()
    again.release()
    collect(store, planned, ())
    assert [path.name for path in (store.folder / "work").iterdir()] == ["aa" * 32]
    working.finish()


def test_work_that_was_just_written_to_is_not_abandoned_however_long_ago_it_began(store: Store) -> None:
    released = store.acquire("bb" * 32)
    assert released is not None
    released.release()
    folder = released.folder.parent
    for path in (folder, *folder.rglob("*")):
        os.utime(path, (0, 0))
    assert paths(store, plan(store, (), forget_after=DAY)) == {f"work/{'bb' * 32}"}
    assert paths(store, plan(store, (), forget_after=DAY)) == {f"work/{'bb' * 32}"}, "to look is not to use"
    (folder / f"1.{lease.FREE}" / "checkpoint").touch()
    os.utime(folder, (0, 0))
    assert paths(store, plan(store, (), forget_after=DAY)) == set()


def test_work_of_a_holder_that_cannot_be_looked_for_is_abandoned_too(store: Store) -> None:
    abandoned = store.acquire("bb" * 32)
    assert abandoned is not None
    abandoned._done.set()
    abandoned._thread.join()
    holder = abandoned.folder / f"holder.{abandoned.folder.name.split('.')[1]}"
    holder.write_text(json.dumps({**json.loads(holder.read_text()), "host": "another"}))
    for path in (abandoned.folder.parent, *abandoned.folder.parent.rglob("*")):
        os.utime(path, (0, 0))
    assert paths(store, plan(store, (), forget_after=DAY)) == {f"work/{'bb' * 32}"}


def _released_attempt(store: Store, key: str) -> Path:
    """Work that its holder left long ago, and the folder in it that ranks write to."""
    working = store.acquire(key)
    assert working is not None
    (working.folder / "attempt").mkdir()
    (working.folder / "attempt" / "checkpoint").write_text("x" * 1000)
    working.release()
    return working.folder.parent / f"1.{lease.FREE}" / "attempt"


def _age(work: Path) -> None:
    for path in (work, *work.rglob("*")):
        os.utime(path, (0, 0), follow_symlinks=False)


@pytest.mark.parametrize(
    "target", ["link", "nowhere", "/proc/self"], ids=["to itself", "to nothing", "to kernel files"]
)
def test_a_link_in_abandoned_work_is_not_followed(store: Store, target: str) -> None:
    folder = _released_attempt(store, "bb" * 32)
    (folder / "link").symlink_to(target)
    _age(folder.parent.parent)
    planned = plan(store, (), forget_after=DAY)
    assert paths(store, planned) == {f"work/{'bb' * 32}"}
    assert collect(store, planned, ()) >= 1000
    assert not list((store.folder / "work").iterdir())


def test_a_time_to_come_that_a_rank_gave_its_files_counts_as_when_it_did(store: Store) -> None:
    folder = _released_attempt(store, "bb" * 32)
    os.utime(folder / "checkpoint", (2**33, 2**33))
    assert paths(store, plan(store, (), forget_after=DAY)) == set()
    assert paths(store, plan(store, (), forget_after=-1)) == {f"work/{'bb' * 32}"}


def test_an_object_that_cannot_be_removed_is_named_and_all_others_go(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    locked, plain = _released_attempt(store, "aa" * 32), _released_attempt(store, "bb" * 32)
    (locked / "locked").mkdir()
    rmdir = os.rmdir

    def refuse(name: str, **options: int) -> None:  # as a user is who may not look into that folder
        if name == "locked":
            raise PermissionError(errno.EACCES, "Permission denied", name)
        rmdir(name, **options)

    monkeypatch.setattr("os.rmdir", refuse)
    with pytest.raises(UnderstudyError, match=r"work/\.a{64}\.[0-9a-f]{8}/1\.free/attempt/locked: Permission denied$"):
        collect(store, plan(store, (), forget_after=-1), ())
    assert not plain.exists()
    (remaining,) = (store.folder / "work").iterdir()
    assert [path.name for path in remaining.rglob("*")] == [locked.parent.name, "attempt", "locked"]
    os.utime(remaining, (0, 0))
    with pytest.raises(UnderstudyError, match="Permission denied"):
        collect(store, plan(store, ()), ())
    (again,) = (store.folder / "work").iterdir()
    assert len(again.name) == len(remaining.name), "the name does not grow with each try"


def test_folders_in_folders_without_end_are_named_and_all_else_goes(store: Store) -> None:
    deep, plain = _released_attempt(store, "aa" * 32), _released_attempt(store, "bb" * 32)
    before = os.getcwd()
    try:
        os.chdir(deep)
        for _ in range(1500):
            os.mkdir("f")
            os.chdir("f")
    finally:
        os.chdir(before)
    planned = plan(store, (), forget_after=-1)
    with pytest.raises(UnderstudyError, match="is nested too deeply"):
        collect(store, planned, ())
    assert not plain.exists()
    (remaining,) = (store.folder / "work").iterdir()
    subprocess.run(["rm", "-rf", remaining], check=True)


def test_abandoned_work_does_not_make_its_finished_step_forgotten(store: Store) -> None:
    digest = publish(store, "x")
    os.utime(store.objects.path(digest), (0, 0))
    remember(store, "bb" * 32, digest)
    released = store.acquire("bb" * 32)
    assert released is not None
    released.release()
    for path in (released.folder.parent, *released.folder.parent.rglob("*")):
        os.utime(path, (0, 0))
    assert paths(store, plan(store, (), forget_after=DAY)) == {f"work/{'bb' * 32}"}


def test_ended_runs_are_forgotten_and_live_ones_are_not(store: Store) -> None:
    live, ended = live_run(store), live_run(store)
    ended.end(0)
    for run in (live, ended):
        os.utime(run.folder, (0, 0))
    planned = plan(store, (), forget_after=DAY)
    assert paths(store, planned) == {f"runs/{ended.id}"}
    collect(store, planned, ())
    assert [run.id for run in store.runs()] == [live.id]


# Leftovers


def test_half_written_files_go_once_they_are_old(store: Store) -> None:
    leftovers = [store.folder / part / ".half" for part in ("step-cache", "fingerprints")] + [
        store.folder / "work" / ".half"
    ]
    for path in leftovers:
        path.mkdir() if path.parent.name == "work" else path.touch()
    assert plan(store, ()) == []
    for path in leftovers:
        os.utime(path, (0, 0))
    planned = plan(store, ())
    assert {removal.path for removal in planned} == set(leftovers)
    collect(store, planned, ())
    assert not any(path.exists() for path in leftovers)


def test_leftovers_in_the_trash_go_but_not_while_another_gc_holds_them(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    trash = store.objects.set_aside(publish(store, "x"))
    assert trash is not None
    assert plan(store, ()) == []
    monkeypatch.setattr(gc, "SETTLED", -1.0)
    (removal,) = plan(store, ())
    assert removal.path == trash
    collect(store, [removal], ())
    assert not trash.exists()
