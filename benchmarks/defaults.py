"""Which objectives should a student have by default? Student minus control, over five data sets and several seeds.

    python -m benchmarks.defaults FOLDER [--sets digits ...] [--seeds 5] [--schemes 0.3/0.7@2 ...] [--minutes 10]

A scheme is the weight of the labels, that of the teacher's logits, and the temperature. Teacher, control and student
are trained by the code that a run uses, in this process and on one thread. Trained models lie in FOLDER: started
again, it goes on where it ended. The table is printed at the end, with the results so far.
"""

import argparse
import json
import math
import os
import shutil
import statistics
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.example_data import SETS, recipe_of
from understudy.data.ingest import ingest
from understudy.data.measured import Documents, Labelled
from understudy.data.prepare import prepare
from understudy.evaluate import answers
from understudy.evaluate.metrics import METRICS
from understudy.evaluate.statistics import Bootstrap, Difference
from understudy.jobs.payload import TrainingJob
from understudy.models.facts import read_facts
from understudy.models.files import load_model
from understudy.models.trust import trusted_description
from understudy.objectives.labels import LabelsObjective
from understudy.objectives.logits import LogitsObjective
from understudy.recipe import Objectives, Recipe, SavedModel
from understudy.recipe.objectives import without_teacher
from understudy.recipe.roles import learner_of
from understudy.train.job import Callbacks, run
from understudy.train.resources import RankResources

SCHEMES = ("0.1/0.9@4", "0.3/0.7@2", "0.5/0.5@1", "0.2/0.8@1")
T_975 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 9: 2.262}  # Student's t, two-sided 95 %, by degrees of freedom
CONFIDENCE = 0.95


def objectives(scheme: str) -> Objectives:
    """A scheme as student.distill: "0.3/0.7@2" has labels 0.3, logits 0.7, and the temperature 2."""
    weights, _, temperature = scheme.partition("@")
    labels, _, logits = weights.partition("/")
    return (
        LabelsObjective(type="labels", weight=float(labels)),
        LogitsObjective(type="logits", weight=float(logits), temperature=float(temperature)),
    )


def examples_of(name: str, folder: Path) -> tuple[Recipe, Path]:
    """A data set's recipe and its examples, made unless they are there."""
    recipe, examples = Recipe.model_validate(recipe_of(name, folder)), folder / "examples"
    if not examples.exists():
        records, staged = folder / "ingested", folder / "staged"
        for path in (records, staged):
            shutil.rmtree(path, ignore_errors=True)
            path.mkdir(parents=True)
        ingest(recipe.data, recipe.task, records, _silent)
        prepare(recipe.data, recipe.task, records, staged, _silent)
        staged.rename(examples)
    return recipe, examples


def results_of(
    recipe: Recipe, examples: Path, folder: Path, role: str, scheme: Objectives | None = None
) -> answers.Results:
    """A model's results on the test split, trained and measured unless they are there.

    Args:
        recipe: with its seed.
        examples: of the data set.
        folder: of the seed; the model goes into a folder of its own below it.
        role: the name of that folder; the teacher is the one called so.
        scheme: its objectives with a teacher; without, those of the labels alone.
    """
    training_folder = folder / role.replace("/", "-")
    file = training_folder / "results.npz"
    if not file.exists():
        shutil.rmtree(training_folder, ignore_errors=True)
        training_folder.mkdir(parents=True)
        _train(recipe, examples, training_folder, role, folder / "teacher" / "output", scheme)
        np.savez_compressed(
            training_folder / "new.npz",
            allow_pickle=False,
            **_measured(recipe, examples, training_folder / "output", role),
        )
        (training_folder / "new.npz").rename(file)
    return answers.read(file)


def _train(
    recipe: Recipe, examples: Path, training_folder: Path, role: str, teacher: Path, scheme: Objectives | None
) -> None:
    is_teacher, taught = role == "teacher", scheme is not None
    trained_on = scheme or without_teacher()
    learner = recipe.all_teachers["teacher"] if is_teacher else recipe.student
    assert learner.train is not None
    section = learner_of(role)
    job = TrainingJob(
        learner=section,
        path=section,
        model=learner.model,
        train=learner.train,
        objectives=trained_on,
        seed=recipe.seed,
        student_objectives=trained_on,
        student_teachers=("teacher",),
        examples=examples,
        initial=None,
        teachers={"teacher": SavedModel(str(teacher), recipe.all_teachers["teacher"].model)} if taught else {},
    )
    began = time.monotonic()
    run(
        job,
        RankResources(1, 1, "cpu", "resources.teacher" if is_teacher else "resources.distill"),
        Callbacks(
            lambda phase, step: None, lambda: False, lambda ranks: "one", lambda name: training_folder, lambda at: None
        ),
    )
    shutil.rmtree(training_folder / "checkpoints", ignore_errors=True)
    print(f"{recipe.name} seed {recipe.seed} {role}: {time.monotonic() - began:.1f} s", flush=True)


