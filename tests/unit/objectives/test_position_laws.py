"""Laws of all objectives on logits that compare with a teacher; their formulas have a test file each."""

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from tests.unit.objectives.closed_forms import evaluated, losses, section
from tests.unit.objectives.test_fused import cases
from tests.unit.recipe.test_objectives import values
from understudy.data.loader import IGNORED
from understudy.errors import InputError
from understudy.models import outputs
from understudy.models.outputs import Outputs, OutputShapes, States
from understudy.objectives import fused
from understudy.objectives.batch import Batch
from understudy.objectives.fused import compiled, full_precision, write_gradient
from understudy.objectives.objective import Context, objective
from understudy.objectives.pieces import loss_in_pieces
from understudy.recipe import ObjectiveSection, Train
from understudy.recipe.file import from_values
from understudy.recipe.objectives import OBJECTIVES, EnsembleObjective, load

SECTIONS = [
    section("logits"),
    section("reverse_kl"),
    section("jsd"),
    section("jsd", beta=0.1),
    section("jsd", beta=0.0),
    section("jsd", beta=1.0),
    section("skewed_kl"),
    section("skewed_kl", reverse=True),
    section("total_variation"),
    section("logits_mse"),
    section("logits_mse", standardize=True),
    section("decoupled_kd"),
]
INFINITE = ("reverse_kl", "jsd beta 1.0")
"""Objectives whose loss is infinite where the teacher alone gives a probability of 0."""


def name(chosen: ObjectiveSection) -> str:
    keys = chosen.model_dump(exclude_defaults=True, exclude={"type"})
    return " ".join([chosen.type, *(f"{key} {value}" for key, value in keys.items())])


def of(chosen: list[ObjectiveSection]) -> Any:
    return pytest.mark.parametrize("chosen", chosen, ids=name)


FINITE = [chosen for chosen in SECTIONS if name(chosen) not in INFINITE]
SOFTENED = [chosen for chosen in SECTIONS if chosen.type != "logits_mse"]
unhurried = settings(deadline=None, max_examples=50)
Case = tuple[Tensor, Tensor, Tensor]


def finite(case: Case) -> Case:
    student, teacher, labels = case
    return student.nan_to_num(neginf=-9), teacher.nan_to_num(neginf=-9), labels


def test_every_objective_on_the_teachers_logits_is_here() -> None:
    sections = {kind: load(kind) for kind in OBJECTIVES}
    on_logits = {kind for kind, found in sections.items() if found.requirements.signals == {"logits"}}
    assert on_logits == {chosen.type for chosen in SECTIONS}


@of(SECTIONS)
@unhurried
@given(case=cases())
def test_the_closed_gradient_is_that_of_its_loss(chosen: ObjectiveSection, case: Case) -> None:
    student, teacher, labels = finite(case)
    student = student.requires_grad_()
    loss, gradient = losses(chosen)(student, (teacher,), Batch(labels, labels))
    (expected,) = torch.autograd.grad(loss.sum(), student)
    torch.testing.assert_close(gradient.detach(), expected, rtol=1e-10, atol=1e-10)


@of(SECTIONS)
def test_the_closed_gradient_passes_gradcheck(chosen: ObjectiveSection) -> None:
    random = torch.Generator().manual_seed(0)
    student, teacher = (torch.randn(5, 7, generator=random, dtype=torch.double) for _ in "ab")
    batch = Batch(labels := torch.tensor([0, 3, IGNORED, 6, 2]), labels)
    built = objective((chosen,), Context(Train(steps=1), seed=0))
    assert torch.autograd.gradcheck(
        lambda logits: built(Outputs(logits), (Outputs(teacher),), batch), student.requires_grad_()
    )


@of(SECTIONS)
@unhurried
@given(case=cases())
def test_a_loss_is_never_negative_and_0_for_a_student_that_equals_its_teacher(
    chosen: ObjectiveSection, case: Case
) -> None:
    student, teacher, labels = finite(case)
    assert evaluated(chosen, student, teacher, labels)[0] >= -1e-12
    loss, gradient = evaluated(chosen, teacher, case[1], labels)
    if teacher.equal(case[1]):
        assert loss == pytest.approx(0, abs=1e-12)
        torch.testing.assert_close(gradient, torch.zeros_like(gradient), rtol=0, atol=1e-12)


