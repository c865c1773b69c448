"""Pods with too little memory, told before a run is submitted."""

import pytest

from tests.unit.plan.test_automatic import recipe
from understudy.errors import InputError
from understudy.plan.pods import refuse_small_pods

ON_CPUS = ("resources.teacher.device=cpu", "resources.distill.device=cpu")


def check(*more: str) -> None:
    refuse_small_pods(recipe(*more))


def least(job: str, *more: str) -> float:
    """Of a job's nodes, in GiB, as the refusal says."""
    with pytest.raises(InputError) as caught:
        check(f"resources.{job}.memory=1k", *more)
    message = str(caught.value)
    assert message.startswith(f"resources.{job}.memory: 1k are 0.00 GiB, and ")
    assert message.endswith("GiB on each node, without anything else; give it more, or take more nodes")
    return float(message.partition(" take ")[2].split()[0])


WIDE = ("teacher.model.config.hidden_size=1024", "student.model.config.hidden_size=512")
DEEP = ("teacher.model.config.intermediate_size=65536", "student.model.config.intermediate_size=65536")
LARGE = (*WIDE, *DEEP)
TEACHER = 4 * (4 * (4 * 1024**2 + 3 * 1024 * 65536 + 2 * 1024) + 1024 + 2 * 1024 * 258) / 2**30
STUDENT = 4 * (2 * (4 * 512**2 + 3 * 512 * 65536 + 2 * 512) + 512 + 512 * 258) / 2**30
"""GiB of weights, by hand; tokens are 258 at the least, and the student's last layer is its embedding."""


@pytest.mark.parametrize(
    ("job", "more", "gib"),
    [
        ("teacher", ON_CPUS, 6 * TEACHER),
        ("teacher", (*ON_CPUS, "resources.teacher.nodes=2"), 3 * TEACHER),
        ("teacher", (*ON_CPUS, "teacher.train.strategy=ddp"), 4 * 6 * TEACHER),
        ("teacher", ("resources.teacher.device=auto", "teacher.train.strategy=ddp"), 4 * 3 * TEACHER),
        ("distill", ON_CPUS, 6 * STUDENT + TEACHER),
        ("evaluate", ("resources.evaluate.device=cpu", "resources.evaluate.processes=2"), 2 * TEACHER + 4 * STUDENT),
    ],
)
def test_what_a_node_takes_is_told(job: str, more: tuple[str, ...], gib: float) -> None:
    assert least(job, *LARGE, *more) == pytest.approx(gib, abs=0.006)


def test_enough_is_not_refused() -> None:
    for memory in ("40Gi", None):
        check(*LARGE, *ON_CPUS, f"resources.distill.memory={memory or 'null'}")
    check("resources.evaluate={memory: 1k, device: cuda}")  # models are on the GPU


def test_models_that_only_their_files_tell_are_not_counted() -> None:
    pretrained = "student.model={pretrained: some/model, revision: '0123456789012345678901234567890123456789'}"
    check(*ON_CPUS, pretrained, "resources.teacher.memory=1Gi", "resources.evaluate={memory: 1Gi, device: cpu}")
