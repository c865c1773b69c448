"""Teacher, student and control on digits over several seeds, with a paired interval on student minus control.

python -m benchmarks.seeds [--seeds 5] [--home FOLDER]
"""

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

RECIPE = "recipes/digits.yaml"
T_975 = {4: 2.776, 9: 2.262, 19: 2.093}  # Student's t, two-sided 95 %, by degrees of freedom


def measured(home: Path, seed: int) -> tuple[dict[str, float], Any]:
    """Accuracies by role, and per-example student minus control."""
    command = [
        sys.executable,
        "-m",
        "understudy",
        "--home",
        str(home),
        "run",
        RECIPE,
        "--set",
        f"seed={seed}",
        "--json",
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 3):
        sys.exit(done.stderr)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    digest = [event["digest"] for event in events if event.get("step") == "evaluate" and event["digest"]][-1]
    arrays = np.load(home / "store" / "objects" / digest[:2] / digest / "per_example.npz")
    accuracies = {role: model["metrics"]["accuracy"] for role, model in events[-1]["measures"]["models"].items()}
    return accuracies, arrays["student.correct"] - arrays["control.correct"]


def main() -> None:
    """Print the table, the paired t interval over seeds, and the paired bootstrap over seeds and examples."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=5, choices=[n + 1 for n in T_975])
    parser.add_argument("--home", type=Path)
    options = parser.parse_args()
    home = options.home or Path(tempfile.mkdtemp())
    rows = [measured(home, seed) for seed in range(options.seeds)]
    print("| seed | teacher | student | control | student - control |\n|---|---|---|---|---|")
    for seed, (found, _) in enumerate(rows):
        cells = " | ".join(f"{found[role]:.4f}" for role in ("teacher", "student", "control"))
        print(f"| {seed} | {cells} | {found['student'] - found['control']:+.4f} |")
    differences = [found["student"] - found["control"] for found, _ in rows]
    mean, spread = statistics.mean(differences), statistics.stdev(differences) / math.sqrt(len(rows))
    half = T_975[len(rows) - 1] * spread
    print(f"\nmean {mean:+.4f}, paired t interval over seeds (95 %) [{mean - half:+.4f}, {mean + half:+.4f}]")
    table, random = np.stack([found for _, found in rows]), np.random.default_rng(0)
    seeds, examples = table.shape
    draws = [
        table[random.integers(0, seeds, seeds)][:, random.integers(0, examples, examples)].mean() for _ in range(10_000)
    ]
    low, high = np.percentile(draws, [2.5, 97.5])
    print(f"paired bootstrap over seeds and examples (95 %) [{low:+.4f}, {high:+.4f}]")


if __name__ == "__main__":
    main()
