"""The answers that models generate to test examples, as texts, and their scores against the data's own answers.

Scores are functions of tokens and of the examples alone, so whoever reads an evaluation's results can compute them
again.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from understudy.data.measured import TestSplit
from understudy.data.prompts import Prompts
from understudy.evaluate.contents import COMPLETIONS
from understudy.evaluate.metrics import METRICS, FloatArray
from understudy.evaluate.task import evaluated_task
from understudy.models.facts import read_facts
from understudy.recipe import Generation, MetricName

AGREEMENT: MetricName = "agreement"


@dataclass(frozen=True)
class Answerable:
    """The test examples that models answer, and the data's answers.

    Args:
        examples: the folder of an `examples` object.
        limits: the recipe's.
    """

    examples: Path
    limits: Generation

    @cached_property
    def prompts(self) -> Prompts:
        """The prompts; none if the task has no answers to generate."""
        return self._split.prompts.limited(self.limits.examples, self.limits.max_new_tokens)

    @cached_property
    def references(self) -> list[str]:
        """The data's answers."""
        places = zip(self.prompts.ends, self.prompts.data_ends, strict=True)
        return [self._text(np.asarray(self._tokens[begin:end])) for begin, end in places]

    def question(self, row: int) -> str:
        """The text of a prompt, with special tokens."""
        begin, end = self.prompts.begins[row], self.prompts.ends[row]
        text: str = self._tokenizer.decode(self._tokens[begin:end].tolist(), skip_special_tokens=False)
        return text

    @cached_property
    def trivial(self) -> str:
        """The most frequent answer of the training split, which the trivial predictor gives to every question."""
        return self._text(self._split.frequent_answer())

    def scores(self, per_example: Mapping[str, Any], metrics: Iterable[MetricName]) -> dict[str, FloatArray]:
        """The scores of all models' answers, ROLE.METRIC, by the metrics of answers; and of the trivial predictor's.

        Args:
            per_example: the arrays of per_example.npz, with each model's tokens.
            metrics: the recipe's.
        """
        names = [name for name in metrics if METRICS[name].from_texts and name != AGREEMENT]
        if not names:
            return {}
        answers = {role: self.texts(tokens) for role, tokens in _completions(per_example).items()}
        answers["trivial"] = [self.trivial] * len(self.references)
        return {
            f"{role}.{name}": _scores(name, texts, self.references) for role, texts in answers.items() for name in names
        }

    def agreement(self, per_example: Mapping[str, Any], teacher: str) -> dict[str, FloatArray]:
        """The agreement of all models' answers with a teacher's."""
        answers = {role: self.texts(tokens) for role, tokens in _completions(per_example).items()}
        return {f"{role}.{AGREEMENT}": _scores(AGREEMENT, texts, answers[teacher]) for role, texts in answers.items()}

    def texts(self, tokens: FloatArray) -> list[str | None]:
        """A model's answers from its tokens (prompts, tokens), up to the one that ends each; None where one is NaN."""
        return [None if np.isnan(row).any() else self._text(row.astype(np.int64)) for row in tokens]

    @cached_property
    def _tokens(self) -> Any:
        return np.load(self.examples / "test.tokens.npy", mmap_mode="r")

    @cached_property
    def _tokenizer(self) -> Any:
        from tokenizers import Tokenizer

        return Tokenizer.from_file(str(self.examples / "tokenizer.json"))

    def _text(self, tokens: Any) -> str:
        ends = np.flatnonzero(np.isin(tokens, list(self.prompts.stops)))
        text: str = self._tokenizer.decode(tokens[: ends[0] if len(ends) else None].tolist())
        return text

    @cached_property
    def _split(self) -> TestSplit:
        facts = read_facts(self.examples)
        return evaluated_task(facts["task"]).test_split(self.examples, facts, facts, None, None, None)


def _scores(name: MetricName, answers: Sequence[str | None], references: Sequence[str | None]) -> FloatArray:
    """The scores (prompts,) of answers; NaN where one, or its reference, is None."""
    function = METRICS[name].from_texts
    assert function is not None
    return np.array(
        [
            np.nan if answer is None or reference is None else function(answer, reference)
            for answer, reference in zip(answers, references, strict=True)
        ],
        dtype=np.float64,
    )


def _completions(per_example: Mapping[str, Any]) -> dict[str, FloatArray]:
    suffix = f".{COMPLETIONS}"
    return {name.removesuffix(suffix): tokens for name, tokens in per_example.items() if name.endswith(suffix)}
