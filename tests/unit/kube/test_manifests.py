from pathlib import Path

import pytest

from understudy.errors import InputError
from understudy.kube import manifests


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """An overlay with a base, a component, a patch and settings."""
    files = {
        "over/kustomization.yaml": "resources: [../base, 'https://github.com/a/b.git?ref=v1']\n"
        "components: [../part]\npatches: [{path: patch.yaml}]\n"
        "configMapGenerator: [{name: a, files: [named=file.yaml]}]\n",
        "over/patch.yaml": "kind: A\n",
        "over/file.yaml": "a: 1\n",
        "base/kustomization.yaml": "resources: [a.yaml]\n",
        "base/a.yaml": "# a comment\nkind: A # another\nb: '#c'\n",
        "part/kustomization.yaml": "resources: [../base]\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_the_files_of_a_folder_are_all_that_kustomize_reads_for_it(tree: Path) -> None:
    paths = [str(path.relative_to(tree.resolve())) for path in manifests.files(tree / "over")]
    assert sorted(paths) == sorted(str(path.relative_to(tree)) for path in tree.rglob("*.yaml"))
    assert paths[0] == "over/kustomization.yaml"


def test_a_line_has_its_file_and_number_and_no_comment(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tree)
    lines = list(manifests.lines([tree.resolve() / "base" / "a.yaml"]))
    assert [(line.location, line.text.rstrip()) for line in lines] == [
        ("base/a.yaml:1", ""),
        ("base/a.yaml:2", "kind: A"),
        ("base/a.yaml:3", "b: '#c'"),
    ]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("over/kustomization.yaml", "resources: [gone.yaml]", "gone.yaml: cannot be read"),
        ("over/kustomization.yaml", "a: [", "is not YAML"),
        ("over/kustomization.yaml", "- a", "is not a kustomization"),
    ],
)
def test_an_unreadable_tree_is_an_error_with_the_file(tree: Path, name: str, text: str, message: str) -> None:
    (tree / name).write_text(text)
    with pytest.raises(InputError, match=message):
        list(manifests.lines(manifests.files(tree / "over")))


def test_a_folder_without_a_kustomization_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"kustomization.yaml: cannot be read.*name a folder"):
        manifests.files(tmp_path)


def application(path: str, address: str = "ours") -> dict[str, object]:
    source = {"repoURL": address, "path": path, "targetRevision": "main"}
    return {"kind": "Application", "metadata": {"name": "a"}, "spec": {"source": source}}


def test_the_folders_that_are_deployed_are_those_of_this_repository(tree: Path) -> None:
    repository = {"kind": "GitRepository", "metadata": {"name": "us"}, "spec": {"url": "ours"}}
    by_flux = {
        "kind": "Kustomization",
        "metadata": {"name": "b"},
        "spec": {"sourceRef": {"name": "us"}, "path": "./part"},
    }
    resources = [application("over"), application("elsewhere", "theirs"), repository, by_flux]
    assert manifests.folders(tree / "base", resources, "ours") == [tree.resolve() / "over", tree.resolve() / "part"]


def test_a_deployed_folder_that_is_missing_is_an_error(tree: Path) -> None:
    with pytest.raises(InputError, match="deploys gone, which no folder above it has"):
        manifests.folders(tree / "base", [application("gone")], "ours")
