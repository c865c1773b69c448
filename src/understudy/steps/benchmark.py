"""Models -> their scores on tasks of lm-eval, by a job without credentials. A champion is not scored.

The scores are for people: the report and MLflow show them, and the gate does not decide by them.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path

from understudy.errors import InputError, UnderstudyError, disk_errors
from understudy.evaluate.benchmark_scores import CONTENTS, figures
from understudy.evaluate.benchmark_tasks import Benchmark, benchmarks
from understudy.graph import Node
from understudy.launch.platform import platform
from understudy.recipe import Recipe
from understudy.recipe.roles import CONTROL, STUDENT
from understudy.steps.delivery import deliver
from understudy.steps.job import run_job
from understudy.steps.job_spec import benchmark_spec
from understudy.steps.results import settings_of
from understudy.steps.scores import checked_scores
from understudy.steps.step import Step, Work
from understudy.store import Store
from understudy.store.files import hash_file, write_json

LISTED = "tasks.json"
SETTINGS = ("precision", "device", "code", "task_code")
"""The settings of an evaluation that decide these scores, too."""


def check_installed() -> None:
    """Check that lm-eval is installed where keys are computed: its version is a part of them.

    Raises:
        InputError: it is not.
    """
    try:
        metadata.version("lm-eval")
    except metadata.PackageNotFoundError as error:
        raise InputError(
            "evaluate.lm_eval: lm-eval is not installed here: pip install 'understudy[lm-eval]', in a cluster into the "
            "trainer's image"
        ) from error


def tasks_of(recipe: Recipe) -> list[Benchmark]:
    """The tasks of a recipe that has evaluate.lm_eval.

    Raises:
        InputError: as in benchmarks(), or lm-eval is not installed.
    """
    settings = recipe.evaluate.lm_eval
    assert settings is not None
    check_installed()
    return benchmarks(settings, recipe.text.sequence_length)


def _section(recipe: Recipe, store: Store) -> Mapping[str, object]:
    settings = recipe.evaluate.lm_eval
    assert settings is not None
    of_models = settings_of(recipe, store)
    return {
        "task": recipe.task,
        "tasks": [task.identity(store.fingerprints) for task in tasks_of(recipe)],
        "lm_eval": settings.model_dump(mode="json", exclude={"include"}),
        **{name: of_models[name] for name in SETTINGS},
    }


def _benchmark(work: Work) -> None:
    models = {role: work.input(role) for role in (*work.recipe.all_teachers, STUDENT, CONTROL) if role in work.inputs}
    platform().prepare(work.run)
    folder = _task_files(work)
    spec = benchmark_spec(work, list(models), folder)
    deliver(run_job(work, spec), work.staged, {CONTENTS}.__contains__)
    scores = checked_scores(work.staged / CONTENTS, work.recipe, models)
    shutil.rmtree(folder, ignore_errors=True)
    for role, of_model in scores["models"].items():
        values = figures(of_model).items()
        work.facts.update({f"{role}/{name}": value for name, value in values if not name.endswith("_stderr")})


def _task_files(work: Work) -> Path:
    """A folder of the tasks and their files for the job, which reads nothing else of this machine's.

    It is beside the job's folder, where ranks cannot write. Its content is a part of the step's key.

    Raises:
        UnderstudyError: a file was changed since the key was computed.
    """
    folder = work.lease.folder.parent / "tasks"
    work.lease.check()
    if folder.is_dir():  # of an earlier attempt, whose job may still read it
        return folder
    tasks = tasks_of(work.recipe)
    with disk_errors(folder), tempfile.TemporaryDirectory(dir=work.lease.folder) as name:
        copies = Path(name) / "tasks"
        for task in tasks:
            for place, path in task.files.items():
                (copies / place).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(path, copies / place)
        found = [_identity(task, copies) for task in tasks]
        if found != json.loads(json.dumps(work.decided_by["recipe"]["tasks"])):
            raise UnderstudyError("evaluate.lm_eval: a file of the tasks was changed during the run; run again")
        copies.mkdir(exist_ok=True)
        write_json(copies / LISTED, [task.config for task in tasks])
        os.rename(copies, folder)
    return folder


def _identity(task: Benchmark, copies: Path) -> Mapping[str, object]:
    """A task's identity by the copies of its files."""
    digests = {place: hash_file(copies / place) for place in task.files}
    identity: Mapping[str, object] = json.loads(json.dumps({"config": task.config, "files": digests}))
    return identity


def step(node: Node) -> Step:
    """The step of a node of the kind `benchmark`."""
    return Step(
        name=node.name,
        role=node.role,
        kind="benchmarks",
        work=_benchmark,
        modules=("understudy.evaluate.benchmark",),
        functions=(_benchmark,),
        section=_section,
        inputs=node.inputs,
    )
