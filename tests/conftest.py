"""Fixtures that several packages' tests share: small examples to train on, and a job."""

import inspect
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings

from tests.unit.jobs.specs import job_spec
from understudy.data.packing import write_packed
from understudy.jobs.specification import JobSpec

settings.register_profile("ci", deadline=None, max_examples=30)  # no test asserts a time
settings.register_profile("full", deadline=None, max_examples=200)
settings.load_profile(os.environ.get("UNDERSTUDY_HYPOTHESIS", "ci"))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A file's tests run in one process, and all that need ranks in the same: it has the pool. They come first, since
    the pool's last test ends long after the first of the others.
    """
    for item in items:
        pooled = "ranks" in getattr(item, "fixturenames", ())
        item.add_marker(pytest.mark.xdist_group("ranks" if pooled else str(item.path)))
    items.sort(key=lambda item: "ranks" not in getattr(item, "fixturenames", ()))


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """A command that a test calls configures the log of the process: not that of the tests after it."""
    root, packages = logging.getLogger(), [logging.getLogger(name) for name in ("understudy", "understudy_server")]
    handlers, levels, disabled = root.handlers[:], [package.level for package in packages], root.manager.disable
    yield
    for handler in set(root.handlers).difference(handlers):
        handler.close()
    root.handlers[:] = handlers
    for package, level in zip(packages, levels, strict=True):
        package.setLevel(level)
    logging.disable(disabled)


@pytest.fixture(scope="session", autouse=True)
def stacks_without_source() -> Iterator[None]:
    """kfp asks for the whole stack 68 times a compilation, to name a method in an error that it does not raise. Beside
    as many modules as tests import, to look up the module and the source of each frame takes seconds.
    """

    def stack(context: int = 0) -> list[inspect.FrameInfo]:
        frame, found = inspect.currentframe(), list[inspect.FrameInfo]()
        while frame := frame and frame.f_back:
            code = frame.f_code
            found.append(inspect.FrameInfo(frame, code.co_filename, frame.f_lineno, code.co_name, None, None))
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inspect, "stack", stack)
        yield


@pytest.fixture(scope="session")
def image_examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """45 images of 8 x 8 pixels in 3 classes, and 13 of the validation split."""
    folder = tmp_path_factory.mktemp("images")
    random = np.random.default_rng(0)
    for split, count in (("train", 45), ("validation", 13)):
        labels = random.integers(0, 3, count)
        images = random.integers(0, 100, (count, 1, 8, 8)) + 50 * labels[:, None, None, None]
        np.save(folder / f"{split}.images.npy", images.astype(np.uint8))
        np.save(folder / f"{split}.labels.npy", labels)
    facts = {"task": "image-classification", "labels": ["a", "b", "c"], "image": {"size": 8, "channels": 1}}
    (folder / "examples.json").write_text(json.dumps({**facts, "counts": {"train": 45}, "mean": [0.4], "std": [0.2]}))
    return folder


@pytest.fixture(scope="session")
def text_examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A stream of 701 tokens out of 50: 44 windows of 16, the last of them shorter; 130 for validation."""
    folder = tmp_path_factory.mktemp("text")
    tokens = np.cumsum(np.random.default_rng(0).integers(0, 3, 701)) % 50
    np.save(folder / "train.tokens.npy", tokens.astype(np.uint16))
    np.save(folder / "validation.tokens.npy", tokens[:130].astype(np.uint16))
    facts = {"task": "causal-lm", "vocab_size": 50, "eos_id": 0, "sequence_length": 16}
    (folder / "examples.json").write_text(json.dumps({**facts, "tokens": {"train": 701}}))
    return folder


@pytest.fixture(scope="session")
def packed_examples(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """90 documents of 1 to 24 tokens out of 50, in 74 sequences of 16; 20 of them for validation, too."""
    folder = tmp_path_factory.mktemp("packed")
    random = np.random.default_rng(0)
    documents = [np.append(np.cumsum(random.integers(1, 4, random.integers(0, 24))) % 49 + 1, 0) for _ in range(90)]
    facts = {"task": "causal-lm", "vocab_size": 50, "eos_id": 0, "sequence_length": 16, "packing": "documents"}
    for split, own in (("train", documents), ("validation", documents[:20])):
        np.save(folder / f"{split}.tokens.npy", np.concatenate(own).astype(np.uint16))
        np.save(folder / f"{split}.offsets.npy", np.cumsum([0, *(len(document) for document in own)]))
        np.save(folder / f"{split}.bytes.npy", np.array([len(document) for document in own]))
        write_packed(folder, split, 16)
    (folder / "examples.json").write_text(json.dumps(facts))
    return folder


@pytest.fixture(scope="session")
def imported_code(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Let transformers keep the code that it imports in a folder of the tests'."""
    with pytest.MonkeyPatch.context() as patch:
        cache = str(tmp_path_factory.mktemp("modules"))
        patch.setattr("transformers.dynamic_module_utils.HF_MODULES_CACHE", cache)
        yield


@pytest.fixture
def job(tmp_path: Path) -> JobSpec:
    """A job of two processes in an empty folder."""
    return job_spec(tmp_path, seed=7, resources={"processes": 2}, threads=3)
