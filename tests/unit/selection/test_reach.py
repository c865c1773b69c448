"""What a test file reaches is read from the source alone."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import ROOT
from tests.selection.passes import ALWAYS, digests, passed, record
from tests.selection.reach import Reach, Tree
from tests.selection.results import clean

PACKAGE = {
    "src/understudy/__init__.py": "",
    "src/understudy/__main__.py": "from understudy.cli import main",
    "src/understudy/cli/__init__.py": "def main():\n    from understudy.deep import work\n",
    "src/understudy/deep.py": 'TEMPLATE = "page.html.j2"\nTABLE = {"x": "understudy.plugin"}\n',
    "src/understudy/page.html.j2": "page",
    "src/understudy/plugin.py": "import understudy.leaf\n",
    "src/understudy/leaf.py": "",
    "src/understudy/alone.py": "",
    "src/understudy/typed.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import understudy.alone\n",
    "server/src/understudy_server/app.py": 'ACCOUNTS = "rights.ini"\nimport understudy.alone\n',
    "server/src/understudy_server/rights.ini": "",
    "manifests/base/one.yaml": "one",
    "manifests/overlays/two.yaml": "two",
    "recipes/digits.yaml": "digits",
    "tests/__init__.py": "",
    "tests/unit/conftest.py": "import understudy.leaf",
    "tests/unit/test_x.py": "",
}


@pytest.fixture
def reached(tmp_path: Path) -> Callable[[str], set[str]]:
    """What a test file with that source reaches, without itself and its conftest."""

    def reach(source: str) -> set[str]:
        for name, text in {**PACKAGE, "tests/unit/test_x.py": source}.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        subprocess.run(["git", "init", "-q"], cwd=tmp_path, check=True)
        names = Reach(Tree.of_git(tmp_path)).closure("tests/unit/test_x.py")
        assert {"tests/unit/test_x.py", "tests/unit/conftest.py", "src/understudy/leaf.py"} <= names
        return {Path(name).stem for name in names} - {"test_x", "conftest", "leaf", "__init__"}

    return reach


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("", set()),
        ("import understudy.alone", {"alone"}),
        ("def f():\n    from understudy import alone", {"alone"}),
        ("import understudy.plugin", {"plugin"}),
        ("import understudy.typed", {"typed"}),
        ("import understudy.deep", {"deep", "page.html", "plugin"}),
        ('patch("understudy.alone.name", 1)', {"alone"}),
        ('run(["-m", "understudy.alone"])', {"alone"}),
        ('run([python, "-m", "understudy", "run"])', {"__main__", "deep", "page.html", "plugin"}),
        ('run(["-m", "understudy_server.app"])', {"app", "rights", "alone"}),
        ('argv = ["understudy", "run"]', {"__main__", "deep", "page.html", "plugin"}),
        ('logging.getLogger("understudy")', set()),
        ('ROOT / "recipes" / "digits.yaml"', {"digits"}),
        ('Path("recipes").glob("*.yaml")', {"digits"}),
        ('read("recipes/digits.yaml")', {"digits"}),
        ('folder / "manifests/base"', {"one", "two"}),
        ('word = "recipes"', set()),
    ],
)
def test_the_files_of_a_source(reached: Callable[[str], set[str]], source: str, expected: set[str]) -> None:
    assert reached(source) == expected


def test_a_digest_changes_with_what_is_reached_and_with_nothing_else(
    tmp_path: Path, reached: Callable[[str], set[str]]
) -> None:
    reached("import understudy.plugin")

    def digest() -> str:
        return digests(tmp_path, ["tests/unit/test_x.py"])["tests/unit/test_x.py"]

    before = digest()
    (tmp_path / "src/understudy/alone.py").write_text("other = 1")
    assert digest() == before
    (tmp_path / "src/understudy/leaf.py").write_text("other = 1")
    assert digest() != before
    (tmp_path / "src/understudy/leaf.py").write_text("")
    assert digest() == before
    (tmp_path / "requirements.lock").write_text("torch==0")
    assert digest() != before


def test_the_record_holds_the_last_pass_of_files_that_are_there(tmp_path: Path) -> None:
    (tmp_path / ".ci").mkdir()
    (tmp_path / "test_a.py").touch()
    record(tmp_path, {"test_a.py": "1", "test_gone.py": "1"})
    record(tmp_path, {"test_a.py": "2"})
    assert passed(tmp_path) == {"test_a.py": "2"}


def test_a_file_passed_if_all_its_tests_ran_and_passed(tmp_path: Path) -> None:
    results = tmp_path / "results.xml"
    results.write_text("""<testsuites><testsuite>
        <testcase classname="tests.unit.test_good" name="a"/>
        <testcase classname="tests.unit.test_good.TestClass" name="b"/>
        <testcase classname="tests.unit.test_bad" name="a"/>
        <testcase classname="tests.unit.test_bad" name="b"><failure message="x"/></testcase>
        <testcase classname="tests.unit.test_skipped" name="a"><skipped message="x"/></testcase>
        <testcase classname="" name="tests.unit.test_broken"><error message="collection failure"/></testcase>
    </testsuite></testsuites>""")
    files = [f"tests/unit/test_{name}.py" for name in ("good", "bad", "skipped", "broken", "not_run")]
    assert clean(results, files) == ["tests/unit/test_good.py"]


def test_the_fixed_small_set_is_there() -> None:
    assert [name for name in ALWAYS if not (ROOT / name).exists()] == []
