import subprocess
import sys
from collections.abc import Callable

import pytest

from understudy.errors import InputError
from understudy.recipe import Recipe
from understudy.recipe.tasks import TASKS, all_metrics, default_objectives, load

HEAVY = ("torch", "transformers", "mlflow", "numpy", "pyarrow")


@pytest.mark.parametrize("name", TASKS)
def test_a_task_measures_what_the_gate_decides_by_and_learns_from_labels_and_logits(name: str) -> None:
    assert set(load(name).METRICS) <= set(all_metrics())
    labels, logits = default_objectives(name)
    assert (labels.type, logits.type) == ("labels", "logits")
    assert labels.weight + logits.weight == 1


def test_checking_a_recipe_imports_nothing_heavy_with_the_tasks() -> None:
    code = "import sys; from understudy.recipe import Recipe; from understudy.recipe.tasks import TASKS, load\n"
    code += "Recipe.model_json_schema(); [load(name) for name in TASKS]\n"
    code += f"print([name for name in {HEAVY} if name in sys.modules])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"


@pytest.mark.parametrize("strategy", ["cp", "{cp: 2}"])
def test_sequences_are_split_for_language_models_only(
    digits: Recipe, change: Callable[..., Recipe], strategy: str
) -> None:
    with pytest.raises(InputError, match=r"student\.train\.strategy: cp splits sequences .* the task is image-class"):
        change(digits, f"student.train.strategy={strategy}", "resources.distill.processes=2")
