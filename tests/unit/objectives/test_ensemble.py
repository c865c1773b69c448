"""The weighted mean of several teachers: against numpy, its limits, and under every objective on logits."""

import math
from itertools import permutations
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import log_softmax, softmax
from torch import Tensor

from tests.unit.objectives.closed_forms import evaluated, losses, section
from tests.unit.objectives.test_position_laws import SECTIONS, SOFTENED, of
from understudy.data.loader import IGNORED
from understudy.models.outputs import OutputShapes
from understudy.objectives import fused
from understudy.objectives.batch import Batch
from understudy.objectives.ensemble import Ensemble
from understudy.objectives.fused import compiled, write_gradient
from understudy.recipe import ObjectiveSection

NAMES = ("first", "odd", "second", "third")
TAUGHT = dict.fromkeys(NAMES, OutputShapes())
CHOSEN = ("second", "first", "third")
NUMBERS = {"first": 1, "second": 0.5, "third": 2.5}
RULES = [NUMBERS, "confidence", "label"]
unhurried = settings(deadline=None, max_examples=50)
by_rule = pytest.mark.parametrize("rule", RULES, ids=str)
Case = tuple[list[Tensor], Tensor]


def ensemble(rule: object) -> Ensemble:
    chosen = section("logits", teacher=CHOSEN, teacher_weights=rule)
    return Ensemble.of(chosen, NAMES)  # type: ignore[arg-type]


def learned(kind: ObjectiveSection, rule: object) -> ObjectiveSection:
    return kind.model_copy(update={"teacher": CHOSEN, "teacher_weights": rule})


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Logits (n, K) in fp64 of the training's four teachers, some minus infinity, one's NaN; and labels."""
    random = torch.Generator().manual_seed(draw(st.integers(0, 10_000)))
    rows, classes = draw(st.integers(1, 6)), draw(st.integers(2, 7))
    size, share = draw(st.sampled_from([0.1, 1.0, 8.0])), draw(st.sampled_from([0.0, 0.4]))
    teachers = [size * torch.randn(rows, classes, generator=random, dtype=torch.double) for _ in NAMES]
    for logits in teachers:
        forbidden = torch.rand(rows, classes, generator=random) < share
        forbidden[:, int(torch.randint(0, classes, (), generator=random))] = False
        logits[forbidden] = -math.inf
    teachers[1] = torch.full_like(teachers[1], math.nan)
    labels = torch.randint(0, classes, (rows,), generator=random)
    labels[torch.rand(rows, generator=random) < draw(st.sampled_from([0.0, 0.5]))] = IGNORED
    return teachers, labels


def reference(rule: object, teachers: list[Tensor], labels: Tensor, temperature: float) -> Any:
    """The mean of the probabilities (n, K), position by position, in numpy."""
    mean = []
    for row, label in enumerate(labels.tolist()):
        logits = [teachers[NAMES.index(name)][row].numpy() for name in CHOSEN]
        softened = [softmax(values / temperature) for values in logits]
        weights = [NUMBERS[name] / 4 for name in CHOSEN]
        if rule == "confidence":
            entropies = np.array([-sum(p * math.log(p) for p in values if p) for values in softened])
            weights = list(np.exp(-entropies) / np.exp(-entropies).sum())
        if rule == "label":
            losses_ = np.array([-log_softmax(values)[0 if label == IGNORED else label] for values in logits])
            unable = np.isinf(losses_)
            shares = unable / unable.sum() if unable.any() else np.exp(losses_) / np.exp(losses_).sum()
            weights = list((1 - shares) / 2)
        mean.append(sum(weight * values for weight, values in zip(weights, softened, strict=True)))
    return np.array(mean)


@by_rule
@unhurried
@given(case=cases(), temperature=st.sampled_from([0.5, 1.0, 4.0]))
def test_the_mean_is_that_of_its_formula_and_sums_to_1(rule: object, case: Case, temperature: float) -> None:
    """At positions without a target, too, if the teachers' logits are numbers there."""
    teachers, labels = case
    mean = ensemble(rule).log_likelihoods(tuple(teachers), Batch(labels, labels), temperature).exp()
    np.testing.assert_allclose(mean.numpy(), reference(rule, teachers, labels, temperature), rtol=0, atol=1e-10)
    torch.testing.assert_close(mean.sum(-1), torch.ones(len(labels), dtype=torch.double), rtol=0, atol=1e-12)


@pytest.mark.parametrize("rule", ["equal", *RULES], ids=str)
@unhurried
@given(case=cases())
def test_equal_teachers_are_one(rule: object, case: Case) -> None:
    (first, *_), labels = case
    mean = ensemble(rule).log_likelihoods((first,) * 4, Batch(labels, labels), 2.0)
    torch.testing.assert_close(mean, (first / 2).log_softmax(-1), rtol=1e-12, atol=1e-12)


def test_a_teacher_of_weight_0_is_left_out() -> None:
    """Bit for bit, and whatever it computes."""
    random = torch.Generator().manual_seed(0)
    student, first, second = (torch.randn(6, 5, generator=random) for _ in "abc")
    labels = torch.tensor([0, 1, 2, 3, 4, IGNORED])
    for kind in SECTIONS:
        expected, gradient = evaluated(kind, student, first, labels)
        weighted = kind.model_copy(update={"teacher_weights": {"first": 3, "second": 0}})
        both = losses(weighted, dict.fromkeys(("first", "second"), OutputShapes()))
        for other in (second, torch.full_like(second, math.nan)):
            of_logits = torch.empty_like(student)
            total = write_gradient(both, student, (first, other), Batch(labels, labels), of_logits)
            assert total.item() == expected
            assert of_logits.equal(gradient)


