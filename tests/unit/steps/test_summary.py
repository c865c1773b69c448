"""Notes at the end of a run: records that were left out, objects that were damaged."""

import os
from pathlib import Path

import pytest
from PIL import Image

from understudy.launch.local.platform import LocalPlatform
from understudy.recipe import Recipe
from understudy.steps import steps_of, summary_of
from understudy.steps.execution import execute
from understudy.steps.step import Step
from understudy.store import Run, Store


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    folder = tmp_path / "texts"
    folder.mkdir()
    for number in range(40):
        (folder / f"{number:02}.txt").write_text(f"document {number}")
    return folder


@pytest.fixture
def run(store: Store, pydoc: Recipe, texts: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(LocalPlatform, "prepare", lambda *_: None)
    values = pydoc.model_dump(mode="json", by_alias=True)
    values["data"] |= {"source": {"type": "text-files", "path": str(texts)}, "on_error": "skip"}
    return store.create_run("texts", values, "")


@pytest.fixture
def image_run(store: Store, digits: Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(LocalPlatform, "prepare", lambda *_: None)
    for number in range(60):
        path = tmp_path / "images" / ("train", "Plane", "plane")[number % 3] / f"{number}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGBA", (2, 2), (number, 0, 0, 255 if number else 0)).save(path)
    values = digits.model_dump(mode="json", by_alias=True)
    values["data"]["source"] = {"type": "image-folder", "path": str(tmp_path / "images")}
    return store.create_run("images", values, "")


def ingest(run: Run) -> Step:
    return steps_of(Recipe.model_validate(run.recipe))["ingest"]


def test_records_that_were_left_out_are_counted_and_the_first_named(store: Store, run: Run, texts: Path) -> None:
    for number in range(4):
        (texts / f"{number:02}.txt").write_bytes(b"\xff")
    execute(ingest(run), store, run, {}, {})
    (note,) = summary_of(store, run).notes
    assert note.startswith("4 records left out: 00.txt is not UTF-8 text (byte 0); 01.txt")
    assert note.endswith("; ...")
    assert "03.txt" not in note


def test_a_damaged_object_is_named_and_made_again(store: Store, run: Run) -> None:
    result = execute(ingest(run), store, run, {}, {})
    damaged = result.path / "records.parquet"
    content = damaged.read_bytes()
    damaged.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    again = store.create_run("texts", run.recipe, "")
    assert execute(ingest(again), store, again, {}, {}).digest == result.digest
    assert damaged.read_bytes() == content
    (note,) = summary_of(store, again).notes
    assert note == f"damaged, so ingest was done again: {os.fspath(damaged)}: was changed"
    assert summary_of(store, run).notes == []


def test_what_should_be_noted_of_the_data_is(store: Store, image_run: Run) -> None:
    execute(ingest(image_run), store, image_run, {}, {})
    split, transparent, labels = summary_of(store, image_run).notes
    assert split == "called like a split, and read as any other label: train/"
    assert transparent.startswith("1 image is transparent in part; data.image.background says")
    assert labels == "labels that may be meant to be one: Plane, plane"
