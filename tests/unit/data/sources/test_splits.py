"""Names of folders and files that are splits, and names that only look like it."""

from pathlib import Path, PurePath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.data.sources.reading import IMAGES, records, section
from understudy.data.raw import Raw
from understudy.data.sources.registry import read
from understudy.data.sources.splits import SPLIT_NAMES, of_folders, split_named, splits_in, unused
from understudy.errors import InputError

# Of the datasets library 4.0, data_files.SPLIT_KEYWORDS.
KEYWORDS = {
    "train": ["train", "training"],
    "validation": ["validation", "valid", "dev", "val"],
    "test": ["test", "testing", "eval", "evaluation"],
}
HELD_OUT = [word for split in ("validation", "test") for word in KEYWORDS[split]]


def test_the_datasets_librarys_words_are_known():
    assert {word: split for split, words in KEYWORDS.items() for word in words} == SPLIT_NAMES


cases = st.sampled_from([str.lower, str.upper, str.title])


@given(st.sampled_from(sorted(SPLIT_NAMES)), cases, st.sampled_from(["", "split="]))
def test_a_split_is_known_in_any_case_and_as_hive_writes_it(word, case, prefix):
    assert split_named(prefix + case(word)) == SPLIT_NAMES[word]


@given(
    st.sampled_from(sorted(SPLIT_NAMES)),
    st.sampled_from(["{}_set", "{}-2017", "{}2017", "my {}", "mnist.{}", "{}A", "{}set", "{}-images-v2", "(1) {}"]),
)
def test_a_name_with_such_a_word_looks_like_the_split(word, form):
    assert splits_in(form.format(word)) == {SPLIT_NAMES[word]}
    assert split_named(form.format(word)) is None


@pytest.mark.parametrize(
    "name", ["strain", "trainer", "contest", "testament", "device", "value", "evaluate", "cat", "restrained", "rival"]
)
def test_a_word_that_only_contains_one_does_not(name):
    assert splits_in(name) == frozenset()


def images(root, picture, names):
    for seed, name in enumerate(names):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(picture(seed))


@pytest.mark.parametrize("train", KEYWORDS["train"])
@pytest.mark.parametrize("held_out", HELD_OUT)
def test_folders_of_images_and_texts_are_splits_under_each_of_their_names(tmp_path, picture, train, held_out):
    names = [f"{folder}/{label}/1.png" for folder in (train, held_out) for label in ("cat", "dog")]
    images(tmp_path, picture, names)
    for folder in (train, held_out):
        (tmp_path / folder / "1.txt").write_text("text")
    expected = {train: "train", held_out: SPLIT_NAMES[held_out]}
    for kind in ("image-folder", "text-files"):
        contents = records(type=kind, path=str(tmp_path))
        assert {(raw.name.split("/")[0], raw.split) for raw in contents} == set(expected.items())
    assert {raw.label for raw in records(type="image-folder", path=str(tmp_path))} == {"cat", "dog"}


@pytest.mark.parametrize(
    "names",
    [
        ("train", "Train"),
        ("train", "training"),
        ("val", "dev", "train"),
        ("test", "eval", "train"),
        ("split=train", "train"),
    ],
)
def test_a_split_named_twice_is_refused(tmp_path, picture, names):
    images(tmp_path, picture, [f"{name}/{label}/1.png" for name in names for label in ("cat", "dog")])
    for folder in names:
        (tmp_path / folder / "1.txt").write_text("text")
    for kind in ("image-folder", "text-files"):
        with pytest.raises(InputError, match=r"data\.source\.path: .* both name the \w+ split\. Keep one, or merge"):
            records(type=kind, path=str(tmp_path))


@pytest.mark.parametrize(
    "folders",
    [
        ("train_set", "test_set"),
        ("trainA", "trainB", "testA", "testB"),
        ("train2017", "val2017"),
        ("trainset", "devset"),
        ("cat/train", "cat/test", "dog/train", "dog/test"),
        ("bottle/train", "bottle/test", "bottle/ground_truth", "nut/train", "nut/test"),
    ],
)
def test_images_whose_folders_can_hardly_be_labels_are_refused(tmp_path, picture, folders):
    images(tmp_path, picture, [f"{folder}/{label}/1.png" for folder in folders for label in ("good", "broken")])
    with pytest.raises(InputError, match=r"data\.source\.path: .* look like splits and cannot be read as such"):
        records(type="image-folder", path=str(tmp_path))


