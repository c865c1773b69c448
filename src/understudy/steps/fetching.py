"""Fetching a pretrained model into a step's work folder: atomically, and only once."""

import shutil
from pathlib import Path

from understudy.models import pretrained
from understudy.recipe import Model, PretrainedModel
from understudy.steps.step import Work
from understudy.store.files import flush


def fetched_model(work: Work, model: Model, section: str, head: pretrained.Head, examples: Path) -> Path | None:
    """The folder of a pretrained model's files; None for a model that is not pretrained."""
    if not isinstance(model, PretrainedModel):
        return None
    folder = work.lease.folder.parent / "initial"  # not in the job's folder: ranks can write there
    if folder.is_dir():  # fetched by an earlier launcher, whose job may be running
        return folder
    work.progress(0, 0, detail=f"fetching {model.pretrained}")
    work.lease.check()
    aside = work.lease.folder / "initial"
    shutil.rmtree(aside, ignore_errors=True)  # an incomplete model of an earlier launcher
    aside.mkdir()
    try:
        pretrained.fetch(model, examples, aside, section, head)
        for path in [*aside.iterdir(), aside]:
            flush(path)
        work.lease.check()
        aside.rename(folder)
    except OSError:
        work.lease.check()  # raises if the next launcher has taken over the folder
        raise
    return folder
