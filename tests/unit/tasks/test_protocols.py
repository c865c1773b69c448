"""Every task's module has what the layers ask of a task, under the same names and parameters."""

import inspect
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models

from understudy.data.ingest import Checks
from understudy.data.loader import Opens
from understudy.data.prepare import Prepares
from understudy.evaluate.task import EvaluatedTask
from understudy.models.tasks import Wraps
from understudy.plan.expected import PlannedTask
from understudy.recipe.tasks import TASKS, RecipeTask, load
from understudy.registry.task import ServedTask

PROTOCOLS: tuple[Any, ...] = (RecipeTask, Checks, Prepares, Opens, PlannedTask, Wraps, EvaluatedTask, ServedTask)


def members(protocol: Any) -> dict[str, Any]:
    """The constants of a protocol, and its functions without self."""
    constants = {name: None for base in protocol.__mro__ for name in getattr(base, "__annotations__", {})}
    functions = {name: value for name, value in vars(protocol).items() if inspect.isfunction(value) and name[0] != "_"}
    return constants | functions


@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_tasks_module_has_what_a_layer_asks_of_it(name: str, protocol: Any) -> None:
    task = load(name)
    for member, function in members(protocol).items():
        assert hasattr(task, member), member
        if function is not None:
            asked = [*inspect.signature(function).parameters][1:]
            assert [*inspect.signature(getattr(task, member)).parameters] == asked, member


def test_a_predictor_takes_what_the_served_script_gives_it() -> None:
    taken = {tuple(inspect.signature(load(name).Predictor).parameters) for name in TASKS}  # type: ignore[attr-defined]
    assert taken == {("facts", "logits", "folder", "artifacts", "stride")}


@pytest.mark.parametrize(
    ("task", "columns", "message"),
    [
        ("text-classification", {"text": ["a", "b", "c", None]}, "text 3: is None, not a text"),
        ("text-classification", {"text": ["a", "b"], "second": ["a", math.nan]}, "second 1: is nan, not a text"),
        ("token-classification", {"words": [7, "a b"]}, "words 0: is 7, not a text"),
        ("causal-lm", {"text": ["a", None]}, "text 1: is None, not a text"),
    ],
)
def test_a_served_row_that_is_no_text_is_refused_with_its_index(
    task: str, columns: dict[str, list[Any]], message: str, tmp_path: Path
) -> None:
    Tokenizer(models.WordLevel({"a": 0, "b": 1}, unk_token="a")).save(str(tmp_path / "tokenizer.json"))
    facts = {
        "labels": ["x", "y"],
        "sequence_length": 4,
        "eos_id": 0,
        "vocab_size": 2,
        "details": {"texts": len(columns)},
    }
    predictor = load(task).Predictor(facts, lambda tokens, **_: torch.zeros(*tokens.shape, 2), tmp_path, {}, None)  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        predictor.predict(columns, {"max_new_tokens": 0})
