"""A rank's part of a planned training, built as the ranks build it: model, objective, teachers and learner."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from torch import Tensor, nn
from torch.utils._python_dispatch import _disable_current_modes

from understudy.models.adapters import add_adapters
from understudy.models.build import uninitialized_model
from understudy.models.facts import output_size
from understudy.models.float8 import convert_to_float8
from understudy.models.tasks import TextModel
from understudy.objectives.objective import Objective
from understudy.parallel.apply import Spread
from understudy.parallel.blocks import blocks
from understudy.parallel.savers import Savers
from understudy.plan.cached_logits import BlankLogits
from understudy.plan.copies import Copies
from understudy.plan.layouts import layout_over
from understudy.plan.ledger import Ledger
from understudy.plan.planned import Planned
from understudy.recipe.objectives import Extra
from understudy.recipe.roles import section_of
from understudy.teachers.in_memory import ModelTeacher
from understudy.teachers.teacher import Teacher
from understudy.train.frozen_teachers import spread_of_teacher, teacher_over_ranks
from understudy.train.learning import Learner, Whole
from understudy.train.pipelined import Pipelined
from understudy.train.staged import Staged, cut_into_stages


@dataclass(frozen=True)
class RankModels:
    """A rank's part of a training."""

    parameters: list[nn.Parameter]
    """Of its layers, and of the objective."""
    learner: Learner
    student_blocks: list[list[nn.Module]]
    """Of each of its stages."""
    teacher_blocks: Mapping[str, list[nn.Module]]
    """By the teacher's name."""
    buckets: Mapping[nn.Parameter, Mapping[str, Tensor]]
    """DDP's copies of gradients, by parameter."""


def build_models(
    planned: Planned, student_objective: Objective, spread: Spread, ledger: Ledger, *, even: bool
) -> RankModels:
    """Build the rank's part of all models, and the learner over all ranks.

    Args:
        planned: the training.
        student_objective: its objective.
        spread: its ranks.
        ledger: gets the teachers' weights marked.
        even: whether all stages have the same number of blocks, regardless of other layers.
    """
    model = _student(planned)
    if spread.degrees.pp > 1:
        staged = _stages(planned, model, spread, even=even)
        module = staged.settle(spread.device)
        for stage in staged.stages.values():
            _allow_partial_head(stage.model)
        teachers, teacher_blocks = _teachers(planned, spread, student_objective.extras, ledger)
        student_blocks = [_local_blocks(stage.model) for stage in staged.stages.values()]
        pipelined = Pipelined(staged, module, student_objective, teachers, spread)
        return RankModels(list(module.parameters()), pipelined, student_blocks, teacher_blocks, {})
    train = planned.train
    savers = Savers(train.activation_checkpointing)
    module = model = spread.over_ranks(model, train.tensor_plan, planned.settings.train_path, savers)
    _allow_partial_head(model)
    teachers, teacher_blocks = _teachers(planned, spread, student_objective.extras, ledger)
    student_blocks = [_local_blocks(model)]
    buckets: Mapping[nn.Parameter, Mapping[str, Tensor]] = {}
    is_trained = bool(list(student_objective.parameters()))
    wrapped_objective: nn.Module = spread.sharded(student_objective) if is_trained else student_objective
    if spread.meshes.replicate.size() > 1 and not spread.wraps and not train.diloco:
        module = copies = Copies(module)
        buckets = copies.buckets
        wrapped_objective = Copies(student_objective) if is_trained else student_objective
    parameters = [*module.parameters(), *wrapped_objective.parameters()]
    learner = Whole(module, student_objective, wrapped_objective, teachers, spread)
    return RankModels(parameters, learner, student_blocks, teacher_blocks, buckets)


def _student(planned: Planned) -> nn.Module:
    """The whole model, with adapters and layers in fp8 as in the recipe."""
    train, path = planned.train, planned.settings.train_path
    model = uninitialized_model(planned.model, path)
    if train.lora:
        add_adapters(model, train.lora, path)
    if train.precision == "fp8":
        convert_to_float8(model, path)
    return model


def _stages(planned: Planned, model: nn.Module, spread: Spread, *, even: bool) -> Staged:
    stage_layout = layout_over(planned, spread)
    if even:
        stage_layout = replace(stage_layout, first=0, last=0)
    return cut_into_stages(model, stage_layout, planned.examples, spread, planned.train, planned.settings.train_path)


def _local_blocks(model: nn.Module) -> list[nn.Module]:
    """A model's blocks, without those of other stages."""
    return [block for block in blocks(model) if next(block.parameters(), None) is not None]


def _teachers(
    planned: Planned, spread: Spread, extras: frozenset[Extra], ledger: Ledger
) -> tuple[list[Teacher], dict[str, list[nn.Module]]]:
    """The teachers, and their blocks by name."""
    teachers, teacher_blocks = list[Teacher](), {}
    settings = planned.settings
    for name, description in planned.teachers.items():
        if name in planned.cached:
            teachers.append(BlankLogits(output_size(planned.examples.facts)))
            continue
        network = uninitialized_model(description, section_of(name))
        with _disable_current_modes():  # its meshes need real tensors of ranks
            inference = spread_of_teacher(spread, settings.teacher_shards, settings.learner)
        model = teacher_over_ranks(network, inference, settings.teacher_precision, learner=settings.learner)
        _allow_partial_head(model)
        ledger.mark("teacher", model.parameters())
        teachers.append(ModelTeacher(model, extras))
        teacher_blocks[name] = _local_blocks(model)
    return teachers, teacher_blocks


def _allow_partial_head(model: nn.Module) -> None:
    """Let the head run on some positions alone: the check for it compares values, which FakeTensors lack."""
    if isinstance(model, TextModel):
        model.separate_head()