@of(SECTIONS)
@unhurried
@given(case=cases(), seed=st.integers(0, 1000))
def test_a_class_that_both_rule_out_may_as_well_not_exist(chosen: ObjectiveSection, case: Case, seed: int) -> None:
    student, teacher, labels = finite(case)
    expected, gradient = evaluated(chosen, student, teacher, labels)
    ruled_out = torch.full((len(student), 2), -math.inf, dtype=torch.double)
    order = torch.randperm(student.shape[1] + 2, generator=torch.Generator().manual_seed(seed))
    student, teacher, gradient = (
        torch.cat([logits, more], dim=1)[:, order]
        for logits, more in ((student, ruled_out), (teacher, ruled_out), (gradient, torch.zeros_like(ruled_out)))
    )
    places = order.argsort()[labels.clamp(min=0)].where(labels != IGNORED, IGNORED)
    loss, of_logits = evaluated(chosen, student, teacher, places)
    assert loss == pytest.approx(expected, rel=1e-10, abs=1e-10)
    torch.testing.assert_close(of_logits, gradient, rtol=1e-10, atol=1e-10)


@of([chosen for chosen in FINITE if chosen.type != "logits_mse"])
@unhurried
@given(case=cases())
def test_a_teachers_probability_of_0_is_the_limit_of_a_small_one(chosen: ObjectiveSection, case: Case) -> None:
    """Loss and gradient are finite, and those of a logit whose probability is below the smallest number."""
    student, teacher, labels = case
    student, teacher[:, 1] = student.nan_to_num(neginf=-9), 0.5  # so that no label has the whole probability
    results = [evaluated(chosen, student, logits, labels) for logits in (teacher, teacher.nan_to_num(neginf=-1e5))]
    (loss, gradient), (expected, of_logits) = results
    assert math.isfinite(loss)
    assert loss == pytest.approx(expected, rel=1e-10, abs=1e-10)
    torch.testing.assert_close(gradient, of_logits, rtol=1e-10, atol=1e-10)


@of([chosen for chosen in SECTIONS if chosen not in FINITE])
def test_a_teachers_probability_of_0_is_an_infinite_loss_of_the_student_s_divergence(chosen: ObjectiveSection) -> None:
    student, teacher = torch.tensor([[1.0, 2.0, 0.0]]), torch.tensor([[1.0, 2.0, -math.inf]])
    loss, gradient = evaluated(chosen, student, teacher, torch.tensor([1]))
    assert loss == math.inf
    assert not gradient.isfinite().all()
    loss, gradient = evaluated(chosen, student, teacher, torch.tensor([IGNORED]))
    assert (loss, gradient.any()) == (0, False)


@of(SECTIONS)
def test_a_position_without_a_target_may_have_any_logits_and_gets_no_gradient(chosen: ObjectiveSection) -> None:
    student, labels = torch.tensor([[math.nan] * 3, [-math.inf] * 3, [1.0, 2.0, 4.0]]), torch.tensor([-100, -100, 1])
    loss, gradient = evaluated(chosen, student, student.flip(1), labels)
    alone, of_target = evaluated(chosen, student[2:], student[2:].flip(1), labels[2:])
    assert loss == pytest.approx(alone)
    assert not gradient[:2].any()
    torch.testing.assert_close(gradient[2:], of_target)