@pytest.mark.parametrize(
    ("folders", "named"),
    [
        (("train", "dog", "plane"), "train/"),
        (("bullet_train", "rapid_test", "dog"), "bullet_train/, rapid_test/"),
        (("valid", "invalid"), "valid/"),
        (("test tube", "flask"), "test tube/"),
        (("a/test", "b/other"), "a/test/"),
    ],
)
def test_labels_that_look_like_splits_are_labels_and_noted(tmp_path, picture, folders, named):
    images(tmp_path, picture, [f"{folder}/1.png" for folder in folders])
    reading = read(section(type="image-folder", path=str(tmp_path)), IMAGES)
    assert reading.notes == (f"called like a split, and read as any other label: {named}",)
    assert {raw.label for raw in reading.records if isinstance(raw, Raw)} == {name.split("/")[0] for name in folders}


@pytest.mark.parametrize(
    ("names", "refused"),
    [
        (("train.txt", "test.txt"), "test.txt and train.txt"),
        (("train_set/1.txt", "test_set/1.txt"), "test_set/ and train_set/"),
        (("wiki/train/1.txt", "wiki/test/1.txt"), "wiki/test/ and wiki/train/"),
    ],
)
def test_texts_that_can_hardly_be_anything_but_splits_are_refused(tmp_path, names, refused):
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("text")
    with pytest.raises(InputError, match=rf"data\.source\.path: .*: {refused} look like splits"):
        records(type="text-files", path=str(tmp_path))


def test_documents_in_folders_that_may_be_about_anything_are_noted():
    paths = [PurePath(name) for name in ("guide/training/a.md", "guide/testing/b.md", "guide/c/d.md", "test.md")]
    noted = "called like a split, and read as any other document: test.md, guide/testing/, guide/training/"
    assert unused("here", paths, (), labelled=False) == [noted]
    many = [PurePath(f"{number}/tests/a.md") for number in range(5)] + [PurePath(f"{n}/a/a.md") for n in range(5)]
    (note,) = unused("here", many, (), labelled=False)
    assert note.endswith("document: 0/tests/, 1/tests/, 2/tests/ and 2 more")


@pytest.mark.parametrize(("n_others", "refused"), [(0, True), (2, True), (3, False), (9, False)])
def test_files_called_like_splits_are_words_among_many_others(n_others, refused):
    """A program has its training.py and evaluation.py beside other modules."""
    paths = [PurePath("agent/training.py"), PurePath("agent/evaluation.py"), PurePath("b.py"), PurePath("c.py")]
    paths += [PurePath(f"agent/{number}.py") for number in range(n_others)]
    if refused:
        with pytest.raises(InputError, match=r"agent/evaluation\.py and agent/training\.py look like splits"):
            unused("here", paths, (), labelled=False)
    else:
        (note,) = unused("here", paths, (), labelled=False)
        assert note.endswith("document: agent/evaluation.py, agent/training.py")


@given(st.lists(st.sampled_from(["cat", "train", "test", "val", "Train", "dog", "eval"]), unique=True))
def test_folders_are_splits_or_none_are(names):
    try:
        by_name = of_folders("here", names)
    except InputError:
        return
    assert set(by_name) in (set(), {name for name in names if split_named(name)})
    assert not by_name or "train" in by_name.values()


def test_init_reads_the_folders_that_ingest_reads(tmp_path: Path, picture):
    from understudy.data.survey import Images, survey

    images(tmp_path, picture, [f"{split}/{label}/1.png" for split in ("training", "testing") for label in "abc"])
    result = survey(tmp_path)
    assert isinstance(result, Images)
    assert (result.labels, result.train, result.test) == (("a", "b", "c"), 3, 3)
