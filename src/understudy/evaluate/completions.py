"""Completions of test documents by each model, for a reader: the same beginnings for all, decoded greedily.

Metrics show how likely the actual text is to a model; completions show the text that it generates. They do not affect
the verdict.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from understudy.data.prompts import EXAMPLES, Prompts, spread
from understudy.errors import printable_lines
from understudy.evaluate.contents import COMPLETIONS
from understudy.evaluate.metrics import FloatArray
from understudy.evaluate.task import evaluated_task
from understudy.models.facts import Facts, read_facts
from understudy.recipe import Generation


@dataclass(frozen=True)
class Completed:
    """The beginning of a document, and its continuations: the original and each model's."""

    document: int
    beginning: str
    texts: Mapping[str, str]
    """Text by role; `data` is the original."""


def completed(examples: Path, per_example: Mapping[str, Any], limits: Generation) -> list[Completed]:
    """The completions of all models that have some, as text; of many, a few.

    Args:
        examples: the folder of an `examples` object.
        per_example: the arrays of per_example.npz.
        limits: the recipe's limits of generated answers.
    """
    facts = read_facts(examples)
    completions = {name.partition(".")[0]: ids for name, ids in per_example.items() if name.endswith(f".{COMPLETIONS}")}
    if "labels" in facts or not completions:
        return []
    from tokenizers import Tokenizer

    prompts, rows = prompts_of(examples, facts, limits), list[Completed]()
    tokenizer, stops = Tokenizer.from_file(str(examples / "tokenizer.json")), prompts.stops or {int(facts["eos_id"])}
    tokens = np.load(examples / "test.tokens.npy", mmap_mode="r")

    def shown(ids: Any) -> str:
        # Special tokens are shown: padding is not an end of text.
        text = tokenizer.decode([int(token) for token in ids], skip_special_tokens=False)
        return printable_lines(text) or "(nothing that can be seen)"

    def written(ids: FloatArray) -> str:
        if np.isnan(ids).any():
            return "not measured"
        ends = np.flatnonzero(np.isin(ids, list(stops)))
        if len(ends) and ends[0] == 0:
            return "(the text ends)"
        return shown(ids[: ends[0]] if len(ends) else ids)

    for row in spread(np.arange(len(prompts.examples)), EXAMPLES).tolist():
        start, prompt_end = int(prompts.begins[row]), int(prompts.ends[row])
        data = np.asarray(tokens[prompt_end : prompts.data_ends[row]], dtype=np.float64)
        texts = {"data": written(data)} | {role: written(ids[row]) for role, ids in completions.items()}
        rows.append(Completed(int(prompts.examples[row]), shown(tokens[start:prompt_end]), texts))
    return rows


def prompts_of(examples: Path, facts: Facts, limits: Generation) -> Prompts:
    """The prompts of a test split; they are the same for every model."""
    split = evaluated_task(facts["task"]).test_split(examples, facts, facts, None, None, None)
    return split.prompts.limited(limits.examples, limits.max_new_tokens)
