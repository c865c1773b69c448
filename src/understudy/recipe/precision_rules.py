"""Conflicts of precisions: fp16, fp8, an optimiser in eight bits, and a teacher in eight or four."""

from collections.abc import Iterator

from understudy.recipe.key_path import Conflict, KeyPath
from understudy.recipe.learners import Training
from understudy.recipe.schema import Train
from understudy.recipe.strategy import Degrees, degrees


def fp16(path: KeyPath, train: Train) -> Iterator[Conflict]:
    """Settings that conflict with fp16, which skips steps that overflow."""
    if train.precision != "fp16":
        return
    if train.diloco:
        why = "skips steps of all replicas at once, and those of diloco train apart; use bf16, or remove diloco"
        yield (*path, "precision"), why
    if train.compression and train.compression.type == "powersgd":
        why = "powersgd's error feedback would keep a gradient that overflowed; use bf16, or remove compression"
        yield (*path, "precision"), why


def fp8(path: KeyPath, train: Train, chosen: Degrees) -> Iterator[Conflict]:
    """Settings that conflict with matrix products in eight bits."""
    if train.precision != "fp8":
        return
    if train.lora:
        why = "frozen layers and their adapters are computed in bf16; use that, or remove lora"
        yield (*path, "precision"), why
    if chosen.tp > 1:
        why = f"fp8 scales whole weights, which {chosen} splits; use bf16, or a strategy without tp"
        yield (*path, "precision"), why


def eight_bits(path: KeyPath, train: Train, chosen: Degrees) -> Iterator[Conflict]:
    """Settings that conflict with an optimiser in eight bits."""
    if train.optimizer.name != "adamw8bit":
        return
    if chosen.tp > 1:
        why = f"adamw8bit rounds blocks of whole rows, which {chosen} splits; use adamw, or a strategy without tp"
        yield (*path, "optimizer", "name"), why
    if "parameters" in train.offload:
        why = "adamw8bit computes on the GPU, where its state is; use adamw, or take parameters out of offload"
        yield (*path, "optimizer", "name"), why


def quantised_teachers(training: Training) -> Iterator[Conflict]:
    """Degrees that conflict with teachers in eight or four bits; auto leaves them out."""
    resources, strategy = training.resources, training.train.strategy
    kind = training.learner.teacher_precision
    if kind not in ("int8", "nf4") or strategy == "auto":
        return
    try:
        chosen = degrees(strategy, resources.nodes, resources.processes)
    except ValueError:  # reported where the strategy is checked
        return
    if chosen.tp > 1:
        why = f"{chosen} splits layers, and those in {kind} are not split; use bf16, or a strategy without tp"
        yield (*training.section, "teacher_precision"), why
