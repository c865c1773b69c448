"""How a recipe spreads a model over processes: the degrees of one device mesh, and names for common ones."""

from math import lcm
from typing import Annotated, Literal

from pydantic import Discriminator, Field, Tag, model_validator

from understudy.recipe.section import Fraction, Positive, Section

StrategyName = Literal["single", "dp", "ddp", "zero1", "zero2", "zero3", "fsdp", "hsdp", "tp", "cp", "pp", "3d", "auto"]


Recompute = Literal["none", "full", "selective"]
CommType = Literal["alltoall", "ring"]
Offload = tuple[Literal["parameters", "activations"], ...]


AXES = ("pp", "dp_replicate", "dp_shard", "cp", "tp")
"""The mesh's dimensions, the outermost first."""


class Degrees(Section):
    """The device mesh, as in torchtitan: stages x copies x shards x parts of a sequence x parts of a layer."""

    pp: Positive = 1
    """Pipeline parallel (Huang et al. 2019): processes with some of the layers each, which read the same examples."""
    dp_replicate: Positive = 1
    dp_shard: Positive = 1
    cp: Positive = 1
    """Context parallel: processes that share each sequence; shards are spread over them, too."""
    cp_comm_type: CommType = "alltoall"
    """Exchange of cp's processes around attention: heads for positions (alltoall, Jacobs et al. 2023), or keys and
    values in a ring (Liu et al. 2023), for any number of heads. Megatron's name; torch's `rotate_method` is about how a
    ring proceeds."""
    tp: Positive = 1
    """Tensor parallel (Shoeybi et al. 2019): processes that share each layer, and read the same examples."""
    sequence_parallel: bool = False
    """With tp: each process has some positions of norms, and of activations between split layers (Korthikanti et al.
    2022)."""
    zero_stage: Literal[1, 2, 3] = 3
    """Shards besides the optimiser's state (Rajbhandari et al. 2020): gradients from 2 on, weights at 3."""

    @model_validator(mode="after")
    def _has_parts(self) -> "Degrees":
        if self.cp_comm_type != "alltoall" and self.cp == 1:
            raise ValueError("cp_comm_type is for processes that share sequences, and cp is 1; leave it out")
        if self.sequence_parallel and (self.tp == 1 or self.pp > 1):
            raise ValueError("sequence_parallel is for layers split by tp, without stages of pp; leave it out")
        return self

    @model_validator(mode="after")
    def _has_shards(self) -> "Degrees":
        if self.zero_stage < 3 and self.dp_shard == 1:
            raise ValueError("zero_stage is for shards, and dp_shard is 1; leave one of them out")
        return self

    def __str__(self) -> str:
        parts = [f"{name} {size}" for name in AXES if (size := getattr(self, name)) > 1]
        variants = ["ring"] * (self.cp_comm_type == "ring") + ["sequence parallel"] * self.sequence_parallel
        return (" x ".join(parts) or "one process") + (f" ({', '.join(variants)})" if variants else "")

    @property
    def sequence_parts(self) -> int:
        """A divisor of every valid sequence length.

        In a ring each process has two chunks. With sequence_parallel, each process of tp has a part of these.
        """
        parts = self.tp if self.sequence_parallel else 1
        return self.cp * lcm(parts, 2 if self.cp_comm_type == "ring" else 1)

    @property
    def head_parts(self) -> int:
        """A divisor of every valid number of heads: in a ring, only tp divides them."""
        return self.tp * (1 if self.cp_comm_type == "ring" else self.cp)

    @property
    def world_size(self) -> int:
        """The number of processes."""
        return self.pp * self.readers * self.cp * self.tp

    @property
    def readers(self) -> int:
        """The parts in which a batch is read: processes that share sequences or layers read the same examples."""
        return self.dp_replicate * self.dp_shard

    def of_teacher(self, shards: int | None) -> "Degrees":
        """The degrees of the teacher, an inference model on the same processes.

        Sequences and layers are split as the student's are. There are no stages: each process runs all layers.

        Args:
            shards: processes that hold one copy together. Default: as for the student; if that has stages, all.

        Raises:
            ValueError: processes do not divide into such copies.
        """
        if shards is None and self.pp == 1:
            return self
        readers = self.pp * self.readers
        copies, remainder = divmod(readers, shards or readers)
        if remainder:
            raise ValueError(
                f"{readers} processes{' for each part of a sequence or layer' * (self.cp * self.tp > 1)} do not divide "
                f"into copies of {shards} shards; take a divisor of {readers}"
            )
        splits = self.model_dump(include={"cp", "cp_comm_type", "tp", "sequence_parallel"})
        return Degrees(dp_replicate=copies, dp_shard=readers // copies, **splits)

    @property
    def is_replicated(self) -> bool:
        """Whether processes hold whole models, whose gradients DistributedDataParallel averages."""
        return self.world_size > 1 and not self.shards and self.tp == self.pp == 1

    @property
    def shards(self) -> bool:
        """Whether weights, or gradients, or the optimiser's state alone, are split over processes."""
        return self.dp_shard > 1


class Compression(Section):
    """For ddp: compression of gradients before they are sent. Every type is lossy."""

    type: Literal["fp16", "bf16", "powersgd"]
    """Rounding to 16 bits, or products of two thin matrices (Vogels et al. 2019)."""
    rank: Positive | None = None
    """For powersgd: the rank of the matrices; the paper uses 1 to 4."""

    @model_validator(mode="after")
    def _has_a_rank(self) -> "Compression":
        if (self.type == "powersgd") != (self.rank is not None):
            raise ValueError("rank belongs to powersgd, which needs one; 2 is a good first choice")
        return self


class Diloco(Section):
    """For ddp and hsdp: replicas train apart, and synchronise at intervals. Defaults of Douillard et al. 2023."""

    every: Positive = 500
    """Local steps of each replica, on its part of each batch, between synchronisations."""
    learning_rate: Annotated[float, Field(gt=0)] = 0.7
    """Of the outer optimiser, whose gradient is the mean of the replicas' changes."""
    momentum: Fraction = 0.9
    """Nesterov momentum of the outer optimiser."""


Schedule = Literal[
    "GPipe", "1F1B", "LoopedBFS", "Interleaved1F1B", "InterleavedZeroBubble", "ZBVZeroBubble", "DualPipeV"
]
SINGLE, V = ("GPipe", "1F1B"), ("ZBVZeroBubble", "DualPipeV")


class Pipeline(Section):
    """For pp: the order in which stages compute micro-batches; gradient_accumulation_steps is their number."""

    schedule: Schedule = "1F1B"
    """By torch's names; all train the same."""
    stages: Positive | None = None
    """Stages of each process. Default: 1 with GPipe and 1F1B, 2 with the others, to wait less."""

    @model_validator(mode="after")
    def _fits(self) -> "Pipeline":
        if self.schedule in SINGLE and self.stages_per_rank > 1:
            raise ValueError(f"{self.schedule} has one stage in each process; leave stages out, or use Interleaved1F1B")
        if self.schedule in V and self.stages_per_rank != 2:
            raise ValueError(f"{self.schedule} has two stages in each process; leave stages out")
        return self

    @property
    def stages_per_rank(self) -> int:
        """Stages of each process."""
        return self.stages or (1 if self.schedule in SINGLE else 2)

    @property
    def splits_backward(self) -> bool:
        """Whether gradients of weights are computed later than those of the activations between stages."""
        return self.schedule in V or self.schedule == "InterleavedZeroBubble"

    @property
    def is_v(self) -> bool:
        """Whether stages run over the processes and back: the first process has the first and the last stage."""
        return self.schedule in V


ALONE = {
    "single": ("for one process", "ddp, fsdp or hsdp"),
    "dp": ("one process that drives all GPUs it sees", "ddp"),
}
"""Names for one process: a description, and the names for several."""


def _strategy_kind(value: object) -> str:
    return "degrees" if isinstance(value, dict | Degrees) else "shorthand"


Strategy = Annotated[
    Annotated[StrategyName, Tag("shorthand")] | Annotated[Degrees, Tag("degrees")], Discriminator(_strategy_kind)
]


def degrees(strategy: StrategyName | Degrees, nodes: int, processes: int, path: str = "resources") -> Degrees:
    """The degrees behind a recipe's strategy.

    hsdp shards inside a node and replicates over nodes; on a single node it keeps two replicas. 3d has a stage on each
    node, or two on a single node. Inside a stage, two neighbouring processes split each layer, and the rest is sharded:
    the processes that communicate most are nearest (Narayanan et al. 2021).

    Args:
        strategy: the recipe's.
        nodes: of the job.
        processes: on each node.
        path: the recipe's path of the job's resources, for errors.

    Raises:
        ValueError: the strategy is auto, or does not fit the number of processes; the message has the fix.
    """
    if strategy == "auto":
        raise ValueError("auto is chosen when a run begins; here it has to be degrees, or a name of theirs")
    world, location = nodes * processes, f"{path}.processes"
    count = f"{processes}"
    if nodes > 1:
        location, count = f"{path}.nodes x processes", f"{nodes} x {processes}"
    if isinstance(strategy, Degrees):
        if strategy.world_size != world:
            product = "pp x " * (strategy.pp > 1) + "dp_replicate x dp_shard"
            product += " x cp" * (strategy.cp > 1) + " x tp" * (strategy.tp > 1)
            raise ValueError(f"{product} is {strategy.world_size}, but {location} is {count}; make them equal")
        return strategy
    if strategy in ALONE and world > 1:
        kind, alternative = ALONE[strategy]
        raise ValueError(f"{strategy} is {kind}, but {location} is {count}; use {alternative}")
    if strategy == "hsdp":
        return _hybrid(nodes, processes, path)
    if strategy == "3d":
        return _three_dimensions(nodes, processes, path)
    if strategy in ("cp", "tp", "pp"):
        return Degrees.model_validate({strategy: world})
    if strategy in ("single", "dp", "ddp"):
        return Degrees(dp_replicate=world)
    stage = {"zero1": 1, "zero2": 2}.get(strategy, 3) if world > 1 else 3
    return Degrees.model_validate({"dp_shard": world, "zero_stage": stage})


def _hybrid(nodes: int, processes: int, path: str) -> Degrees:
    if nodes == 1 and (processes < 4 or processes % 2):
        raise ValueError(
            f"hsdp keeps two sharded replicas: {path}.processes must be 4, 6, 8, ..., and is {processes}; or use fsdp"
        )
    if processes < 2:
        raise ValueError(f"hsdp shards inside a node: {path}.processes must be 2 or more; or use ddp")
    copies = nodes if nodes > 1 else 2
    return Degrees(dp_replicate=copies, dp_shard=nodes * processes // copies)


def _three_dimensions(nodes: int, processes: int, path: str) -> Degrees:
    stages, parts = max(nodes, 2), 2
    stage, remainder = divmod(nodes * processes, stages)
    if remainder or stage % parts or stage < 2 * parts:
        valid = "4, 6, 8, ..." if nodes > 1 else "8, 12, 16, ..."
        raise ValueError(
            f"3d has two parts of each layer and two shards or more in a stage: {path}.processes must be {valid}, and "
            f"is {processes}; or write degrees"
        )
    return Degrees(pp=stages, dp_shard=stage // parts, tp=parts)
