import io
import json
import os
from pathlib import Path

import pytest

from understudy.errors import UnderstudyError
from understudy.registry import champion
from understudy.store import StepState
from understudy.store.files import sha256


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The digests that the registry needs."""
    digests: set[str] = set()
    monkeypatch.setattr(champion, "registered_digests", lambda uri: digests)
    return digests


def orphan(store, digest: str) -> None:
    """Make an object one that nothing reaches, old enough to go."""
    for path in (store.folder / "step-cache").iterdir():
        if digest in path.read_text():
            path.unlink()
    os.utime(store.objects.path(digest), (0, 0))


def test_without_a_store_there_is_nothing_to_look_at_and_none_is_made(understudy) -> None:
    for command in (["ls"], ["show", "ab"], ["verify"], ["gc"]):
        outcome = understudy("store", *command)
        assert outcome.code == 2
        assert "no store here; understudy run makes one, --home points at another" in outcome.err
    assert not Path(".understudy").exists()


def test_objects_are_listed_whole_when_nobody_watches(understudy, make) -> None:
    digests = [make("x" * 2000), make("y")]
    lines = understudy("store", "ls").out.splitlines()
    assert lines[0].split() == ["digest", "kind", "made", "by", "made", "at", "files", "size"]
    assert sorted(line.split()[0] for line in lines[1:]) == sorted(digests)
    assert [line.split()[-2:] for line in lines[1:] if digests[0] in line] == [["2", "kB"]]


def test_objects_are_listed_for_machines(understudy, make) -> None:
    digest = make()
    (row,) = json.loads(understudy("store", "ls", "--json").out)
    assert {key: row[key] for key in ("digest", "kind", "steps", "files", "size")} == {
        "digest": digest,
        "kind": "records",
        "steps": ["ingest"],
        "files": 1,
        "size": 1,
    }


@pytest.mark.parametrize(
    ("code", "state"), [(None, "live"), (0, "done"), (1, "failed"), (3, "rejected"), (130, "stopped")]
)
def test_runs_are_listed_with_how_they_ended(understudy, store, code: int | None, state: str) -> None:
    run = store.create_run("digits", {}, "sqlite:///x")
    run.record(StepState("ingest", "reused"))
    if code is not None:
        run.end(code)
    (row,) = json.loads(understudy("store", "ls", "--runs", "--json").out)
    assert (row["run"], row["name"], row["state"], row["exit_code"]) == (run.id, "digits", state, code)
    line = understudy("store", "ls", "--runs").out.splitlines()[1]
    assert line.split()[:3] == [run.id, "digits", state]
    assert line.endswith("ingest reused")


def test_an_object_is_shown_with_its_files_and_origin(understudy, make) -> None:
    first = make("x")
    digest = make("y", records=first)
    output = understudy("store", "show", digest[:10]).out
    for part in (digest, "records", f"input    records {first}", "fact     rows 3", "ingest in 2 s", "result.txt"):
        assert part in output
    data = json.loads(understudy("store", "show", digest[:10], "--json").out)
    assert (data["digest"], data["inputs"], data["made_by"][0]["step"]) == (digest, {"records": first}, "ingest")
    assert data["files"][0]["path"] == "result.txt"
    assert Path(data["path"]).is_dir()


def test_verify_reads_everything_and_names_the_damaged_file(understudy, store, make) -> None:
    digests = [make("x"), make("y")]
    assert understudy("store", "verify").out == "2 objects, all bytes verified, no damage\n"
    path = store.objects.path(digests[0]) / "result.txt"
    path.write_text("z")
    outcome = understudy("store", "verify")
    assert outcome.code == 1
    assert outcome.err.splitlines() == [
        "error: the store is damaged; the next run that needs these makes them again",
        f"  {path}: was changed",
    ]
    assert understudy("store", "verify", digests[1][:12]).code == 0
    assert understudy("store", "verify", digests[1], digests[0]).code == 1
    assert understudy("store", "ls").code == 0


def test_verify_believes_nothing_that_was_remembered(understudy, store, make, monkeypatch) -> None:
    digest = make()
    (store.objects.path(digest) / "result.txt").write_text("z")
    monkeypatch.setattr("understudy.store.files.Fingerprints.file", lambda self, path: sha256(b"x"))
    assert store.objects.damage(digest) == []
    assert understudy("store", "verify").code == 1


def test_a_damaged_manifest_is_named_everywhere(understudy, store, make) -> None:
    digest = make()
    (store.objects.path(digest) / "manifest.json").write_text("{")
    assert "damaged" in understudy("store", "ls").out
    outcome = understudy("store", "show", digest)
    assert outcome.code == 1
    assert f"damaged; understudy store verify {digest[:12]} says how" in outcome.err
    assert "manifest.json: was changed" in understudy("store", "verify").err


def test_gc_shows_what_would_go_and_asks_for_yes(understudy, store, make) -> None:
    digest = make()
    assert understudy("store", "gc").out.startswith("nothing to remove")
    orphan(store, digest)
    outcome = understudy("store", "gc")
    assert outcome.code == 0
    assert f"objects/{digest[:2]}/{digest}" in outcome.out
    assert "no cached step, model or live run reaches it" in outcome.out
    assert outcome.out.endswith("nothing was removed; use --yes to remove it\n")
    assert list(store.objects) == [digest]
    outcome = understudy("store", "gc", "--yes")
    assert outcome.out.endswith(" freed\n")
    assert list(store.objects) == []


@pytest.mark.parametrize(("answer", "is_removed"), [("y\n", True), ("n\n", False), ("\n", False)])
def test_gc_asks_on_a_terminal(understudy, store, make, monkeypatch, answer: str, is_removed: bool) -> None:
    orphan(store, make())
    terminal = io.StringIO(answer)
    terminal.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr("sys.stdin", terminal)
    understudy("store", "gc")
    assert (list(store.objects) == []) is is_removed


def test_gc_keeps_what_the_registry_needs(understudy, store, make, registered: set[str]) -> None:
    first = make("x")
    registered.add(make("y", teacher=first))
    for digest in list(store.objects):
        orphan(store, digest)
    assert understudy("store", "gc", "--yes").out.startswith("nothing to remove")


def test_gc_keeps_what_a_server_got_and_does_not_show_until_somebody_says_that_it_is_deleted(
    understudy, store, make, registered: set[str]
) -> None:
    first, second = make("x"), make("y")
    store.remember_server("http://server", [first, second])
    registered.add(second)
    for digest in (first, second):
        orphan(store, digest)
    outcome = understudy("store", "gc", "--yes")
    assert sorted(store.objects) == sorted([first, second])
    [file] = store.registered[first]
    assert outcome.out.startswith("kept: models registered at a server that shows no version of them now (1). ")
    assert f"\n  {file}\n" in outcome.out
    file.unlink()
    assert understudy("store", "gc", "--yes").out.endswith(" freed\n")
    assert list(store.objects) == [second]


def test_gc_refuses_while_the_registry_cannot_be_asked(understudy, store, make, monkeypatch) -> None:
    orphan(store, make())

    def silent(uri: str) -> set[str]:
        assert uri == "http://server"
        raise UnderstudyError("http://server does not answer")

    monkeypatch.setattr(champion, "registered_digests", silent)
    outcome = understudy("--tracking-uri", "http://server", "store", "gc", "--yes")
    assert outcome.code == 1
    assert outcome.err == (
        "error: nothing was removed: the models that the registry needs are unknown. http://server does not answer\n"
    )
    assert len(list(store.objects)) == 1


def test_gc_forgets_what_was_not_used_for_days(understudy, store, make) -> None:
    digest = make()
    (entry,) = (store.folder / "step-cache").glob("*.json")
    os.utime(store.objects.path(digest), (0, 0))
    assert understudy("store", "gc", "--yes", "--forget-after", "2").out.startswith("nothing to remove")
    os.utime(entry, (0, 0))
    assert understudy("store", "gc", "--yes").out.startswith("nothing to remove")
    assert "finished step, not used lately" in understudy("store", "gc", "--yes", "--forget-after", "2").out
    assert list(store.objects) == []


def test_what_is_pulled_is_named_by_its_whole_digest(understudy) -> None:
    outcome = understudy("store", "pull", "abcdef", "--from", "file:///nowhere")
    assert outcome.code == 2
    assert "abcdef: is not a complete digest; understudy store show prints it" in outcome.err


def test_an_old_store_is_refused_until_it_is_migrated(understudy, store, make) -> None:
    digest = make()
    (store.folder / "step-cache").rename(store.folder / "memo")
    (store.folder / "version.json").write_text('{"version": 1}')
    outcome = understudy("store", "ls")
    assert outcome.code == 2
    assert "has version 1, this understudy writes version 2. Run understudy store migrate" in outcome.err
    assert understudy("store", "migrate").out == ".understudy/store: now version 2\n"
    assert understudy("store", "migrate").out == ".understudy/store: already version 2\n"
    assert json.loads(understudy("store", "ls", "--json").out)[0]["digest"] == digest


def test_where_there_is_no_store_none_is_migrated(understudy) -> None:
    outcome = understudy("store", "migrate")
    assert (outcome.code, Path(".understudy").exists()) == (2, False)
    assert "no store here" in outcome.err
