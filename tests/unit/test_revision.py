import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import understudy
from understudy import revision as module
from understudy.revision import CARRIERS, modules_reached, revision

STEPS = {
    "ingest": ("understudy.data.ingest",),
    "prepare": ("understudy.data.prepare",),
    "evaluate": ("understudy.evaluate.measure",),
    "gate": ("understudy.evaluate.gate",),
}


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A copy of the package's source, to be edited."""
    root = tmp_path / "understudy"
    shutil.copytree(Path(understudy.__file__).parent, root, ignore=shutil.ignore_patterns("__pycache__"))
    return root


def sources(root: Path) -> dict[str, str]:
    return {step: revision(enters, root)["source"] for step, enters in STEPS.items()}


def file_of(name: str, root: Path) -> Path:
    path = root.joinpath(*name.split(".")[1:])
    return path.with_suffix(".py") if path.with_suffix(".py").exists() else path / "__init__.py"


def test_a_changed_line_changes_exactly_the_steps_that_reach_it(package: Path) -> None:
    reached = {step: modules_reached(enters, package) for step, enters in STEPS.items()}
    assert len({frozenset(names) for names in reached.values()}) == len(STEPS)
    for name in sorted(set().union(*reached.values())):
        before = sources(package)
        path = file_of(name, package)
        path.write_text(f"{path.read_text()}\n_CHANGED = 1\n")
        after = sources(package)
        assert {step for step in STEPS if before[step] != after[step]} == {s for s in STEPS if name in reached[s]}, name


def test_ingest_reaches_neither_training_nor_evaluation(package: Path) -> None:
    reached = modules_reached(STEPS["ingest"], package)
    assert "understudy.data.sources.registry" in reached
    assert not any(name.split(".")[1] in ("train", "evaluate", "registry", "cli") for name in reached)


@pytest.mark.parametrize(
    ("change", "counts"),
    [
        (lambda text: f"{text}\n# a comment\n", False),
        (lambda text: text.replace("def f(x):", 'def f(x):\n    """Says what."""'), False),
        (lambda text: text.replace("def f(x):", "def f(\n    x,\n):"), False),
        (lambda text: text.replace('"""Top."""', '"""Other."""'), False),
        (lambda text: text.replace("SIZE = 3", 'SIZE = 3\n"""Bytes."""'), False),
        (lambda text: text.replace("SIZE = 3", 'if True:\n    SIZE = 3\n    """Bytes."""'), True),
        (lambda text: text.replace("SIZE = 3", 'SIZE = 3\nNAME = """Bytes."""'), True),
        (lambda text: text.replace("x + 1", "x + 2"), True),
        (lambda text: text.replace("x + 1", "x + 1.0"), True),
        (lambda text: text.replace("x + 1", "x - 1"), True),
        (lambda text: text.replace("def f(x):", "def f(x=3):"), True),
    ],
)
def test_only_changes_that_the_interpreter_runs_count(
    tmp_path: Path, change: Callable[[str], str], counts: bool
) -> None:
    text = '"""Top."""\n\nSIZE = 3\n\n\ndef f(x):\n    return x + 1\n\n\nasync def g():\n    return 3\n'
    path = tmp_path / "thing.py"
    path.write_text(text)
    before = revision(("understudy.thing",), tmp_path)
    path.write_text(change(text))
    assert path.read_text() != text
    assert (revision(("understudy.thing",), tmp_path) != before) is counts


@pytest.mark.parametrize(
    "statement",
    [
        "import understudy.far.off",
        "from understudy.far import off",
        "from understudy.far.off import thing",
        "def f():\n    from understudy.far.off import thing",
        "if True:\n    import understudy.far.off as name",
    ],
)
def test_every_kind_of_import_is_followed_with_the_packages_above(tmp_path: Path, statement: str) -> None:
    (tmp_path / "far").mkdir()
    (tmp_path / "far" / "__init__.py").write_text("import understudy.above\n")
    (tmp_path / "far" / "off.py").write_text("thing = 1\n")
    (tmp_path / "above.py").write_text("")
    (tmp_path / "near.py").write_text(statement)
    assert modules_reached(("understudy.near",), tmp_path) == {
        "understudy.near",
        "understudy.far",
        "understudy.far.off",
        "understudy.above",
    }


def test_a_template_counts_for_the_module_that_names_it_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "page.py").write_text('TEMPLATE = "page.html.j2"')
    (tmp_path / "number.py").write_text("")
    (tmp_path / "page.html.j2").write_text("one")
    before = {name: revision((f"understudy.{name}",), tmp_path) for name in ("page", "number")}
    (tmp_path / "page.html.j2").write_text("two")
    assert revision(("understudy.page",), tmp_path) != before["page"]
    assert revision(("understudy.number",), tmp_path) == before["number"]


def test_modules_that_carry_bytes_and_messages_do_not_count(package: Path) -> None:
    before = sources(package)
    for name in (*CARRIERS, "understudy.store.objects"):
        path = file_of(name, package)
        path.write_text(f"{path.read_text()}\n_CHANGED = 1\n")
    assert sources(package) == before


def test_every_carrier_is_a_module() -> None:
    root = Path(understudy.__file__).parent
    assert all(file_of(name, root).exists() for name in CARRIERS)


def test_the_versions_of_the_libraries_that_are_imported_count(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def f():\n    import numpy.linalg\n    import json\n")
    (tmp_path / "b.py").write_text("import rich\n")
    before = [revision((name,), tmp_path) for name in ("understudy.a", "understudy.b")]
    assert set(before[0]["libraries"]) == {"numpy"}
    version = module.metadata.version
    monkeypatch.setattr(module.metadata, "version", lambda name: "99" if name == "numpy" else version(name))
    after = [revision((name,), tmp_path) for name in ("understudy.a", "understudy.b")]
    assert after[0]["libraries"] == {"numpy": "numpy 99"}
    assert after[1] == before[1]


def test_a_launcher_without_torch_gives_the_key_that_its_trainer_would(monkeypatch: pytest.MonkeyPatch) -> None:
    enters = ("understudy.agent.worker", "understudy.agent.node")
    complete = revision(enters)
    assert {"torch", "transformers"} <= complete["libraries"].keys()
    without = {
        name: packages for name, packages in module.distributions().items() if name not in ("torch", "transformers")
    }
    monkeypatch.setattr(module, "distributions", lambda: without)
    assert revision(enters) == complete


@pytest.mark.parametrize("layout", ["branch", "packed", "detached", "worktree"])
def test_a_checkout_s_commit_is_read_without_git(tmp_path: Path, layout: str) -> None:
    commit, git = "0123456789" * 4, tmp_path / ".git"
    (git / "refs" / "heads").mkdir(parents=True)
    (git / "packed-refs").write_text(
        f"# pack-refs with: peeled\n{'f' * 40} refs/heads/mainly\n{commit} refs/heads/main\n"
    )
    head = commit if layout == "detached" else "ref: refs/heads/main"
    if layout == "branch":
        (git / "packed-refs").unlink()
        (git / "refs" / "heads" / "main").write_text(f"{commit}\n")
    (git / "HEAD").write_text(f"{head}\n")
    if layout == "worktree":
        (git / "worktrees" / "w").mkdir(parents=True)
        (git / "worktrees" / "w" / "HEAD").write_text("ref: refs/heads/main\n")
        (git / "worktrees" / "w" / "commondir").write_text("../..\n")
        (tmp_path / "file").write_text(f"gitdir: {git}/worktrees/w\n")
        git = tmp_path / "file"
    assert module._checked_out(git) == commit
    assert module._checked_out(tmp_path / "none") == ""
