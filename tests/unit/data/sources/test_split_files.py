"""The splits of Parquet files by their paths."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from understudy.data.sources.split_files import of_files
from understudy.data.sources.splits import SPLIT_NAMES
from understudy.errors import InputError

FORMS = [
    "{}.parquet",
    "data/{}-00000-of-00001.parquet",
    "data/{}-00000-of-00001-566cc9b19d7203f8.parquet",
    "default/{}/0000.parquet",
    "{}/x.parquet",
    "a/b/{}/c/x.parquet",
    "split={}/x.parquet",
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("case", [str.lower, str.upper, str.title])
@given(train=st.sampled_from(["train", "training"]), held_out=st.sampled_from(sorted(SPLIT_NAMES)))
def test_splits_are_known_in_each_layout(form, case, train, held_out):
    files = {form.format(case(word)): SPLIT_NAMES[word] for word in (train, held_out)}
    if len(set(files.values())) == len(files):
        assert of_files("here", list(files)) == (files, [])


@pytest.mark.parametrize(
    "form", ["mnist-{}.parquet", "{}_part1.parquet", "partial-{}/0.parquet", "{}2017.parquet", "{}set.parquet"]
)
@pytest.mark.parametrize("held_out", ["test", "dev"])
def test_a_word_in_a_path_decides_and_is_noted(form, held_out):
    files = {form.format(word): SPLIT_NAMES[word] for word in ("train", held_out)}
    assert of_files("here", list(files)) == (
        files,
        [f"{name} is read as {split}, since its path says so" for name, split in files.items()],
    )


def test_a_test_file_beside_one_without_a_name_is_no_training_data():
    assert of_files("here", ["mnist.parquet", "mnist-test.parquet"])[0] == {"mnist-test.parquet": "test"}


@pytest.mark.parametrize(
    ("files", "notes"),
    [
        (["ab_test.parquet", "cd_test.parquet"], "ab_test.parquet looks like test, and is read as any other file"),
        (["train_test.parquet", "a.parquet"], "train_test.parquet names more than one split, and is read as none"),
        (["mnist-train.parquet"], None),
        (["status=valid/a.parquet", "status=test/a.parquet"], None),
        (["a.parquet", "b/c.parquet"], None),
    ],
)
def test_a_word_that_cannot_tell_files_apart_is_noted(files, notes):
    splits, noted = of_files("here", files)
    assert splits == {}
    assert noted[:1] == ([notes] if notes else [])


@pytest.mark.parametrize(
    ("files", "fault"),
    [
        (["train.parquet", "TRAIN.parquet"], "train.parquet and TRAIN.parquet both name the train split"),
        (["dev.parquet", "val.parquet"], "dev.parquet and val.parquet both name the validation split"),
        (["train.parquet", "train/0.parquet"], "both name the train split"),
        (["train/0.parquet", "Train/0.parquet"], "train and Train both name the train split"),
        (["a/test.parquet", "a/test-00000-of-00001.parquet"], "both name the test split"),
        (["train-00000-of-00001.parquet", "train-00000-of-00002.parquet"], "both name the train split"),
        (
            ["train-00000-of-00001.parquet", "train-00000-of-00001-0a1b.parquet"],
            r"train-\*-of-00001.parquet has shard 0 twice",
        ),
        (["train/test/0.parquet"], "train/test/0.parquet names two splits, train and test"),
        (["train/test-00000-of-00001.parquet"], "names two splits, train and test"),
    ],
)
def test_a_split_named_twice_is_refused(files, fault):
    with pytest.raises(InputError, match=f"^here: .*{fault}"):
        of_files("here", files)


def test_parts_of_one_split_and_several_configurations_are_fine():
    files = [f"{config}/train-0000{part}-of-00002.parquet" for config in ("a", "b") for part in (0, 1)]
    assert of_files("here", files) == (dict.fromkeys(files, "train"), [])
