"""The steps that train: a job specification for the launcher, progress for the watchers, a model for the store."""

import json
import os
import shutil
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from understudy.errors import STOPPED, InputError, Stopped, UnderstudyError
from understudy.jobs import attempts
from understudy.jobs.outcome import Outcome
from understudy.jobs.specification import JobSpec, Role
from understudy.launch.kubernetes import task_config
from understudy.launch.kubernetes.settings import cluster_settings, in_cluster
from understudy.launch.local import launcher, warm
from understudy.models import pretrained
from understudy.models.user_code import user_code
from understudy.recipe import LABELS, FactoryModel, Model, ObjectiveSection, PretrainedModel, Recipe, Resources, Train
from understudy.revision import build, revision
from understudy.steps.execution import Work
from understudy.store import Run, Store
from understudy.store.files import flush


def device(resources: Resources) -> Literal["cpu", "cuda"]:
    """Cpu or cuda: what auto means on this machine or for the job's pods, found without importing torch."""
    if resources.device != "auto":
        return resources.device
    if in_cluster():
        has_gpus = cluster_settings().pool(resources, "resources").gpu or task_config.of_this_step().gpus
        return "cuda" if has_gpus else "cpu"
    return device_here()


def device_here() -> Literal["cpu", "cuda"]:
    """Cpu or cuda: what this process's own machine or pod has, found without importing torch."""
    return "cuda" if Path("/proc/driver/nvidia/version").exists() and Path("/dev/nvidiactl").exists() else "cpu"


def model_identity(model: Model, store: Store, where: str) -> dict[str, Any]:
    """What decides a model's initial state: its section, the content that the section points to, how it is read."""
    if isinstance(model, PretrainedModel):
        section = model.model_dump(mode="json", exclude={"pretrained", "revision"})  # where it lies decides nothing
        content = pretrained.identity(model, store.fingerprints, where)
        return {**section, "content": content, "code": revision(("understudy.models.pretrained",))}
    section = model.model_dump(mode="json")
    if isinstance(model, FactoryModel):
        try:
            return {**section, "content": user_code(model.factory.partition(":")[0]).identity}
        except ModuleNotFoundError as error:
            raise InputError(f"{where}.factory: there is no module {error}; is PYTHONPATH set?") from error
    return section


def _training(train: Train | None, resources: Resources, seed: int) -> dict[str, Any]:
    """What of the way a model is trained has a say in its numbers.

    Checkpoints have none. Threads change the order of sums, and so the last bits, from machine to machine; what one
    machine has trained is not trained again for that.
    """
    if train is None:
        return {}
    settings = train.model_dump(mode="json", exclude={"checkpoint_every"})
    least = [resources.min_nodes] if resources.min_nodes else []
    world = [resources.nodes, resources.processes, *least]
    return {"seed": seed, "train": settings, "world": world, "device": device(resources)}


def teacher_section(recipe: Recipe, store: Store) -> dict[str, Any]:
    """What decides the teacher."""
    model = model_identity(recipe.teacher.model, store, "teacher.model")
    return {"model": model, **_training(recipe.teacher.train, recipe.resources.teacher, recipe.seed)}


def student_section(recipe: Recipe, store: Store) -> dict[str, Any]:
    """What decides the student without its teacher."""
    model = model_identity(recipe.student.model, store, "student.model")
    return {"model": model, **_training(recipe.student.train, recipe.resources.distill, recipe.seed)}


def distill_section(recipe: Recipe, store: Store) -> dict[str, Any]:
    """What decides the student."""
    return {
        **student_section(recipe, store),
        "distill": [objective.model_dump(mode="json") for objective in recipe.student.distill],
    }


def expect_jobs(recipe: Recipe, run: Run) -> None:
    """Get ready for this run's trainings, if one of them will want a single process here."""
    if in_cluster():
        return
    sizes = [found.nodes * found.processes for found in (recipe.resources.teacher, recipe.resources.distill)]
    if 1 in sizes:
        warm.begin(run)


