"""Records -> examples, the arrays that training memory-maps."""

import json
from collections import Counter
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from understudy.errors import InputError, printable
from understudy.graph import EXAMPLES, RECORDS, Node
from understudy.launch.platform import platform
from understudy.recipe import Recipe
from understudy.recipe.data import Tokenizer
from understudy.recipe.tasks import load
from understudy.recipe.training_rules import NOTHING_TO_VALIDATE
from understudy.steps.identity import task_code
from understudy.steps.step import Step, Work
from understudy.store import Store


def _section(recipe: Recipe, store: Store) -> Mapping[str, object]:
    shape: dict[str, object] = {"task": recipe.task, "task_code": task_code(recipe.task, ("prepare",))}
    if recipe.takes("data.image"):
        shape["image"] = recipe.image.model_dump(mode="json")
    if recipe.takes("data.text"):
        text = recipe.text
        # Left out for the value that was fixed before this was a setting: such examples keep their key.
        shape["text"] = text.model_dump(mode="json", exclude={"packing"} if text.packing == "wrapped" else set())
        shape["content"] = _tokenizer(text.tokenizer, store)
    if recipe.takes("data.chat"):
        shape["chat"] = recipe.chat.model_dump(mode="json", exclude={"template"})
        shape["template"] = [store.fingerprints.file(Path(recipe.chat.template))] if recipe.chat.template else []
    return shape


def _tokenizer(tokenizer: Tokenizer, store: Store) -> list[str]:
    """The digests of a pretrained tokenizer's files."""
    if not tokenizer.pretrained:
        return []
    from understudy.data.tokenizer import files

    return [store.fingerprints.file(path) for path in files(tokenizer)]


def _prepare(node: Node, work: Work) -> None:
    from understudy.data.prepare import prepare

    platform().prepare(work.run)
    like, recipe = work.input(EXAMPLES) if node.data else None, work.recipe
    records = work.input(node.inputs[0])
    for note in prepare(recipe.data, recipe.task, records, work.staged, work.progress, like):
        work.run.note(printable(note))


def _check_splits(node: Node, recipe: Recipe, store: Store, inputs: Mapping[str, str]) -> None:
    """Check, before any training, that the splits are large enough for the gate and for validation."""
    if node.data:  # all of it is trained on
        return
    from understudy.evaluate.sufficiency import shortfalls

    folder, gate, metric = store.objects.path(inputs[RECORDS]), recipe.gate, recipe.gate_metric
    facts = json.loads((folder / "records.json").read_text())
    counts, distinct = facts["counts"], facts.get("distinct", facts["counts"])  # copies prove nothing twice
    examples = distinct["test"]
    few = shortfalls(load(recipe.task), metric, gate, examples, sum(distinct.values()))
    problems = [f"{'.'.join(path)}: {why}" for path, why in few]
    if not problems and load(recipe.task).LABELLED:
        why = _labels_problem(recipe, _labels(folder), examples)
        problems = [f"data.test: {why}"] if why else []
    if problems and (copies := counts["test"] - examples):
        problems[-1] += f" Copies are counted once: {copies:,} of the {counts['test']:,} test records are copies."
    if not counts["validation"]:
        validating = [path for path, stage in recipe.trainings.items() if stage.train.validate_every]
        problems += [f"{path}.train.validate_every: {NOTHING_TO_VALIDATE}" for path in validating]
    if problems:
        raise InputError("\n".join(problems))


def _labels_problem(recipe: Recipe, counts: Mapping[tuple[str, str], int], examples: int) -> str:
    """Why the gate could not judge any student by the labels of the test examples; empty if it could."""
    from understudy.evaluate.metrics import METRICS
    from understudy.evaluate.sufficiency import indistinct, too_rare

    confidence, noun = recipe.gate.confidence, load(recipe.task).NOUN
    if recipe.gate_metric == "accuracy":
        return indistinct(_unlike_most(counts), examples, confidence, noun)
    if METRICS[recipe.gate_metric].from_answers:
        return too_rare({label: count for (split, label), count in counts.items() if split == "test"}, confidence, noun)
    return ""


def _labels(records: Path) -> Counter[tuple[str, str]]:
    """The number of records by split and label; copies in the test split are counted once."""
    import pyarrow.parquet as pq

    with pq.ParquetFile(records / "records.parquet") as file:  # counting with pyarrow imports pandas, in every run
        columns = [file.read(columns=[name])[name].to_pylist() for name in ("split", "label", "id")]
    counts, tested = Counter[tuple[str, str]](), set[tuple[str, str]]()
    for split, label, record in zip(*columns, strict=True):
        if split != "test" or (label, record) not in tested:
            counts[split, label] += 1
        if split == "test":
            tested.add((label, record))
    return counts


def _unlike_most(counts: Mapping[tuple[str, str], int]) -> int:
    """The number of test records without the most frequent training label; with ties, the largest number."""
    trained = {label: count for (split, label), count in counts.items() if split == "train"}
    tested = {label: count for (split, label), count in counts.items() if split == "test"}
    most = [label for label, count in trained.items() if count == max(trained.values())]
    return sum(tested.values()) - min(tested.get(label, 0) for label in most)


def step(node: Node) -> Step:
    """The step of a node of the kind `prepare`."""
    return Step(
        name=node.name,
        role=node.role,
        kind="examples",
        work=partial(_prepare, node),
        functions=(_prepare,),
        modules=("understudy.data.prepare",),
        section=_section,
        inputs=node.inputs,
        check=partial(_check_splits, node),
    )
