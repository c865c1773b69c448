"""Fetching a pretrained model into a step's work folder: whole or not at all, and only once."""

import shutil
from pathlib import Path

from understudy.models import pretrained
from understudy.recipe import Model, PretrainedModel
from understudy.steps.step import Work
from understudy.store.files import flush


def fetched_model(work: Work, model: Model, where: str, head: pretrained.Head) -> Path | None:
    """A pretrained model's files, in the work folder; None for a model that is not pretrained."""
    if not isinstance(model, PretrainedModel):
        return None
    folder = work.lease.folder.parent / "initial"  # not in the job's folder: ranks can write there
    if folder.is_dir():  # a launcher before this one has fetched it, and its job may be running
        return folder
    work.progress(0, 0, detail=f"fetching {model.pretrained}")
    work.lease.check()
    aside = work.lease.folder / "initial"
    shutil.rmtree(aside, ignore_errors=True)  # half a model, of a launcher before this one
    aside.mkdir()
    try:
        pretrained.fetch(model, work.input("examples"), aside, where, head)
        for path in [*aside.iterdir(), aside]:
            flush(path)
        work.lease.check()
        aside.rename(folder)
    except OSError:
        work.lease.check()  # the next launcher has taken what lay there
        raise
    return folder