def train_teacher(work: Work) -> None:
    """Train the teacher, or fetch it, or both."""
    recipe = work.recipe
    initial = _fetched(work, recipe.teacher.model, "teacher.model", "new" if recipe.teacher.train else "kept")
    if recipe.teacher.train is None:
        assert initial is not None
        for path in initial.iterdir():
            os.link(path, work.staged / path.name)
        return
    resources = recipe.resources.teacher
    _train(work, _spec(work, "teacher", recipe.teacher.model, recipe.teacher.train, resources, initial), resources)


def distill(work: Work) -> None:
    """Train the student with the teacher."""
    _student(work, "distill", work.recipe.student.distill)


def train_control(work: Work) -> None:
    """Train the student without the teacher: same budget, same seed."""
    _student(work, "control", LABELS)


def _student(work: Work, role: Role, objectives: tuple[ObjectiveSection, ...]) -> None:
    student = work.recipe.student
    initial = _fetched(work, student.model, "student.model", "new")
    resources = work.recipe.resources.distill
    _train(work, _spec(work, role, student.model, student.train, resources, initial, objectives), resources)


def _fetched(work: Work, model: Model, where: str, head: str) -> Path | None:
    """A pretrained model's files, in the work folder."""
    if not isinstance(model, PretrainedModel):
        return None
    folder = _folder(work) / "initial"
    if folder.is_dir():  # a launcher before this one has fetched it, and its job may be running
        return folder
    work.progress(0, 0, detail=f"fetching {model.pretrained}")
    work.lease.check()
    for epoch in range(work.lease.epoch):  # half a model each, of launchers before this one
        shutil.rmtree(folder.with_name(f"initial.{epoch}"), ignore_errors=True)
    aside = folder.with_name(f"initial.{work.lease.epoch}")
    aside.mkdir()
    try:
        pretrained.fetch(model, work.input("examples"), aside, where, head)
        for path in [*aside.iterdir(), aside]:
            flush(path)
    except OSError:
        work.lease.check()  # the next launcher has removed what lay there
        raise
    work.lease.check()
    aside.rename(folder)
    return folder


def _folder(work: Work) -> Path:
    """The job's folder. In a cluster it is beside the lease's, not in it: a job outlives the launcher's pod."""
    if not in_cluster():
        return work.lease.folder
    folder = work.lease.folder.parent / "job"
    folder.mkdir(exist_ok=True)
    return folder


def _train(work: Work, spec: JobSpec, resources: Resources) -> None:
    expect_jobs(work.recipe, work.run)
    with _recorded(work, spec):
        spec, outcome = _launched(work, spec, resources)
        _check(work.step, outcome)
    os.rename(spec.output, work.staged)  # whole or not at all: a launcher that ends here leaves no half of a model


def _check(step: str, outcome: Outcome) -> None:
    if outcome.exit_code == STOPPED:
        raise Stopped(f"{step}: {outcome.message}; run again to go on")
    if outcome.exit_code == InputError.exit_code:
        raise InputError(outcome.message)
    if outcome.exit_code:
        raise UnderstudyError(f"{step}: {outcome.message}")


def _spec(
    work: Work,
    role: Role,
    model: Model,
    train: Train,
    resources: Resources,
    initial: Path | None,
    objectives: tuple[ObjectiveSection, ...] = LABELS,
) -> JobSpec:
    return JobSpec(
        version=build(),
        role=role,
        folder=str(_folder(work)),
        examples=str(work.input("examples")),
        initial=str(initial) if initial else None,
        teacher=str(work.input("teacher")) if "teacher" in work.inputs else None,
        model=model,
        train=train,
        objectives=objectives,
        seed=work.recipe.seed,
        resources=resources,
        threads=_threads(resources),
        device=device(resources),
        logs=str(work.run.folder / "logs"),
        others=_others(work.recipe, role),
        supervised=in_cluster(),
        launcher_timeout=cluster_settings().launcher_timeout if in_cluster() else JobSpec.launcher_timeout,
    )


