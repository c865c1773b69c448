"""A checkpoint's copy, made in a thread while training computes."""

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

from torch import Tensor, nn
from torch.distributed.checkpoint.staging import AsyncStager, DefaultStager, StagingOptions

from understudy.models.parts import kept

PLAINLY = StagingOptions(
    use_pinned_memory=False, use_shared_memory=False, use_async_staging=False, use_non_blocking_copy=False
)


class Stager(AsyncStager):
    """Copies into memory that nobody holds once it is written. Torch's own thread keeps the copy until the next one."""

    def stage(self, state_dict: dict[str, Any]) -> Future[dict[str, Any]]:
        """What copies a state; its answer is the copy."""

        def copy() -> dict[str, Any]:
            copied = DefaultStager(PLAINLY).stage(state_dict)
            assert isinstance(copied, dict)
            return copied

        thread = ThreadPoolExecutor(max_workers=1)
        found = thread.submit(copy)
        thread.shutdown(wait=False)
        return found

    def synchronize_staging(self) -> None:
        """Who saves waits for the answer."""

    def close(self) -> None:
        """Nothing is kept."""


def with_buffers_copied(model: nn.Module, state: dict[str, Any]) -> dict[str, Any]:
    """A model's state, in which what a forward pass changes (running means) is a copy."""
    changing = {buffer.untyped_storage().data_ptr() for buffer in model.buffers()}

    def changes(value: Any) -> bool:
        return isinstance(value, Tensor) and kept(value).untyped_storage().data_ptr() in changing

    return {name: value.clone() if changes(value) else value for name, value in state.items()}
