"""Host memory of a training: processes, tensors on CPUs, and the copy from which a checkpoint is written."""

from dataclasses import dataclass

from understudy.plan.estimate import GIB, Estimate
from understudy.plan.hardware import Hardware
from understudy.plan.job import Job


@dataclass(frozen=True)
class HostMemory:
    """Upper bound of bytes on a node, without the page cache, which the system drops when memory is short."""

    processes: int
    """Python and libraries, and on GPUs CUDA and NCCL."""
    tensors: int
    """Of ranks that compute on CPUs, at their peak."""
    checkpoint: int
    """Copies of weights and optimiser state, written while training continues; every rank copies its part."""
    limit: int | None
    """A node's memory in the recipe's resources, if it is set."""

    @property
    def all(self) -> int:
        """Of all kinds together."""
        return self.processes + self.tensors + self.checkpoint

    @property
    def fits(self) -> bool:
        """Whether it is within the limit, if there is one."""
        return self.limit is None or self.all <= self.limit


def host_memory(job: Job, estimate: Estimate, hardware: Hardware) -> HostMemory:
    """A training's memory on each node, as if all ranks held as much as the largest one."""
    return HostMemory(
        processes=round(hardware.host * GIB) * job.processes,
        tensors=0 if hardware.is_gpu else estimate.traced.peak.bytes * job.processes,
        checkpoint=estimate.traced.state * job.processes,
        limit=job.memory,
    )
