"""A teacher of cached logits, beside the model that they are of."""

from pathlib import Path

import numpy as np
import pytest
import torch

from understudy.data.loader import IGNORED
from understudy.errors import UnderstudyError
from understudy.objectives import logits as logits_objective
from understudy.objectives.batch import Batch
from understudy.objectives.ensemble import Ensemble
from understudy.teachers.cache import parts
from understudy.teachers.cache.reader import CachedLogits
from understudy.teachers.cache.sparse import Sparse, dense, top_k
from understudy.teachers.cache.tables import Tables
from understudy.teachers.cached import CachedTeacher

EXAMPLES, LENGTH, CLASSES, TEMPERATURE = 6, 5, 9, 2.0
LABELS = torch.from_numpy(np.random.default_rng(0).integers(0, CLASSES, (EXAMPLES, LENGTH)))
LABELS[1, 3:] = IGNORED
LABELS[4] = IGNORED
TEACHER = torch.from_numpy(np.random.default_rng(1).normal(0, 3, (EXAMPLES, LENGTH, CLASSES))).float()


def entries(count: int) -> Sparse:
    """The teacher's likeliest classes at all targets."""
    return top_k(torch.log_softmax(TEACHER[LABELS != IGNORED] / TEMPERATURE, dim=-1), count)


@pytest.fixture(params=[CLASSES, 3])
def sparse(request: pytest.FixtureRequest) -> Sparse:
    """All classes, or some of them."""
    return entries(request.param)


@pytest.fixture
def cache(tmp_path: Path, sparse: Sparse) -> CachedLogits:
    return written(tmp_path, sparse)


def written(tmp_path: Path, sparse: Sparse) -> CachedLogits:
    tables = Tables.fit([sparse], step=1e-3)
    parts.begin(tmp_path, tables, EXAMPLES, examples_per_part=4)
    counts = (LABELS != IGNORED).sum(1).numpy()
    for number, rows in enumerate((slice(0, 4), slice(4, 6))):
        first, last = counts[: rows.start].sum(), counts[: rows.stop].sum()
        part = Sparse(sparse.ids[first:last], sparse.log_probs[first:last], sparse.tail[first:last], CLASSES)
        parts.write_part(tmp_path, number, counts[rows], part, tables)
    parts.finish(tmp_path, {"temperature": TEMPERATURE})
    return CachedLogits(tmp_path)


def batch(*indices: int) -> Batch:
    rows = torch.tensor(indices)
    return Batch(LABELS[rows], LABELS[rows], indices=rows)


def test_its_logits_give_the_cached_distribution_at_their_temperature(cache: CachedLogits, sparse: Sparse) -> None:
    teacher, order = CachedTeacher(cache, EXAMPLES, CLASSES), (5, 1, 0, 4, 2)
    outputs = teacher.outputs(batch(*order)).logits
    assert outputs.shape == (len(order), LENGTH, CLASSES)
    expected = torch.zeros(EXAMPLES, LENGTH, CLASSES)
    expected[LABELS != IGNORED] = dense(sparse)
    is_target = LABELS[list(order)] != IGNORED
    likelihoods = torch.softmax(outputs / TEMPERATURE, dim=-1)
    torch.testing.assert_close(likelihoods[is_target], expected[list(order)][is_target].exp(), atol=1e-3, rtol=0)


def test_pieces_of_its_states_are_its_logits(cache: CachedLogits) -> None:
    teacher, chosen = CachedTeacher(cache, EXAMPLES, CLASSES), batch(3, 1)
    states = teacher.states(chosen)
    pieces = [states.logits(slice(start, start + 3)) for start in range(0, 2 * LENGTH, 3)]
    torch.testing.assert_close(torch.cat(pieces), teacher.outputs(chosen).logits.flatten(0, 1), atol=0, rtol=0)


def test_with_all_classes_a_loss_is_that_beside_the_model(tmp_path: Path) -> None:
    cache = written(tmp_path, entries(CLASSES))
    chosen = batch(0, 1, 2, 3, 4, 5).by_position()
    student = torch.from_numpy(np.random.default_rng(2).normal(0, 1, (EXAMPLES * LENGTH, CLASSES))).float()
    cached = CachedTeacher(cache, EXAMPLES, CLASSES).outputs(batch(0, 1, 2, 3, 4, 5)).logits.flatten(0, 1)
    found, beside = (
        logits_objective.losses(student, (values,), chosen, temperature=TEMPERATURE, ensemble=Ensemble((0,)))
        for values in (cached, TEACHER.flatten(0, 1))
    )
    torch.testing.assert_close(found[0], beside[0], atol=1e-2, rtol=1e-3)
    torch.testing.assert_close(found[1], beside[1], atol=2e-3, rtol=0)


def test_a_cache_of_other_examples_or_classes_is_refused(cache: CachedLogits) -> None:
    for examples, classes in ((EXAMPLES + 1, CLASSES), (EXAMPLES, CLASSES + 1)):
        with pytest.raises(UnderstudyError, match="they are of other data"):
            CachedTeacher(cache, examples, classes)


def test_a_cache_of_other_targets_is_refused(cache: CachedLogits) -> None:
    labels = LABELS.clone()
    labels[0, 0] = IGNORED
    with pytest.raises(UnderstudyError, match="are of other targets than these examples have"):
        CachedTeacher(cache, EXAMPLES, CLASSES).outputs(Batch(labels[:1], labels[:1], indices=torch.tensor([0])))