def test_confidence_prefers_a_certain_teacher_and_label_a_right_one() -> None:
    certain, unsure = torch.tensor([[9.0, 0.0, 0.0]]), torch.tensor([[0.0, 0.5, 0.0]])
    teachers, label = (certain, unsure, unsure, unsure), torch.tensor([1])
    by_confidence, by_label, equal = (
        ensemble(rule).log_likelihoods(teachers, Batch(label, label), 1.0).exp()[0, 0]
        for rule in ("confidence", "label", "equal")
    )
    assert by_label < 0.35 < equal < by_confidence


@pytest.mark.parametrize(
    ("unable", "weights"),
    [((True, False, False), (0, 0.5, 0.5)), ((True, True, False), (0.25, 0.25, 0.5)), ((True,) * 3, (1 / 3,) * 3)],
)
@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_of_teachers_that_rule_out_the_label_weights_are_the_limit(
    unable: tuple[bool, ...], weights: tuple[float, ...], kind: torch.dtype
) -> None:
    labels, chosen = torch.tensor([2]), ("first", "second", "third")
    for ruled_out in (-math.inf, -1e5):
        of_label = [ruled_out if is_unable else 0.5 for is_unable in unable]
        teachers = [
            torch.tensor([[*values[:2], logit, values[2]]], dtype=kind)
            for logit, values in zip(of_label, permutations((0.0, 1.0, 2.0)), strict=False)
        ]
        rule = Ensemble.of(section("logits", teacher=chosen, teacher_weights="label"), chosen)  # type: ignore[arg-type]
        mean = rule.log_likelihoods(tuple(teachers), Batch(labels, labels), 1.0).exp()
        probabilities = torch.stack([logits.softmax(-1) for logits in teachers])
        expected = (probabilities * torch.tensor(weights, dtype=kind)[:, None, None]).sum(0)
        torch.testing.assert_close(mean, expected)


def drawn(seed: int = 0) -> tuple[Tensor, list[Tensor], Tensor]:
    random = torch.Generator().manual_seed(seed)
    student, *teachers = (torch.randn(6, 5, generator=random, dtype=torch.double) for _ in range(5))
    teachers[1].fill_(math.nan)
    return student, teachers, torch.tensor([0, 1, IGNORED, 3, 4, 0])


@by_rule
@of(SOFTENED)
def test_an_objective_learns_from_the_mean_as_from_one_teacher(chosen: ObjectiveSection, rule: object) -> None:
    """In all rows at once, and in blocks of rows."""
    student, teachers, labels = drawn()
    batch, temperature = Batch(labels, labels), chosen.model_dump()["temperature"]
    mean = temperature * ensemble(rule).log_likelihoods(tuple(teachers), batch, temperature)
    expected, gradient = evaluated(chosen, student, mean, labels)
    for at_a_time in (fused.AT_A_TIME["cpu"], 10):
        of_logits = torch.empty_like(student)
        with pytest.MonkeyPatch.context() as patch:
            patch.setitem(fused.AT_A_TIME, "cpu", at_a_time)
            total = write_gradient(losses(learned(chosen, rule), TAUGHT), student, tuple(teachers), batch, of_logits)
        assert total.item() == pytest.approx(expected, rel=1e-10)
        torch.testing.assert_close(of_logits, gradient, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("standardize", [True, False])
def test_logits_or_z_scores_are_averaged_by_weight(standardize: bool) -> None:
    student, teachers, labels = drawn()
    chosen = section("logits_mse", standardize=standardize)
    values = [teachers[NAMES.index(name)].numpy() for name in CHOSEN]
    if standardize:
        values = [
            (logits - logits.mean(-1, keepdims=True)) / (logits.std(-1, keepdims=True) + 1e-7) for logits in values
        ]
    mean = sum(NUMBERS[name] / 4 * scores for name, scores in zip(CHOSEN, values, strict=True))
    scores = student.numpy()
    if standardize:
        scores = (scores - scores.mean(-1, keepdims=True)) / (scores.std(-1, keepdims=True) + 1e-7)
    expected = np.square(scores - mean).mean(-1)[labels.numpy() != IGNORED].sum()
    weighted = losses(learned(chosen, NUMBERS), TAUGHT)
    total = write_gradient(weighted, student, tuple(teachers), Batch(labels, labels), torch.empty_like(student))
    assert total.item() == pytest.approx(expected, rel=1e-10)


@by_rule
def test_compiled_weights_are_the_same(rule: object) -> None:
    torch.compiler.reset()
    student, teachers, labels = drawn()
    student, teachers = student.float(), [logits.bfloat16() for logits in teachers]
    by_position, gradient = losses(learned(section("logits"), rule), TAUGHT), torch.empty_like(student)
    total = write_gradient(by_position, student, tuple(teachers), Batch(labels, labels), gradient)
    again = compiled(by_position, "aot_eager")(student, tuple(teachers), Batch(labels, labels), student, 1.0)
    torch.testing.assert_close(again, total)
    torch.testing.assert_close(student, gradient)
