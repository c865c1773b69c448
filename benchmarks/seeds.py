"""The teacher's benefit over several seeds: teacher, student and control, and student minus control.

python -m benchmarks.seeds [RECIPE] [--seeds 5] [--home FOLDER]

Every seed has its own initial weights and its own order of the data; the split hangs on the data alone.
"""

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from understudy.evaluate.metrics import METRICS
from understudy.recipe import MetricName

ROLES = ("teacher", "student", "control")
T_975 = {4: 2.776, 9: 2.262, 19: 2.093}  # Student's t, two-sided 95 %, by degrees of freedom


@dataclass(frozen=True)
class Measured:
    """One seed's run: the gate's metric by role, and student minus control with its interval over the examples."""

    values: dict[str, float]
    observed: float
    low: float
    high: float
    seconds: float


def run(recipe: str, home: Path, seed: int) -> tuple[MetricName, Measured]:
    """A run with this seed: the gate's metric, and the values measured with it."""
    understudy = [sys.executable, "-m", "understudy", "--home", str(home)]
    command = [*understudy, "run", recipe, "--set", f"seed={seed}", "--json"]
    began = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = time.monotonic() - began
    if done.returncode not in (0, 3):
        sys.exit(done.stderr)
    end = json.loads(done.stdout.splitlines()[-1])
    metric, control = end["verdict"]["metric"], end["verdict"]["control"]
    values = {role: end["measures"]["models"][role]["metrics"][metric] for role in ROLES}
    low, high = control["interval"]
    return metric, Measured(values, control["observed"], low, high, seconds)


def main() -> None:
    """Print a row per seed, and the paired t interval over the seeds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("recipe", nargs="?", default="recipes/pydoc.yaml")
    parser.add_argument("--seeds", type=int, default=5, choices=[n + 1 for n in T_975])
    parser.add_argument("--home", type=Path)
    options = parser.parse_args()
    home = options.home or Path(tempfile.mkdtemp())
    runs = [run(options.recipe, home, seed) for seed in range(options.seeds)]
    form = METRICS[runs[0][0]]
    print("| seed | teacher | student | control | student - control | its 95 % interval | seconds |")
    print("|---|---|---|---|---|---|---|")
    for seed, (_, outcome) in enumerate(runs):
        values = " | ".join(form.show(outcome.values[role]) for role in ROLES)
        observed, low, high = map(form.show_difference, (outcome.observed, outcome.low, outcome.high))
        print(f"| {seed} | {values} | {observed} | {low} to {high} | {outcome.seconds:.0f} |")
    differences = [outcome.observed for _, outcome in runs]
    mean, error = statistics.mean(differences), statistics.stdev(differences) / math.sqrt(len(runs))
    half = T_975[len(runs) - 1] * error
    mean_text, low, high = map(form.show_difference, (mean, mean - half, mean + half))
    print(f"\nmean {mean_text}, paired t interval over the seeds (95 %) {low} to {high}")


if __name__ == "__main__":
    main()
