"""Fetching a pretrained model into a step's work folder: whole or not at all, and once, whoever launches the step."""

import shutil
from pathlib import Path

from understudy.launch.kubernetes.settings import in_cluster
from understudy.models import pretrained
from understudy.recipe import Model, PretrainedModel
from understudy.steps.step import Work
from understudy.store.files import flush


def fetched_model(work: Work, model: Model, where: str, head: str) -> Path | None:
    """A pretrained model's files, in the work folder; None for a model that is not pretrained."""
    if not isinstance(model, PretrainedModel):
        return None
    folder = job_folder(work) / "initial"
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


def job_folder(work: Work) -> Path:
    """The job's folder. In a cluster it is beside the lease's, not in it: a job outlives the launcher's pod."""
    if not in_cluster():
        return work.lease.folder
    folder = work.lease.folder.parent / "job"
    folder.mkdir(exist_ok=True)
    return folder
