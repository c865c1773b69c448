"""Scores of examples through a version as its users load it: by MLflow's pyfunc, and by transformers alone.

    python -m understudy.registry.loaded FOLDER OUTPUT

This is a separate process without credentials (started by agent/serving.py): loading a version runs its model's code.
FOLDER contains the version's files, as downloaded from the registry, in `version`, and the examples in `examples.json`.
OUTPUT/scores.json gets the negative log-likelihoods in nats, by loading method and example, and the name of
AutoTokenizer's class if its tokens differ.
"""

import base64
import gc
import json
import sys
from pathlib import Path
from typing import Any

from understudy.agent.parent import die_with_parent
from understudy.data.records import Content
from understudy.models.facts import Facts
from understudy.registry.task import ServedTask, served_task
from understudy.store.files import read_json, write_json

EXAMPLES, SCORES, VERSION = "examples.json", "scores.json", "version"


def main() -> None:
    """Score the examples."""
    die_with_parent()
    folder, output = map(Path, sys.argv[1:])
    examples = [_record(*fields) for fields in read_json(folder / EXAMPLES)]
    (described,) = (folder / VERSION / "artifacts").glob("*/understudy.json")
    facts = json.loads(described.read_text(encoding="utf-8"))
    task, version = served_task(facts["task"]), folder / VERSION
    scores = {"pyfunc": _by_pyfunc(task, facts, version, examples)}
    gc.collect()  # memory may not fit a large model twice
    tokenizer_class = ""
    if facts["kind"] == "transformers":
        net = _network(task, facts, described.parent, _kind(version))
        scores["transformers"], tokenizer_class = task.losses_by_transformers(facts, net, described.parent, examples)
    write_json(output / SCORES, {"scores": scores, "tokenizer": tokenizer_class})


def _record(content: str, label: str | None, encoded_fields: dict[str, str]) -> Content:
    """A test record, from its fields in base64."""
    fields = {name: base64.b64decode(value) for name, value in encoded_fields.items()}
    return Content("test", label, base64.b64decode(content), fields)


def _kind(version: Path) -> str:
    """The version's dtype, by its name in torch and transformers."""
    import yaml

    described = yaml.safe_load((version / "MLmodel").read_text(encoding="utf-8"))
    return {"fp32": "float32", "bf16": "bfloat16"}[described["flavors"]["python_function"]["config"]["precision"]]


def _by_pyfunc(task: ServedTask, facts: Facts, version: Path, examples: list[Content]) -> list[float]:
    import mlflow
    import pandas as pd

    columns, params = task.request(examples)
    rows = mlflow.pyfunc.load_model(str(version)).predict(pd.DataFrame(columns), params=params or None)
    return task.losses(facts, rows, examples)


def _network(task: ServedTask, facts: Facts, model: Path, kind: str) -> Any:
    """The network, as transformers alone loads it."""
    import transformers

    auto, trusted = getattr(transformers, task.AUTO_MODEL), "code" in facts
    return auto.from_pretrained(model, local_files_only=True, dtype=kind, trust_remote_code=trusted).eval()


if __name__ == "__main__":
    main()
