"""A first task that finds every step of its run in the step cache, or not."""

from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from understudy.errors import Forbidden, UnderstudyError
from understudy.recipe import Recipe
from understudy.steps import lookup, steps_of
from understudy.steps.execution import execute
from understudy.steps.lookup import reuse
from understudy.steps.step import Step, Work, World
from understudy.store import Run, Store

NAMES = ("ingest", "prepare", "gate")


def write(work: Work) -> None:
    (work.staged / "content").write_text(f"{work.step} of {dict(work.inputs)}")


def step(name: str, role: str, *inputs: str) -> Step:
    return Step(
        name=name, role=role, kind=role, work=write, modules=(), section=lambda recipe, store: {}, inputs=inputs
    )


CHAIN = {
    "ingest": step("ingest", "records"),
    "prepare": step("prepare", "examples", "records"),
    "gate": step("gate", "verdict", "examples"),
}
Change = Callable[[Step], Step]


@pytest.fixture(autouse=True)
def chain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "steps_of", lambda recipe: CHAIN)


def new(store: Store, digits: Recipe) -> Run:
    return store.create_run("digits", digits.model_dump(mode="json", by_alias=True), "")


def through(store: Store, run: Run, steps: Mapping[str, Step] = CHAIN) -> dict[str, str]:
    """Make or find each step, as the pipeline's tasks do."""
    digests: dict[str, str] = {}
    for step in steps.values():
        digests[step.role] = execute(step, store, run, {role: digests[role] for role in step.inputs}, {}).digest
    return digests


def test_a_run_of_which_all_is_there_is_found_with_the_digests_that_its_tasks_would_find(
    store: Store, digits: Recipe
) -> None:
    through(store, new(store, digits))
    run, computed_run = new(store, digits), new(store, digits)
    assert reuse(store, run).complete
    through(store, computed_run)
    for name in NAMES:
        state, computed_state = run.state(name), computed_run.state(name)
        assert state
        assert computed_state
        assert (state.state, state.key, state.digest) == (
            computed_state.state,
            computed_state.key,
            computed_state.digest,
        )
        assert state.state == "reused"
    assert run.uses == computed_run.uses, "gc keeps the objects it uses"


@pytest.mark.parametrize("missing", NAMES)
def test_one_step_that_is_not_there_is_enough_to_record_nothing(store: Store, digits: Recipe, missing: str) -> None:
    through(store, new(store, digits))
    changed_step = replace(CHAIN[missing], section=lambda recipe, store: {"changed": 1})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lookup, "steps_of", lambda recipe: {**CHAIN, missing: changed_step})
        run = new(store, digits)
        result = reuse(store, run)
    assert not result.complete
    assert [state.step for state in result.states] == list(NAMES[: NAMES.index(missing)])
    assert run.states() == []


def test_an_object_that_is_gone_is_not_found(store: Store, digits: Recipe) -> None:
    digests = through(store, new(store, digits))
    (store.objects.path(digests["verdict"]) / "manifest.json").unlink()
    assert not reuse(store, new(store, digits)).complete


def test_what_no_longer_holds_in_the_world_is_not_found(
    store: Store, digits: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    through(store, new(store, digits))
    invalid = replace(CHAIN["gate"], still_holds=lambda path, store: False)
    monkeypatch.setattr(lookup, "steps_of", lambda recipe: {**CHAIN, "gate": invalid})
    assert not reuse(store, new(store, digits)).complete


def raising(*_: object) -> World:
    raise UnderstudyError("MLflow does not answer")


@pytest.mark.parametrize(
    "change",
    [lambda step: replace(step, outside=raising), lambda step: replace(step, check=raising)],
    ids=["world", "check"],
)
def test_what_cannot_be_told_now_is_left_to_its_own_task(
    store: Store, digits: Recipe, monkeypatch: pytest.MonkeyPatch, change: Change
) -> None:
    through(store, new(store, digits))
    monkeypatch.setattr(lookup, "steps_of", lambda recipe: {**CHAIN, "prepare": change(CHAIN["prepare"])})
    run = new(store, digits)
    result = reuse(store, run)
    assert (len(result.states), result.complete, result.problem) == (1, False, "MLflow does not answer")
    assert run.states() == []


def test_a_missing_right_is_told_and_not_taken_for_a_step_that_is_not_there(
    store: Store, digits: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing(*_: object) -> World:
        raise Forbidden("MLflow refuses access (403)")

    through(store, new(store, digits))
    monkeypatch.setattr(
        lookup, "steps_of", lambda recipe: {**CHAIN, "prepare": replace(CHAIN["prepare"], outside=refusing)}
    )
    with pytest.raises(Forbidden):
        reuse(store, new(store, digits))


def test_what_follows_a_step_follows_one_that_was_found(
    store: Store, digits: Recipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    through(store, new(store, digits))
    followed: list[str] = []
    following = replace(CHAIN["gate"], follow=lambda run, store: followed.append(run.id))
    monkeypatch.setattr(lookup, "steps_of", lambda recipe: {**CHAIN, "gate": following})
    run = new(store, digits)
    assert reuse(store, run).complete
    assert followed == [run.id]


def test_every_step_has_a_role_of_its_own(digits: Recipe) -> None:
    steps = steps_of(digits).values()
    assert len({step.role for step in steps}) == len(steps)
