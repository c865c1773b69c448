import numpy as np

from understudy.data.image_arrays import write_images
from understudy.data.images import pixels
from understudy.data.records import Content
from understudy.recipe.data import Image


def test_images_and_labels_lie_in_the_files_of_their_split_in_order(tmp_path, picture):
    records = [Content(("test", "train", "test")[n], "ba"[n % 2], picture(n)) for n in range(3)]
    histogram = write_images(records, ["a", "b"], Image(size=4, channels=1), ("train", "test"), tmp_path)
    expected = [pixels(picture(n), 4, 1) for n in range(3)]
    np.testing.assert_array_equal(np.load(tmp_path / "test.images.npy"), [expected[0], expected[2]])
    np.testing.assert_array_equal(np.load(tmp_path / "train.images.npy"), [expected[1]])
    assert np.load(tmp_path / "test.labels.npy").tolist() == [1, 1]
    assert np.load(tmp_path / "train.labels.npy").tolist() == [0]
    np.testing.assert_array_equal(histogram[0], np.bincount(expected[1].ravel(), minlength=256))


def test_one_split_alone_has_no_grey_levels_of_training(tmp_path, picture):
    records = [Content("test", "a", picture(1))]
    histogram = write_images(records, ["a"], Image(size=4, channels=3), ("test",), tmp_path)
    assert histogram.shape == (3, 256)
    assert not histogram.any()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["test.images.npy", "test.labels.npy"]
