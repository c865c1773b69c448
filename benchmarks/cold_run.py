"""The time of a cold run on digits outside training and evaluation, by step, and the time of imports.

python -m benchmarks.cold_run [--rounds 3]
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

RECIPE = "recipes/digits.yaml"
IMPORTS = (
    "kfp.local",
    "torch",
    "understudy.train.job, transformers.modeling_utils",
    "understudy.evaluate.measure",
    "mlflow",
)
STAMP = re.compile(r"(\S+Z) INFO \S+: (training|saving|measuring|measured)$", re.MULTILINE)


def cold_run(home: Path) -> dict[str, float]:
    """Seconds by step of a run in a new home that are neither training nor evaluating.

    `between` is the time outside of all steps: the command, kfp, a process for each task.
    """
    began = time.time()
    command = [sys.executable, "-m", "understudy", "--home", str(home), "run", RECIPE, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    total = time.time() - began
    if done.returncode not in (0, 3):
        sys.exit(done.stderr)
    (run,) = (home / "store" / "runs").iterdir()
    steps = [json.loads(path.read_text()) for path in (run / "steps").iterdir()]
    seconds = {step["step"]: step["ended"] - step["started"] for step in steps}
    between = total - sum(seconds.values())
    for step, log in (("teacher", "teacher"), ("distill", "distill"), ("control", "control"), ("evaluate", "pipeline")):
        times = {
            word: datetime.fromisoformat(at).timestamp()
            for at, word in STAMP.findall((run / "logs" / f"{log}.log").read_text())
        }
        begin, end = ("measuring", "measured") if step == "evaluate" else ("training", "saving")
        seconds[step] -= times[end] - times[begin]
    return {**seconds, "between": between, "sum": sum(seconds.values()) + between, "whole run": total}


def import_seconds(modules: str) -> float:
    """Seconds that a new interpreter takes to import modules, less those that it takes to start."""
    times = []
    for code in ("pass", f"import {modules}"):
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
        times.append(time.perf_counter() - began)
    return times[1] - times[0]


def main() -> None:
    """Print both tables: minimum and median over the rounds."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    runs = []
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as home:
            runs.append(cold_run(Path(home)))
    print("| step | s besides training and evaluating, min / median |\n|---|---|")
    for name in runs[0]:
        times = [run[name] for run in runs]
        print(f"| {name} | {min(times):.1f} / {statistics.median(times):.1f} |")
    print("\n| import | s, min / median |\n|---|---|")
    for modules in IMPORTS:
        times = [import_seconds(modules) for _ in range(rounds)]
        print(f"| {modules} | {min(times):.1f} / {statistics.median(times):.1f} |")


if __name__ == "__main__":
    main()
