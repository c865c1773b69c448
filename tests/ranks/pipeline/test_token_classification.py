"""A classifier of words, from its recipe to a registered version, on this machine."""

import csv
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

RECIPE = """
name: names
task: token-classification
data:
  source: {type: csv, path: names.csv, columns: {labels: tags}}
  test: 0.4
  text: {sequence_length: 24, tokenizer: {vocab_size: 300}}
teacher:
  model: {type: bert, config: {hidden_size: 32, num_hidden_layers: 2, num_attention_heads: 2, intermediate_size: 64}}
  train: {epochs: 6, batch_size: 16, optimizer: {learning_rate: 3.0e-3}}
student:
  model: {type: bert, config: {hidden_size: 16, num_hidden_layers: 1, num_attention_heads: 2, intermediate_size: 32}}
  train: {epochs: 8, batch_size: 16, optimizer: {learning_rate: 5.0e-3}}
evaluate: {latency: {repeats: 2}}
gate: {margin: 0.1, max_size_ratio: null, max_latency_ratio: null}
"""
TAGS = {"Anna": "PER", "Bob": "PER", "Rome": "LOC", "Oslo": "LOC"}


def write_names(path: Path) -> None:
    """Texts whose names have tags."""
    generator = np.random.default_rng(0)
    texts = [generator.choice([*TAGS, "saw", "the", "old", "cat"], generator.integers(3, 9)) for _ in range(600)]
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["words", "tags"])
        writer.writerows([" ".join(words), " ".join(TAGS.get(word, "O") for word in words)] for words in texts)


def test_a_recipe_of_words_ends_with_a_registered_student(tmp_path: Path) -> None:
    write_names(tmp_path / "names.csv")
    (tmp_path / "r.yaml").write_text(RECIPE)
    command = [sys.executable, "-m", "understudy", "--home", "home", "run", "r.yaml", "--json"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    *_, last = (json.loads(line) for line in done.stdout.splitlines())
    measures = last["measures"]
    low, high = measures["models"]["student"]["intervals"]["accuracy"]
    assert 0.9 < low <= measures["models"]["student"]["metrics"]["accuracy"] <= high <= 1
    counts = np.array(measures["confusion"]["counts"])
    assert counts.trace() / counts.sum() == measures["models"]["student"]["metrics"]["accuracy"], "words, not texts"
    assert measures["confusion"]["labels"] == ["LOC", "O", "PER"]
    assert counts.sum() > 2 * measures["examples"]
    assert len(list((tmp_path / "home" / "store" / "objects").rglob("registration.json"))) == 1
