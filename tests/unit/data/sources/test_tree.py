from pathlib import Path

import pytest

from understudy.data.sources.tree import Tree
from understudy.errors import InputError


def files(root: Path, pattern: str = "**/*", *, follow_links: bool = False) -> list[str]:
    return [path.relative_to(root).as_posix() for path in Tree(root, Path(pattern).parts, follow_links).files()]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in (
        "data/a/1.txt",
        "data/a/b/2.txt",
        "data/3.txt",
        "data/.hidden/4.txt",
        "data/a/.5.txt",
        "secret/key.txt",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    return tmp_path / "data"


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("**/*", ["3.txt", "a/1.txt", "a/b/2.txt"]),
        ("**/*.txt", ["3.txt", "a/1.txt", "a/b/2.txt"]),
        ("*", ["3.txt"]),
        ("*/*.txt", ["a/1.txt"]),
        ("a/**/*.txt", ["a/1.txt", "a/b/2.txt"]),
        ("**/b/*", ["a/b/2.txt"]),
        ("**/[12].txt", ["a/1.txt", "a/b/2.txt"]),
        ("./a/?.txt", ["a/1.txt"]),
        ("**/*.TXT", []),
        ("a", []),
    ],
)
def test_a_pattern_names_what_pathlib_says_that_it_does(root: Path, pattern: str, expected: list[str]) -> None:
    assert files(root, pattern) == expected
    expected_paths = [path.relative_to(root) for path in root.glob(pattern) if path.is_file()]
    assert (
        sorted(str(path) for path in expected_paths if not any(part.startswith(".") for part in path.parts)) == expected
    )


def test_links_inside_are_followed(root: Path) -> None:
    (root / "c").symlink_to("a/b")
    (root / "d.txt").symlink_to("3.txt")
    assert files(root) == ["3.txt", "a/1.txt", "a/b/2.txt", "c/2.txt", "d.txt"]


@pytest.mark.parametrize("link", ["leak", "a/leak", "a/b/leak"])
@pytest.mark.parametrize("target", ["secret", "secret/key.txt"])
def test_a_link_out_is_refused_unless_the_recipe_follows_it(root: Path, link: str, target: str) -> None:
    (root / link).symlink_to(root.parent / target)
    with pytest.raises(InputError, match=rf"{link} is a link that leads out of the folder, to .*{target}\. Put a copy"):
        files(root)
    leaked = f"{link}/key.txt" if target == "secret" else link
    assert leaked in files(root, follow_links=True)


def test_a_link_out_through_another_link_is_refused(root: Path) -> None:
    (root / ".way").symlink_to(root.parent / "secret")
    (root / "leak.txt").symlink_to(".way/key.txt")
    with pytest.raises(InputError, match="leads out of the folder"):
        files(root)


def test_a_folder_whose_name_begins_as_this_ones_is_outside(root: Path) -> None:
    (root.parent / "data-of-others").mkdir()
    (root / "leak").symlink_to(root.parent / "data-of-others")
    with pytest.raises(InputError, match="leads out of the folder"):
        files(root)


def test_links_that_are_not_asked_for_have_no_say(root: Path) -> None:
    (root / "README").symlink_to(root.parent / "secret" / "key.txt")
    (root / ".cache").symlink_to(root.parent / "secret")
    assert files(root, "**/*.txt") == ["3.txt", "a/1.txt", "a/b/2.txt"]


def test_the_folder_itself_may_be_a_link(root: Path) -> None:
    (root / "c").symlink_to("a")
    link = root.parent / "link"
    link.symlink_to(root)
    assert files(link) == ["3.txt", "a/1.txt", "a/b/2.txt", "c/1.txt", "c/b/2.txt"]


@pytest.mark.parametrize("follow_links", [True, False])
def test_a_circle_is_refused(root: Path, follow_links: bool) -> None:
    (root / "a" / "b" / "back").symlink_to(root / "a")
    with pytest.raises(InputError, match=r"a/b/back is a link to a folder that it lies in\. Remove it"):
        files(root, follow_links=follow_links)


@pytest.mark.parametrize("target", ["nowhere", "itself"])
def test_a_link_to_nothing_is_refused(root: Path, target: str) -> None:
    (root / "itself").symlink_to(target)
    with pytest.raises(InputError, match=r"itself is a link to .*, which does not exist\. Remove the link"):
        files(root)


def test_a_folder_that_cannot_be_read_is_named(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("os.scandir", refuse)
    with pytest.raises(InputError, match=r"data cannot be read \(Permission denied\)"):
        files(root)
