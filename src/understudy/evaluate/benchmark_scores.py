"""The types of benchmarks.json: the scores of models on tasks of lm-eval, for its writer and its readers."""

from collections.abc import Iterator, Mapping, Sequence

from typing_extensions import TypedDict

CONTENTS = "benchmarks.json"
"""The file's name."""
UNFILTERED = "none"
"""lm-eval's name for answers that no filter has changed."""


class Score(TypedDict):
    """A metric of a task."""

    metric: str
    filter: str
    """lm-eval's name for how answers were changed before they were compared."""
    value: float | None
    """None if the model's logits are NaN, or if the value is not finite."""
    stderr: float | None
    """lm-eval's standard error; None if it has none for the metric."""


class ModelScores(TypedDict):
    """The scores of a model, by task."""

    digest: str
    tasks: dict[str, list[Score]]


class TaskFacts(TypedDict):
    """How a task was asked."""

    examples: int
    num_fewshot: int
    higher_is_better: dict[str, bool | None]
    """By metric."""


class Benchmarks(TypedDict):
    """The content of benchmarks.json."""

    lm_eval: str
    """The version."""
    chat_template: bool
    """Whether prompts were rendered by the examples' chat template."""
    tasks: dict[str, TaskFacts]
    models: dict[str, ModelScores]
    """By role."""


def name_of(score: Score) -> str:
    """A metric's name, with its filter if it has one: acc, exact_match.strict-match."""
    return score["metric"] if score["filter"] == UNFILTERED else f"{score['metric']}.{score['filter']}"


def figures(scores: ModelScores) -> dict[str, float]:
    """A model's scores as metrics: lm_eval.TASK.METRIC, and its standard error with _stderr at its end."""
    values: dict[str, float] = {}
    for task, listed in scores["tasks"].items():
        for score in listed:
            name = f"lm_eval.{task}.{name_of(score)}"
            numbers = {name: score["value"], f"{name}_stderr": score["stderr"]}
            values |= {key: number for key, number in numbers.items() if number is not None}
    return values


def rows(benchmarks: Benchmarks, roles: Sequence[str]) -> Iterator[tuple[str, str, bool | None, list[Score]]]:
    """The rows of a table: task, metric, whether higher is better, and the score of each of these models."""
    models: Mapping[str, ModelScores] = benchmarks["models"]
    for task, facts in benchmarks["tasks"].items():
        for place, score in enumerate(models[roles[0]]["tasks"][task]):
            higher = facts["higher_is_better"][score["metric"]]
            yield task, name_of(score), higher, [models[role]["tasks"][task][place] for role in roles]
