"""The plan of a student whose teacher's logits are cached, beside one with the teacher in memory."""

import torch

from tests import ROOT
from understudy.plan.job import jobs
from understudy.plan.trace import Traced, trace
from understudy.recipe import Degrees
from understudy.recipe.file import load


def traced(*overrides: str) -> Traced:
    *_, student = jobs(load(ROOT / "recipes" / "pydoc.yaml", overrides=list(overrides)))
    return trace(student.planned, Degrees(), 0, "cpu", torch.float32)


def test_cached_logits_take_no_weights_and_no_layers() -> None:
    in_memory, cached = traced(), traced("teacher.logits={type: top_k}")
    assert cached.resident < in_memory.resident
    assert cached.flops < in_memory.flops
