"""The verdict -> a record of the run in MLflow, and a model version if the gate approved the student."""

import os
from collections.abc import Mapping
from dataclasses import asdict
from functools import partial
from pathlib import Path

from understudy import __version__
from understudy.graph import BENCHMARKS, EXAMPLES, MEASURES, REGISTRATION, VERDICT, Node, nodes
from understudy.recipe import Recipe
from understudy.recipe.roles import STUDENT, TEACHER
from understudy.revision import TRAINING, revision
from understudy.steps.environment import RUN, tracking_uri
from understudy.steps.evidence import lineage, reported_recipe, roles, trained
from understudy.steps.graph import state_of
from understudy.steps.identity import task_code
from understudy.steps.step import Result, Step, Work, World
from understudy.store import Run, Store
from understudy.store.files import canonical, read_json, sha256, write_json

FILE = "registration.json"
REGISTERED_BY = (
    "AUTO_MODEL",
    "OUTPUTS",
    "PARAMS",
    "LIBRARIES",
    "FILES",
    "inputs",
    "example",
    "Predictor",
    "request",
    "losses",
    "losses_by_transformers",
)
"""The parts of a task's module that decide a registered version."""


def _server(run: Run, store: Store, inputs: Mapping[str, str]) -> World:
    """The identity of the tracking server where the student is registered."""
    from understudy.registry.server import identity

    del run, inputs
    return World(facts={"server": identity(tracking_uri(store), store.folder.parent)})


def _section(recipe: Recipe, store: Store) -> Mapping[str, object]:
    from understudy.registry.task import served_task

    del store
    return {
        "model": recipe.model_name,
        "experiment": recipe.experiment,
        "candidate": recipe.candidate,
        "recipe": reported_recipe(recipe),
        "task_code": task_code(recipe.task, REGISTERED_BY),
        "task_files": revision(tuple(served_task(recipe.task).FILES.values()))["source"],
    }


def _register(work: Work) -> None:
    from understudy.registry.champion import champion
    from understudy.registry.recorder import close_dead
    from understudy.registry.register import is_registered, register
    from understudy.registry.submission import Submission
    from understudy.steps.served import can_be_proved, prove

    submission = Submission(
        work.recipe,
        model=work.input(work.recipe.candidate),
        digest=work.inputs[work.recipe.candidate],
        measures=work.input(MEASURES),
        verdict=work.input(VERDICT),
        models={role: work.input(role) for role in trained(work)},
        steps={node.role: node.name for node in nodes(work.recipe)},
        examples=work.input(EXAMPLES),
        lineage={**_tagged(work), **_provenance(work.recipe)},
        benchmarks=work.input(BENCHMARKS) if BENCHMARKS in work.inputs else None,
    )
    scored = partial(prove, work) if can_be_proved(work.recipe) else None
    registration = register(work.run, work.tracking_uri, submission, scored)
    if registration.version:
        _remember(work)
    close_dead(work.store, work.tracking_uri)
    # Query now, while MLflow is imported: the answers are cached, and the next run need not import it.
    is_registered(work.tracking_uri, registration, work.inputs[work.recipe.candidate])
    champion(work.tracking_uri, work.recipe.model_name)
    write_json(work.staged / FILE, asdict(registration))
    work.facts.update({key: value for key, value in asdict(registration).items() if value is not None})


def _tagged(work: Work) -> dict[str, str]:
    """The lineage as tags: with several teachers, `teacher` is the one that the student was compared with."""
    reference = read_json(work.input(MEASURES) / "measures.json")["reference"]
    teachers = {f"teacher.{name}": work.inputs[name] for name in work.recipe.teachers}
    run = {role: digest for role, digest in lineage(work).items() if role not in work.recipe.teachers}
    return {**run, **teachers, TEACHER: work.inputs[reference]}


def _remember(work: Work) -> None:
    """Record the server for gc; one with accounts may hide versions from an account, so record their digests too."""
    from understudy.registry.server import database, identity

    roles = () if database(work.tracking_uri) else (work.recipe.candidate, *work.recipe.all_teachers)
    digests = [work.inputs[role] for role in roles if role in work.inputs]
    work.store.remember_server(identity(work.tracking_uri, work.store.folder.parent), digests)


def _provenance(recipe: Recipe) -> dict[str, str]:
    return {
        "recipe": sha256(canonical(recipe.model_dump(mode="json", by_alias=True))),
        "revision": revision(TRAINING)["source"],
        "version": __version__,
    }


def _is_still_registered(path: Path, store: Store) -> bool:
    from understudy.registry.register import Registration, is_registered

    registration = Registration(**read_json(path / FILE))
    manifest = store.objects.manifest(path.name)
    assert manifest is not None
    return is_registered(tracking_uri(store), registration, manifest.inputs[registration.candidate])


def _outcome(result: Result) -> str:
    """The model version, or why there is none."""
    from understudy.registry.server import for_people

    registration = read_json(result.path / FILE)
    page = for_people(registration["url"])
    if registration["version"] is None:
        return f"the gate rejected the {registration.get('candidate', STUDENT)}: recorded at {page}, no version"
    return f"version {registration['version']} of {registration['name']}, {page}"


def _remark(result: Result) -> str:
    """What was recorded, if no version was: the step is done all the same."""
    registration = read_json(result.path / FILE)
    if registration["version"] is not None:
        return ""
    return f"evidence recorded; no version, since the gate rejected the {registration.get('candidate', STUDENT)}"


def _tell_verdict(run: Run, store: Store) -> None:
    """Write the verdict to MLflow for remote clients, if an earlier run registered the student."""
    if RUN in os.environ:  # this run's client is local and reads the verdict from the store
        return
    from understudy.registry.register import Registration
    from understudy.registry.verdict import keep_verdict

    state = state_of(run, REGISTRATION)
    if state and state.state == "reused" and state.digest:
        registered = Registration(**read_json(store.objects.path(state.digest) / FILE))
        keep_verdict(run, tracking_uri(store), Recipe.model_validate(run.recipe).experiment, registered)


def step(node: Node) -> Step:
    """The step of a node of the kind `registration`."""
    return Step(
        name=node.name,
        role=node.role,
        kind="registration",
        work=_register,
        # MLflow stores the source file of the last one with a version.
        modules=(
            "understudy.registry.register",
            "understudy.registry.loaded",
            "understudy.evaluate.served",
            "understudy.registry.serving",
        ),
        functions=(_register, _tagged, reported_recipe, lineage, roles, trained),
        section=_section,
        inputs=node.inputs,
        outside=_server,
        still_holds=_is_still_registered,
        outcome=_outcome,
        remark=_remark,
        follow=_tell_verdict,
    )
