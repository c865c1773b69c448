"""Conflicts of precisions: fp16, fp8, an optimiser in eight bits, and a teacher in eight or four."""

from collections.abc import Iterator

from understudy.recipe.learners import Training
from understudy.recipe.places import Conflict, Place
from understudy.recipe.schema import Train
from understudy.recipe.strategy import Degrees, degrees


def fp16(place: Place, train: Train) -> Iterator[Conflict]:
    """Settings that conflict with fp16, which skips steps that overflow."""
    if train.precision != "fp16":
        return
    if train.diloco:
        why = "skips steps of all replicas at once, and those of diloco train apart; use bf16, or remove diloco"
        yield (*place, "precision"), why
    if train.compression and train.compression.type == "powersgd":
        why = "what powersgd has not sent yet would keep a gradient that overflowed; use bf16, or remove compression"
        yield (*place, "precision"), why


def fp8(place: Place, train: Train, found: Degrees) -> Iterator[Conflict]:
    """Settings that conflict with matrix products in eight bits."""
    if train.precision != "fp8":
        return
    if train.lora:
        why = "frozen layers and their adapters are computed in bf16; use that, or remove lora"
        yield (*place, "precision"), why
    if found.tp > 1:
        why = f"fp8 scales whole weights, which {found} splits; use bf16, or a strategy without tp"
        yield (*place, "precision"), why


def eight_bits(place: Place, train: Train, found: Degrees) -> Iterator[Conflict]:
    """Settings that conflict with an optimiser in eight bits."""
    if train.optimizer.name != "adamw8bit":
        return
    if found.tp > 1:
        why = f"adamw8bit rounds blocks of whole rows, which {found} splits; use adamw, or a strategy without tp"
        yield (*place, "optimizer", "name"), why
    if "parameters" in train.offload:
        why = "adamw8bit computes on the GPU, where its state is; use adamw, or take parameters out of offload"
        yield (*place, "optimizer", "name"), why


def quantised_teachers(training: Training) -> Iterator[Conflict]:
    """Degrees that conflict with teachers in eight or four bits; auto leaves them out."""
    resources, strategy = training.resources, training.train.strategy
    kind = training.learner.teacher_precision
    if kind not in ("int8", "nf4") or strategy == "auto":
        return
    try:
        found = degrees(strategy, resources.nodes, resources.processes)
    except ValueError:  # reported where the strategy is checked
        return
    if found.tp > 1:
        why = f"{found} splits layers, and those in {kind} are not split; use bf16, or a strategy without tp"
        yield (*training.section, "teacher_precision"), why
