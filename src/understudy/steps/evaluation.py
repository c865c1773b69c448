"""The steps that judge: measure every model side by side, decide, and hand the evidence to the registry."""

import json
import shutil
import time
from pathlib import Path
from typing import Any

from understudy import __version__
from understudy.errors import UnderstudyError
from understudy.launch.kubernetes.settings import in_cluster
from understudy.recipe import FactoryModel, Recipe
from understudy.revision import JOB_MODULES, revision
from understudy.steps.execution import Step, Work, tracking_uri
from understudy.steps.training import device, device_here, model_identity
from understudy.store import Run, Store
from understudy.store.files import canonical, read_json, sha256, write_json

MODELS = ("teacher", "student", "control", "champion")
LINEAGE = ("records", "examples", "teacher", "student", "control")


def champion_input(store: Store, run: Run, examples: str) -> dict[str, str]:
    """The champion's digest by its role; nothing when there is none, or none that can be measured on these examples.

    Why it cannot is written into the run's folder: the gate fails closed on it.
    """
    problem, found = "", {}
    try:
        found = _champion(store, run)
        for champion in found.values():
            _check_meaning(store.objects.path(champion), store.objects.path(examples))
    except UnderstudyError as error:
        problem, found = str(error), {}
    write_json(run.folder / "champion.json", {"problem": problem})
    return found


def _champion(store: Store, run: Run) -> dict[str, str]:
    from understudy.registry.champion import champion, fetch

    uri = tracking_uri(store)
    found = champion(uri, Recipe.model_validate(run.recipe).model_name)
    if found is None:
        return {}
    run.use(found.digest)
    if store.objects.damage(found.digest):
        folder = run.folder / "champion"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        manifest = fetch(uri, found, folder)
        store.objects.publish(folder, manifest.kind, manifest.inputs, manifest.facts)
    return {"champion": found.digest}


def _check_meaning(champion: Path, examples: Path) -> None:
    """Refuse a champion to which these examples' labels, pixels or tokens mean something else than to the student."""
    own, ours = read_json(champion / "understudy.json"), read_json(examples / "examples.json")
    same = all(own.get(key) == ours.get(key) for key in ("task", "labels", "image", "vocab_size"))
    tokenizers = [folder / "tokenizer.json" for folder in (champion, examples)]
    if not same or len({path.read_bytes() if path.exists() else b"" for path in tokenizers}) > 1:
        raise UnderstudyError(
            "the champion was trained for other labels, image sizes or tokens than this run's data has; give the alias "
            "champion to a version that fits, remove the alias, or set register.model to another name"
        )


def gate_world(run: Run) -> dict[str, str]:
    """What the gate knows of the registry: why the champion could not be measured, if so."""
    problem = (read_json(run.folder / "champion.json") or {}).get("problem", "")
    return {"champion_problem": problem} if problem else {}


def register_world(store: Store) -> dict[str, str]:
    """Which server the student goes to."""
    from understudy.registry.server import identity

    return {"server": identity(tracking_uri(store))}


def _evaluate_section(recipe: Recipe, store: Store) -> dict[str, Any]:
    code = {
        where: model_identity(model, store, where)
        for where, model in recipe.models.items()
        if isinstance(model, FactoryModel)
    }
    return {
        "task": recipe.task,
        "code": code,
        "metrics": list(recipe.metrics),
        "gate_metric": recipe.gate_metric,
        "evaluate": recipe.evaluate.model_dump(mode="json"),
        "device": _device(recipe),
    }


def _device(recipe: Recipe) -> str:
    """Where models are measured: as the student is trained; in a cluster that is in another pod, with what this has."""
    return device_here() if in_cluster() else device(recipe.resources.distill)


def _evaluate(work: Work) -> None:
    from understudy.evaluate.measure import measure

    roles = [role for role in MODELS if role in work.inputs]
    print(f"{time.time():.3f} measuring", flush=True)
    measure(
        {role: work.input(role) for role in roles},
        {role: work.inputs[role] for role in roles},
        work.input("examples"),
        work.recipe,
        work.staged,
        _device(work.recipe),
        work.progress,
    )
    print(f"{time.time():.3f} measured", flush=True)
    measures = json.loads((work.staged / "measures.json").read_text())
    for role, model in measures["models"].items():
        work.facts.update({f"{role}/{name}": value for name, value in model["metrics"].items() if value is not None})


