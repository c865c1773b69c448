"""A training's models as described: their architecture, degrees and outputs."""

from pathlib import Path
from typing import TYPE_CHECKING

import torch.distributed as dist

from understudy.errors import InputError
from understudy.models.describe import describe
from understudy.models.facts import Description, predicts_tokens, read_description, read_facts
from understudy.models.trust import trusted_description
from understudy.objectives.objective import extras_of
from understudy.recipe import Degrees, SavedModel, degrees
from understudy.recipe.objectives import Extra
from understudy.recipe.roles import section_of

if TYPE_CHECKING:  # the format of a job's specification is no part of a training's step key
    from understudy.jobs.payload import TrainingJob


def degrees_of(job: "TrainingJob", processes: int) -> Degrees:
    """The degrees of the job's models over the ranks after rendezvous, with so many processes on each node.

    Raises:
        InputError: the strategy does not fit their number, or the length of sequences.
    """
    try:
        result = degrees(job.train.strategy, dist.get_world_size() // processes, processes)
    except ValueError as error:
        raise InputError(f"{job.train_path}.strategy: {error}") from error
    facts = read_facts(job.examples)
    if result.sequence_parts > 1 and not predicts_tokens(facts):
        raise InputError(
            f"{job.train_path}.strategy: {result} splits sequences, which only language models can be trained on in "
            "parts; use another strategy, such as ddp or fsdp"
        )
    if result.sequence_parts > 1 and facts["sequence_length"] % result.sequence_parts:
        raise InputError(
            f"{job.train_path}.strategy: {result} splits sequences of tokens evenly; "
            f"data.text.sequence_length has to be a multiple of {result.sequence_parts}"
        )
    return result


def description_of(job: "TrainingJob") -> Description:
    """The description of the trained model."""
    if job.initial:
        return read_description(job.initial)
    return describe(job.model, read_facts(job.examples), job.model_path)


def description_of_teacher(job: "TrainingJob", name: str) -> Description:
    """The description of one of the model's teachers."""
    teacher = job.teachers[name]
    assert isinstance(teacher, SavedModel)
    return trusted_description(Path(teacher.folder), teacher.model, job.examples, section_of(name))


def extras_of_job(job: "TrainingJob") -> frozenset[Extra]:
    """Outputs besides logits that the objectives of this job and the student's need."""
    return extras_of((*job.objectives, *job.student_objectives))
