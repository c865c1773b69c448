"""What a training takes of its nodes' own memory: processes, tensors on CPUs, and the copy that a checkpoint is of."""

from dataclasses import dataclass

from understudy.plan.estimate import GIB, Estimate
from understudy.plan.hardware import Hardware
from understudy.plan.job import Job


@dataclass(frozen=True)
class HostMemory:
    """Bytes on a node, at most. Cached files are not in it: the system drops them when memory is short."""

    processes: int
    """Python and libraries, and on GPUs CUDA and NCCL."""
    tensors: int
    """Of ranks that compute on CPUs, at their peak."""
    checkpoint: int
    """Copies of weights and optimiser, which are written while training goes on; every rank copies what it has."""
    limit: int | None
    """What the recipe's resources give a node, where they say so."""

    @property
    def all(self) -> int:
        """Of all kinds together."""
        return self.processes + self.tensors + self.checkpoint

    @property
    def fits(self) -> bool:
        """Whether it is within the limit, where there is one."""
        return self.limit is None or self.all <= self.limit


def host_memory(job: Job, own: Estimate, hardware: Hardware) -> HostMemory:
    """What a training takes on each node; as if all of its ranks held what the one with most does."""
    return HostMemory(
        processes=round(hardware.host * GIB) * job.processes,
        tensors=0 if hardware.is_gpu else own.traced.peak.bytes * job.processes,
        checkpoint=own.traced.state * job.processes,
        limit=job.memory,
    )