def _threads(resources: Resources) -> int:
    """Threads of a process: all that a single one may take, one where there are several."""
    if resources.threads or resources.nodes * resources.processes > 1:
        return resources.threads or 1
    if in_cluster() and resources.cpu:
        from understudy.launch.kubernetes.status import amount

        return max(1, int(amount(resources.cpu)))
    return os.cpu_count() or 1


def _launched(work: Work, spec: JobSpec, resources: Resources) -> tuple[JobSpec, Outcome]:
    """The job, and how it ended: here or in the cluster that this step runs in."""
    watch = _Watch(work, spec)
    if not in_cluster():
        return spec, launcher.run(spec, watch, work.run)
    from understudy.launch.kubernetes import controller
    from understudy.launch.kubernetes.api import Kube
    from understudy.launch.kubernetes.owner import owner_reference
    from understudy.launch.kubernetes.pytorchjob import Identity

    kube, cluster = Kube(), cluster_settings()
    key = work.lease.folder.parent.name
    identity = Identity(work.run.id, work.step, key)
    began = float(work.run.facts["started"])
    owner = owner_reference(kube, watch)
    job = controller.Job(spec, identity, resources, cluster, began, owner, task_config.of_this_step())
    outcome = controller.run(job, kube, watch, watch.tell)
    attempt = attempts.latest(Path(spec.folder))
    return (replace(spec, attempt=attempt.name) if attempt else spec), outcome


def _others(recipe: Recipe, role: Role) -> dict[str, Model]:
    """The models of the recipe that this job does not train; what is fetched is checked when it is."""
    own = "teacher.model" if role == "teacher" else "student.model"
    return {
        where: model
        for where, model in recipe.models.items()
        if where != own and role != "distill" and not isinstance(model, PretrainedModel)
    }


def _recorded(work: Work, spec: JobSpec) -> AbstractContextManager[None]:
    """MLflow's nested run of the step, with the curve while it grows."""
    from understudy.registry.recorder import Recorder

    tags = {f"understudy.{role}": digest for role, digest in work.inputs.items()}
    return Recorder(work.run, work.tracking_uri, work.recipe.experiment, tags).follow(work.step, spec.metrics)


class _Watch:
    """While a job runs: hand on a request to stop, tell how far it is, and end it when the lease is lost."""

    def __init__(self, work: Work, spec: JobSpec) -> None:
        self._work, self._spec = work, spec
        self._read = -1
        folder = attempts.latest(Path(spec.folder)) or spec.work
        steps = [int(path.name.removeprefix("step-")) for path in (folder / "checkpoints").glob("step-*")]
        work.progress(0, 0, detail=f"going on from step {max(steps)}" if steps else "starting")

    def __call__(self) -> None:
        self._work.lease.check()
        if self._work.run.stop_requested:
            self._spec.stop_file.touch()
        size = self._spec.metrics.stat().st_size if self._spec.metrics.exists() else 0
        if size not in (0, self._read):
            self._read = size
            with suppress(ValueError):  # a line that is being written; the next look has it whole
                self._tell_step(json.loads(self._last_line(size)))

    def tell(self, text: str) -> None:
        """Show where a job in a cluster stands before and between its steps."""
        self._work.stand(text)

    def _last_line(self, size: int) -> bytes:
        with self._spec.metrics.open("rb") as stream:
            stream.seek(max(0, size - 4096))
            return stream.read().rstrip().rpartition(b"\n")[2]

    def _tell_step(self, entry: dict[str, Any]) -> None:
        unit = "tokens" if self._work.recipe.task == "causal-lm" else "images"
        detail = f"loss {entry['loss']:.4f}, {entry['rate']:,.0f} {unit}/s"
        self._work.progress(entry["step"], entry["steps"], "steps", detail)
