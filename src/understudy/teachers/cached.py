"""A teacher whose logits were computed before: they are looked up by the examples' indices.

Its distribution was softened at one temperature, that of the objectives which learn from it. Divided by it, the logits
returned here give that distribution again.
"""

import torch
from torch import Tensor

from understudy.errors import UnderstudyError
from understudy.models.outputs import Outputs, States
from understudy.objectives.batch import Batch
from understudy.teachers.cache.reader import CachedLogits
from understudy.teachers.cache.sparse import Sparse, dense


class CachedTeacher:
    """Cached logits, as a Teacher.

    Args:
        cache: the logits of all examples of a training split.
        examples: the number of examples of this training.
        vocabulary: the number of the student's logits.

    Raises:
        UnderstudyError: they are of other examples, or of another vocabulary.
    """

    def __init__(self, cache: CachedLogits, examples: int, vocabulary: int) -> None:
        if (len(cache), cache.vocabulary) != (examples, vocabulary):
            raise UnderstudyError(
                f"the cached logits have {cache.vocabulary:,} classes for {len(cache):,} examples, and this training "
                f"has {vocabulary:,} for {examples:,}; they are of other data"
            )
        self._cache, self._vocabulary = cache, vocabulary
        self._temperature = float(cache.facts["temperature"])

    def outputs(self, batch: Batch) -> Outputs:
        """Logits at all positions with a target; elsewhere they mean nothing."""
        states = self.states(batch)
        logits = states.head(states.states.flatten(0, -2))
        return Outputs(logits.reshape(*batch.labels.shape, self._vocabulary))

    def states(self, batch: Batch) -> States:
        """Cached entries, of which logits are made for some positions at a time."""
        packed = _packed(self._sparse(batch), batch.has_target)
        return States(packed, self._logits, (), self._vocabulary)

    def reshard(self) -> None:
        """Nothing is sharded."""

    def _sparse(self, batch: Batch) -> Sparse:
        assert batch.indices is not None
        targets = batch.has_target.reshape(len(batch.labels), -1).sum(dim=1).cpu()
        indices = batch.indices[targets > 0].numpy()
        counts = self._cache.count(indices)
        if counts.tolist() != targets[targets > 0].tolist():
            raise UnderstudyError("the cached logits are of other targets than these examples have")
        return self._cache.read(indices)

    def _logits(self, packed: Tensor) -> Tensor:
        """Logits (n, vocabulary) of packed entries (n, 2 w + 1)."""
        width = packed.shape[1] // 2
        ids, log_probs, tail = packed[:, :width].long(), packed[:, width:-1], packed[:, -1]
        return self._temperature * dense(Sparse(ids, log_probs, tail, self._vocabulary))


def _packed(sparse: Sparse, has_target: Tensor) -> Tensor:
    """Entries as floats, of the shape of the labels and one more: ids, their log-probabilities, and that of the tail.

    fp32 has all integers up to 2^24, more than any vocabulary. Positions without a target have all mass in one class.
    """
    width = sparse.ids.shape[1]
    packed = torch.zeros((*has_target.shape, 2 * width + 1), dtype=torch.float32, device=has_target.device)
    packed[..., 1:width] = -1
    packed[..., width + 1 :] = -torch.inf
    entries = torch.cat([sparse.ids.float(), sparse.log_probs, sparse.tail[:, None]], dim=1)
    packed[has_target] = entries.to(has_target.device)
    return packed
