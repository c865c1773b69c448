"""`understudy --help` against a bare typer program with one command.

python -m benchmarks.help_text [--rounds 10]
"""

import argparse
import statistics
import subprocess
import sys
import time

BARE = """
import typer
app = typer.Typer()
@app.command()
def run(recipe: str, home: str = "x") -> None:
    "Run a recipe."
app(["--help"])
"""
COMMANDS = {"bare typer": [sys.executable, "-c", BARE], "understudy": [sys.executable, "-m", "understudy", "--help"]}


def seconds(command: list[str]) -> float:
    """Wall time of a command."""
    began = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True)
    return time.perf_counter() - began


def main() -> None:
    """Take turns, and print times and the ratio, minimum and median."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--rounds", type=int, default=10)
    rounds = [{name: seconds(command) for name, command in COMMANDS.items()} for _ in range(parser.parse_args().rounds)]
    for name in COMMANDS:
        times = [durations[name] for durations in rounds]
        print(f"{name}: {min(times):.3f} s min, {statistics.median(times):.3f} s median")
    ratios = [durations["understudy"] / durations["bare typer"] for durations in rounds]
    print(f"ratio: {min(ratios):.2f} min, {statistics.median(ratios):.2f} median")


if __name__ == "__main__":
    main()
