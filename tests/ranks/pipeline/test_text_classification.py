"""A classifier of pairs of texts, from its recipe to a registered version, on this machine."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

RECIPE = """
name: pairs
task: text-classification
data:
  source: {type: parquet, path: pairs.parquet, columns: {text: premise, second: hypothesis}}
  test: 0.4
  text: {sequence_length: 32, tokenizer: {vocab_size: 300}}
teacher:
  model: {type: bert, config: {hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 2, intermediate_size: 64}}
  train: {epochs: 4, batch_size: 16, optimizer: {learning_rate: 3.0e-3}}
student:
  model: {type: bert, config: {hidden_size: 16, num_hidden_layers: 1, num_attention_heads: 2, intermediate_size: 32}}
  train: {epochs: 4, batch_size: 16, optimizer: {learning_rate: 3.0e-3}}
evaluate: {latency: {repeats: 2}}
gate: {metric: macro_f1, margin: 0.1, max_size_ratio: null, max_latency_ratio: null}
"""


def write_pairs(path: Path) -> None:
    """Two texts of the same words; the label depends on one of six words in the first."""
    generator = np.random.default_rng(0)
    rows = []
    for number in range(600):
        words = [*generator.choice(["movie", "plot", "actor", "was", "the", "a"], generator.integers(3, 9))]
        words.insert(1, str(generator.choice([["bad", "awful", "poor"], ["good", "fine", "great"]][number % 2])))
        rows.append((" ".join(words), " ".join(words[2:]), ["neg", "pos"][number % 2]))
    pq.write_table(pa.table(dict(zip(("premise", "hypothesis", "label"), zip(*rows, strict=True), strict=True))), path)


def test_a_recipe_of_pairs_ends_with_a_registered_student(tmp_path: Path) -> None:
    write_pairs(tmp_path / "pairs.parquet")
    (tmp_path / "r.yaml").write_text(RECIPE)
    command = [sys.executable, "-m", "understudy", "--home", "home", "run", "r.yaml", "--json"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    *_, last = (json.loads(line) for line in done.stdout.splitlines())
    models = last["measures"]["models"]
    assert models.keys() == {"teacher", "student", "control"}
    for name in ("macro_f1", "matthews"):
        low, high = models["student"]["intervals"][name]
        assert 0.8 < low <= models["student"]["metrics"][name] <= high <= 1
    assert last["measures"]["slices"][0]["student"] > 0.8, "accuracy, of the label's examples"
    rules = {rule["rule"]: rule["detail"] for rule in last["verdict"]["rules"]}
    assert rules["quality-against-trivial"].startswith("Macro F1: student ")
    assert len(list((tmp_path / "home" / "store" / "objects").rglob("registration.json"))) == 1
