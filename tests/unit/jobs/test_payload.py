"""The folders that a job reads: its ranks mount them, and a node copies them."""

from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.jobs.specs import evaluation_spec, job_spec
from understudy.jobs.payload import Serving
from understudy.jobs.specification import JobSpec

SPECS = [
    job_spec("/f", teacher="/t", initial="/i"),
    job_spec("/f", teacher="/t", start={"folder": "/t", "start": {"teacher": "teacher", "layers": (1, 3)}}),
    job_spec("/f"),
    evaluation_spec("/f", records="/r"),
    evaluation_spec("/f"),
    evaluation_spec("/f", known={"teacher": "/k"}),
    replace(evaluation_spec("/f"), role="serving", payload=Serving(folder="/f/served")),
]


@pytest.mark.parametrize("spec", SPECS)
def test_a_specification_is_read_as_it_was_written(tmp_path: Path, spec: JobSpec) -> None:
    assert JobSpec.read(spec.write(tmp_path / "job.json")) == spec


@pytest.mark.parametrize("spec", SPECS)
def test_work_on_copies_is_the_same_but_for_its_folders(spec: JobSpec) -> None:
    payload = spec.payload
    copies = {name: f"/cache{folder}" for name, folder in payload.reads.items()}
    on_copies = payload.reading(copies)
    assert on_copies.reads == copies
    assert on_copies.reading(payload.reads) == payload


def test_all_models_are_read_and_the_results_that_are_known() -> None:
    assert evaluation_spec("/f", records="/r", known={"teacher": "/k"}).payload.reads == {
        "examples": "/f/examples",
        "records": "/r",
        "teacher": "/f/teacher",
        "student": "/f/student",
        "results of teacher": "/k",
    }