def _gate_section(recipe: Recipe, store: Store) -> dict[str, Any]:
    del store
    return {"gate": recipe.gate.model_dump(mode="json"), "metric": recipe.gate_metric, "recipe": _recipe(recipe)}


def _recipe(recipe: Recipe) -> dict[str, Any]:
    """The recipe without what changes nothing in the result, for the report."""
    checkpoints = {"train": {"checkpoint_every"}}
    return recipe.model_dump(
        mode="json",
        by_alias=True,
        exclude={"resources": True, "register_": True, "teacher": checkpoints, "student": checkpoints},
    )


def _gate(work: Work) -> None:
    import numpy as np

    from understudy.evaluate.cautions import training_losses
    from understudy.evaluate.gate import decide
    from understudy.evaluate.report import write

    measures = json.loads((work.input("measures") / "measures.json").read_text())
    with np.load(work.input("measures") / "per_example.npz") as arrays:
        per_example = dict(arrays)
    histories = {role: history for role in MODELS[:3] if (history := _history(work, role))}
    verdict = decide(
        measures,
        per_example,
        work.recipe.gate,
        work.recipe.gate_metric,
        work.world.get("champion_problem", ""),
        training_losses(histories, work.recipe.student.distill.alpha),
    )
    write_json(work.staged / "verdict.json", verdict)
    lineage = {role: work.inputs[role] for role in LINEAGE if role in work.inputs}
    write(work.staged, _recipe(work.recipe), measures, verdict, histories, lineage, per_example)


def _history(work: Work, role: str) -> list[dict[str, float]] | None:
    return read_json(work.input(role) / "history.json") if role in work.inputs else None


def _register_section(recipe: Recipe, store: Store) -> dict[str, Any]:
    del store
    return {"model": recipe.model_name, "experiment": recipe.experiment, "recipe": _recipe(recipe)}


def _register(work: Work) -> None:
    from dataclasses import asdict

    from understudy.registry.champion import champion
    from understudy.registry.recorder import close_dead
    from understudy.registry.register import is_registered, register
    from understudy.registry.server import identity

    lineage = {role: work.inputs[role] for role in LINEAGE if role in work.inputs}
    registration = register(
        work.run,
        work.recipe,
        work.tracking_uri,
        model=work.input("student"),
        model_digest=work.inputs["student"],
        measures=work.input("measures"),
        verdict=work.input("verdict"),
        models={role: work.input(role) for role in MODELS[:3] if role in work.inputs},
        lineage={**lineage, **_provenance(work.recipe)},
    )
    if registration.version:
        work.store.remember_server(identity(work.tracking_uri))
    close_dead(work.store, work.tracking_uri)
    # Asked now, while MLflow is imported, the answers are remembered, and the next run need not import it.
    is_registered(work.tracking_uri, registration, work.inputs["student"])
    champion(work.tracking_uri, work.recipe.model_name)
    write_json(work.staged / "registration.json", asdict(registration))
    work.facts.update({key: value for key, value in asdict(registration).items() if value is not None})


def tell_verdict(run: Run, store: Store) -> None:
    """Whoever waits for a run elsewhere asks MLflow for its verdict, also when an earlier run has registered it."""
    from understudy.registry.register import Registration
    from understudy.registry.verdict import keep_verdict

    state = run.state("register")
    if state and state.state == "reused" and state.digest:
        registered = Registration(**read_json(store.objects.path(state.digest) / "registration.json"))
        keep_verdict(run, tracking_uri(store), Recipe.model_validate(run.recipe).experiment, registered)


def _provenance(recipe: Recipe) -> dict[str, str]:
    return {
        "recipe": sha256(canonical(recipe.model_dump(mode="json", by_alias=True))),
        "revision": revision(JOB_MODULES)["source"],
        "version": __version__,
    }


def _is_still_registered(path: Path, store: Store) -> bool:
    from understudy.registry.register import Registration, is_registered

    registration = Registration(**json.loads((path / "registration.json").read_text()))
    manifest = store.objects.manifest(path.name)
    assert manifest is not None
    return is_registered(tracking_uri(store), registration, manifest.inputs["student"])


EVALUATE = Step("evaluate", "measures", ("understudy.evaluate.measure",), _evaluate_section, _evaluate)
GATE = Step("gate", "verdict", ("understudy.evaluate.gate", "understudy.evaluate.report"), _gate_section, _gate)
REGISTER = Step(
    "register",
    "registration",
    ("understudy.registry.register", "understudy.registry.serving"),  # the latter is stored with the version by path
    _register_section,
    _register,
    _is_still_registered,
)