def _measured(recipe: Recipe, examples: Path, folder: Path, role: str) -> answers.Results:
    learner, on = recipe.learners[learner_of(role)], torch.device("cpu")
    module = load_model(folder, trusted_description(folder, learner.model, examples, role), on)
    split = _split(recipe, examples)
    return answers.results(module, split, 256, on, 0, lambda batches: None, limits=recipe.generation)


def _split(recipe: Recipe, examples: Path) -> Labelled | Documents:
    facts = read_facts(examples)
    if facts["task"] == "causal-lm":
        length = recipe.text.sequence_length
        return Documents(examples, length, facts["eos_id"], length)
    return Labelled(examples, "images")


def row(name: str, home: Path, seed: int, scheme: str) -> dict[str, Any]:
    """One line of the measurements: the metric by role, and student minus control over the test examples."""
    folder = home / name
    recipe, examples = examples_of(name, folder)
    recipe = recipe.model_copy(update={"seed": seed})
    at = folder / f"seed-{seed}"
    by_role = {
        "teacher": results_of(recipe, examples, at, "teacher"),
        "control": results_of(recipe, examples, at, "control"),
        "student": results_of(recipe, examples, at, scheme, objectives(scheme)),
    }
    split, metric = _split(recipe, examples), recipe.gate_metric
    arrays: dict[str, Any] = {"weights.tokens": split.tokens.astype(float), "weights.bytes": split.bytes.astype(float)}
    for role, results in by_role.items():
        arrays |= answers.by_role(role, results)
    bootstrap = Bootstrap(arrays, by_role)
    values = {role: bootstrap.value(metric, role) for role in by_role}
    difference: Difference = bootstrap.difference(metric, "student", "control", CONFIDENCE)
    sign = 1 if METRICS[metric].higher_is_better else -1
    gain = [sign * number for number in (difference.observed, difference.low, difference.high)]
    return {"set": name, "seed": seed, "scheme": scheme, **values, "gain": gain[0], "ends": sorted(gain[1:])}


def main() -> None:
    """Measure the requested trainings, write a line after each, and print the table of all lines."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--sets", nargs="*", default=list(SETS), choices=list(SETS))
    parser.add_argument("--schemes", nargs="*", default=list(SCHEMES))
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin nothing after so many")
    options = parser.parse_args()
    os.environ |= {"WORLD_SIZE": "1", "RANK": "0", "LOCAL_RANK": "0"}
    lines, began = options.folder / "rows.jsonl", time.monotonic()
    options.folder.mkdir(parents=True, exist_ok=True)
    requested = [
        (seed, name, scheme) for seed in range(options.seeds) for name in options.sets for scheme in options.schemes
    ]
    for seed, name, scheme in requested:
        if (name, seed, scheme) in _rows(lines):
            continue
        if time.monotonic() - began > 60 * options.minutes:
            break
        with lines.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row(name, options.folder, seed, scheme)) + "\n")
    print(table(_rows(lines)))


def _rows(path: Path) -> dict[tuple[str, int, str], Mapping[str, Any]]:
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    results = [json.loads(line) for line in lines]
    return {(line["set"], line["seed"], line["scheme"]): line for line in results}


def table(rows: Mapping[tuple[str, int, str], Mapping[str, Any]]) -> str:
    """Student minus control by data set and scheme, in points (images) or per cent (text); above 0 it is better.

    Better and worse count the seeds whose interval over the test examples leaves out 0.
    """
    lines = [
        "| data set | scheme | seeds | mean gain | t interval over the seeds | better / worse by the test | recovered |"
    ]
    lines.append("|---|---|---|---|---|---|---|")
    for name, scheme in dict.fromkeys((name, scheme) for name, _, scheme in sorted(rows)):
        those = [
            line
            for (data_set, _, used_scheme), line in sorted(rows.items())
            if (data_set, used_scheme) == (name, scheme)
        ]
        gains = [100 * line["gain"] for line in those]
        mean = statistics.mean(gains)
        better, worse = sum(line["ends"][0] > 0 for line in those), sum(line["ends"][1] < 0 for line in those)
        shares = [(line["student"] - line["control"]) / (line["teacher"] - line["control"]) for line in those]
        spread = "-"
        if len(gains) > 1:
            half = T_975[len(gains) - 1] * statistics.stdev(gains) / math.sqrt(len(gains))
            spread = f"{mean - half:+.2f} to {mean + half:+.2f}"
        share = f"{100 * statistics.median(shares):.0f} %"
        lines.append(f"| {name} | {scheme} | {len(gains)} | {mean:+.2f} | {spread} | {better} / {worse} | {share} |")
    return "\n".join(lines)


def _silent(done: float, total: float, *words: str) -> None:
    """Progress that nobody watches."""


if __name__ == "__main__":
    main()
