"""Bytes of a training's weights, determined before its job begins.

    python -m understudy.launch.local.weighing JOB.json

Weight files have sizes. An architecture of transformers is built on the meta device, in a separate process: the step's
process does not import torch. User code may do anything when it is built, and is not weighed.
"""

import subprocess
import sys
from pathlib import Path

from understudy.agent.parent import die_with_parent, environment
from understudy.errors import InputError, UnderstudyError
from understudy.jobs.payload import TrainingJob
from understudy.jobs.specification import JobSpec
from understudy.launch.local import warm
from understudy.models.facts import read_facts
from understudy.models.weight_files import weight_bytes
from understudy.plan.lower_bounds import Held
from understudy.recipe import ArchitectureModel, SavedModel
from understudy.store import Run
from understudy.store.files import read_json, write_json

MODULE = "understudy.launch.local.weighing"


def model_weights(run: Run, spec: JobSpec, job: TrainingJob) -> Held:
    """Bytes of a training's weights, 0 where they cannot be determined beforehand.

    Args:
        run: the run, whose warm process is used if it has one.
        spec: the job.
        job: its training.
    """
    beside = [Path(teacher.folder) for teacher in job.teachers.values() if isinstance(teacher, SavedModel)]
    teacher = sum(map(weight_bytes, beside))
    if job.initial:
        return Held(weight_bytes(job.initial), teacher)
    return Held(_built_size(run, spec) if isinstance(job.model, ArchitectureModel) else 0, teacher)


def _built_size(run: Run, spec: JobSpec) -> int:
    """Bytes of the model, built on the meta device; 0 if it cannot be built, which the job will report."""
    path, answer, log = spec.write(), _answer(spec), Path(spec.logs) / f"{spec.role}.log"
    answer.unlink(missing_ok=True)
    worker = warm.start(run, MODULE, str(path), environment(), log)
    if worker:
        worker.wait()
    else:
        command, alone = [sys.executable, "-m", MODULE, str(path)], environment()
        with log.open("ab") as output:
            subprocess.run(command, env=alone, stdin=subprocess.DEVNULL, stdout=output, stderr=output, check=False)
    size = read_json(answer)
    answer.unlink(missing_ok=True)
    return size if isinstance(size, int) else 0


def _answer(spec: JobSpec) -> Path:
    return Path(spec.folder) / "weights.json"


def main() -> int:
    """Write the bytes of the weights of a job's model."""
    die_with_parent()
    from understudy.models.describe import describe
    from understudy.plan.weights import weights_of

    spec = JobSpec.read(Path(sys.argv[1]))
    job = spec.payload
    assert isinstance(job, TrainingJob)
    try:
        described = describe(job.model, read_facts(job.examples), job.model_path)
    except InputError:
        return UnderstudyError.exit_code
    write_json(_answer(spec), weights_of(described, job.model_path).parameters)
    return 0


if __name__ == "__main__":
    sys.exit(main())
