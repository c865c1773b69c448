"""Job statuses for the tests of rules: a watched job, with the fields that a test sets."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from understudy.jobs.specification import JobSpec
from understudy.kube.identity import Identity
from understudy.kube.job_state import JobState
from understudy.kube.settings import Cluster
from understudy.kube.timeouts import RECOVERY
from understudy.launch.kubernetes.history import History
from understudy.launch.kubernetes.job import Job
from understudy.launch.kubernetes.status import JobStatus

OWNER = {"apiVersion": "batch/v1", "kind": "Job", "name": "run", "uid": "run"}


def job_of(spec: JobSpec, **changes: Any) -> Job:
    """A launcher's knowledge of its job."""
    Path(spec.folder).mkdir(parents=True, exist_ok=True)
    cluster = Cluster(image="i:1", claim="store", mount=str(Path(spec.folder).parents[1]))
    default = Job(spec, Identity("run", "teacher", "0" * 64), spec.resources, cluster, 0.0, OWNER)
    return replace(default, **changes)


def status_of(job: Job, state: JobState, **fields: Any) -> JobStatus:
    """A job that is watched and stands somewhere."""
    job_object = {"metadata": {"name": job.name, "uid": "0"}, "spec": {}}
    return JobStatus(job, **{"at": 0.0, "name": job.name, "watched": job_object, "state": state, **fields})


def waiting(status: JobStatus, seconds: float = RECOVERY) -> History:
    """The history of a job that has stood for so long where it does."""
    return replace(History(status.name).after(status), since=status.at - seconds)