@of([chosen for chosen in SECTIONS if name(chosen) != "logits_mse"])
@unhurried
@given(case=cases(), seed=st.integers(0, 1000))
def test_a_constant_added_to_all_logits_of_a_position_changes_nothing(
    chosen: ObjectiveSection, case: Case, seed: int
) -> None:
    student, teacher, labels = finite(case)
    random = torch.Generator().manual_seed(seed)
    first, second = (5 * torch.randn(len(student), 1, generator=random, dtype=torch.double) for _ in "ab")
    expected, gradient = evaluated(chosen, student, teacher, labels)
    loss, of_logits = evaluated(chosen, student + first, teacher + second, labels)
    assert loss == pytest.approx(expected, rel=1e-9, abs=1e-9)
    torch.testing.assert_close(of_logits, gradient, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(gradient.sum(-1), torch.zeros(len(gradient), dtype=torch.double), rtol=0, atol=1e-9)


@of(SECTIONS)
@unhurried
@given(case=cases(), at_a_time=st.integers(1, 40))
def test_the_number_of_rows_at_a_time_changes_no_result(chosen: ObjectiveSection, case: Case, at_a_time: int) -> None:
    student, teacher, labels = finite(case)
    expected, gradient = evaluated(chosen, student, teacher, labels)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(fused.AT_A_TIME, "cpu", at_a_time)
        loss, of_logits = evaluated(chosen, student, teacher, labels)
    assert loss == pytest.approx(expected, rel=1e-12, abs=1e-12)
    torch.testing.assert_close(of_logits, gradient, rtol=1e-12, atol=1e-12)


@of(SECTIONS)
def test_in_pieces_it_is_that_of_all_positions(chosen: ObjectiveSection, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    head, teacher_head = nn.Linear(8, 50).double(), nn.Linear(6, 50).double().requires_grad_(requires_grad=False)
    features = torch.randn(2, 20, 8, dtype=torch.double, requires_grad=True)
    teacher_features, labels = torch.randn(2, 20, 6, dtype=torch.double), torch.randint(50, (2, 20))
    labels[0, :3] = IGNORED
    built, batch = objective((chosen,), Context(Train(steps=1), seed=0)), Batch(labels, labels)
    whole = built(Outputs(head(features)), (Outputs(teacher_head(teacher_features)),), batch)
    expected = torch.autograd.grad(whole, (features, *head.parameters()))
    monkeypatch.setattr(outputs, "LOGITS_AT_A_TIME", 7 * 50)
    student = States(features, head, (*head.parameters(),), 50, head)
    teacher = States(teacher_features, teacher_head, (), 50, teacher_head)
    loss = loss_in_pieces(built, student, (teacher,), batch)
    torch.testing.assert_close(loss, whole, rtol=1e-12, atol=0)
    for ours, theirs in zip(torch.autograd.grad(loss, (features, *head.parameters())), expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-11, atol=1e-11)


@of(SOFTENED)
def test_several_teachers_are_the_mean_of_their_softened_distributions(chosen: ObjectiveSection) -> None:
    random = torch.Generator().manual_seed(0)
    student, first, second = (torch.randn(6, 5, generator=random, dtype=torch.double) for _ in "abc")
    temperature = chosen.model_dump()["temperature"]
    mean = temperature * ((first / temperature).softmax(-1) / 2 + (second / temperature).softmax(-1) / 2).log()
    labels = torch.tensor([0, 1, IGNORED, 3, 4, 0])
    expected, gradient = evaluated(chosen, student, mean, labels)
    names = dict.fromkeys(("first", "odd", "second"), OutputShapes())
    of_both = losses(chosen.model_copy(update={"teacher": ("second", "first")}), names)
    of_logits, odd = torch.empty_like(student), torch.full_like(student, math.nan)
    total = write_gradient(of_both, student, (first, odd, second), Batch(labels, labels), of_logits)
    assert total.item() == pytest.approx(expected, rel=1e-10)
    torch.testing.assert_close(of_logits, gradient, rtol=1e-10, atol=1e-10)


@of(SECTIONS)
@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_compiled_losses_are_the_same_and_may_overwrite_the_logits(chosen: ObjectiveSection, kind: torch.dtype) -> None:
    torch.compiler.reset()  # all objectives are compiled as calls of one function, which has a limit
    random = torch.Generator().manual_seed(0)
    by_position = losses(chosen)
    for rows in (6, 1):
        student, teacher = (torch.randn(rows, 50, generator=random).to(kind) for _ in "ab")
        labels = torch.randint(0, 50, (rows,), generator=random)
        labels[:1] = IGNORED if rows > 1 else 3
        gradient, batch = torch.empty_like(student), Batch(labels, labels)
        total = write_gradient(by_position, student, (teacher,), batch, gradient)
        again = compiled(by_position, "aot_eager")(student, (teacher,), batch, student, 1.0)
        assert full_precision(kind) is total.dtype is again.dtype
        torch.testing.assert_close(again, total)
        torch.testing.assert_close(student, gradient)


@pytest.mark.parametrize(
    ("kind", "keys", "share"),
    [
        ("logits", {}, 1),
        ("reverse_kl", {}, 1),
        ("jsd", {"beta": 0.3}, 0.3 * 0.7),
        ("skewed_kl", {"alpha": 0.3}, 0.7**2),
        ("skewed_kl", {"alpha": 0.3, "reverse": True}, 0.7**2),
    ],
)
@unhurried
@given(case=cases())
def test_at_a_high_temperature_a_divergence_compares_centred_logits(
    kind: str, keys: dict[str, Any], share: float, case: Case
) -> None:
    """Half the mean squared difference, times a share (Hinton et al. 2015, section 2.1)."""
    student, teacher, labels = finite(case)
    labels = labels.clamp(min=0)
    loss, gradient = evaluated(section(kind, temperature=1e5, **keys), student, teacher, labels)
    differences = student - teacher
    differences = differences - differences.mean(-1, keepdim=True)
    expected = share * differences.square().mean(-1).sum().item() / 2
    assert loss == pytest.approx(expected, rel=2e-3, abs=1e-5)
    torch.testing.assert_close(gradient, share * differences / student.shape[1], rtol=1e-2, atol=1e-2)


@of(SOFTENED)
def test_the_factor_keeps_the_gradient_from_shrinking_with_the_temperature(chosen: ObjectiveSection) -> None:
    random = torch.Generator().manual_seed(0)
    student, teacher = (torch.randn(8, 5, generator=random, dtype=torch.double) for _ in "ab")
    labels = torch.zeros(8, dtype=torch.long)
    cold, hot = (
        evaluated(chosen.model_copy(update={"temperature": temperature}), student, teacher, labels)[1].norm()
        for temperature in (50.0, 500.0)
    )
    assert hot / cold == pytest.approx(1, abs=0.1)


@of(SECTIONS)
@pytest.mark.parametrize(
    "train",
    [
        {"strategy": "pp"},
        {"strategy": "tp"},
        {"strategy": {"tp": 2, "sequence_parallel": True}},
        {"strategy": {"cp": 2}},
        {"strategy": "auto"},
    ],
    ids=str,
)
def test_no_strategy_is_refused(chosen: ObjectiveSection, train: dict[str, Any]) -> None:
    train = {"steps": 1, "gradient_accumulation_steps": 2, **train}
    distill = [chosen.model_dump(mode="json", exclude_defaults=True) | {"type": chosen.type}]
    recipe = {**values("causal-lm", distill=distill, train=train), "resources": {"distill": {"processes": 2}}}
    assert from_values(recipe, (), "here").objectives == (chosen,)


@pytest.mark.parametrize("kind", sorted({chosen.type for chosen in SOFTENED}))
@pytest.mark.parametrize("temperature", [0, -1])
def test_a_temperature_that_is_not_above_0_is_refused(kind: str, temperature: float) -> None:
    distill = [{"type": "labels"}, {"type": kind, "temperature": temperature}]
    with pytest.raises(InputError, match=r"student\.distill\[1\]\.temperature: .*0"):
        from_values(values("causal-lm", distill=distill), (), "here")


@pytest.mark.parametrize("kind", sorted({chosen.type for chosen in SECTIONS}))
def test_with_a_weight_of_0_nothing_is_learned_from_the_teacher(kind: str) -> None:
    distill = [{"type": "labels"}, {"type": kind, "weight": 0}]
    with pytest.raises(InputError, match=r"student\.distill: nothing in it is learned from the teacher"):
        from_values(values("causal-lm", distill=distill), (), "here")


@of(SECTIONS)
def test_it_learns_from_several_teachers(chosen: ObjectiveSection) -> None:
    assert isinstance(chosen, EnsembleObjective)
