"""The student's generated answers that fall farthest behind its teacher's, for a reader."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from understudy.data.records import ids_at
from understudy.errors import printable_lines
from understudy.evaluate.contents import COMPLETIONS
from understudy.evaluate.generated_answers import Answerable
from understudy.evaluate.metrics import METRICS
from understudy.evaluate.worst import DIGITS
from understudy.recipe import Generation, MetricName
from understudy.recipe.roles import STUDENT, TEACHER

MOST = 6
"""Maximum number of answers shown."""
LETTERS = 600
"""Maximum length of a text."""
SCORES: tuple[MetricName, ...] = ("chrf", "rouge_l", "f1", "exact_match")
"""The first one that was measured decides, since it tells most answers apart."""


@dataclass(frozen=True)
class WorstAnswer:
    """A question, its answers, and their scores in words."""

    number: int
    """Index in the test split, from 0."""
    question: str
    reference: str
    student: str
    teacher: str
    metric: str
    student_score: str
    teacher_score: str
    record: str = ""
    """The beginning of the SHA-256 of the record's content."""


def worst_answers(
    examples: Path, records: Path, per_example: Mapping[str, Any], limits: Generation
) -> list[WorstAnswer]:
    """The answers whose score is farthest below the teacher's; empty if no answers were generated.

    Args:
        examples: the folder of an `examples` object.
        records: the folder of the `records` object that they were made from.
        per_example: the arrays of per_example.npz.
        limits: the recipe's limits of generated answers.
    """
    name = next((name for name in SCORES if f"{STUDENT}.{name}" in per_example), None)
    if name is None or f"{TEACHER}.{name}" not in per_example:
        return []
    student, teacher = per_example[f"{STUDENT}.{name}"], per_example[f"{TEACHER}.{name}"]
    gaps = np.nan_to_num(teacher - student)
    chosen = [int(row) for row in np.argsort(-gaps, kind="stable")[:MOST] if gaps[row] > 0]
    answerable, metric = Answerable(examples, limits), METRICS[name]
    answers = {role: answerable.texts(per_example[f"{role}.{COMPLETIONS}"]) for role in (STUDENT, TEACHER)}
    shown = [
        WorstAnswer(
            int(answerable.prompts.examples[row]),
            _end(answerable.question(row)),
            _beginning(answerable.references[row]),
            _beginning(answers[STUDENT][row] or ""),
            _beginning(answers[TEACHER][row] or ""),
            metric.title,
            metric.show(float(student[row])),
            metric.show(float(teacher[row])),
        )
        for row in chosen
    ]
    numbers = sorted(answer.number for answer in shown)
    ids = dict(zip(numbers, ids_at(records, "test", numbers), strict=True))
    return [replace(answer, record=ids[answer.number][:DIGITS]) for answer in shown]


def _beginning(text: str) -> str:
    printable = printable_lines(text) or "(nothing that can be seen)"
    return printable if len(printable) <= LETTERS else f"{printable[:LETTERS]} …"


def _end(text: str) -> str:
    printable = printable_lines(text)
    return printable if len(printable) <= LETTERS else f"… {printable[-LETTERS:]}"
