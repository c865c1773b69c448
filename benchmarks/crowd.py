"""Many clients of one MLflow server at once: none is refused, and each reads back its own metrics.

python -m benchmarks.crowd [--clients 50] [--metrics 200] [--rounds 3]
"""

import argparse
import statistics
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from benchmarks.middleware import AT_ONCE, Client, log_metrics, server

APP = "understudy_server.app:create_app"


def write_and_read(client: Client, count: int, loss: float) -> str:
    """A run of a client's own with so many metrics, read back; the refused or wrong answer, or nothing."""
    try:
        run = log_metrics(client, count, loss)
        points = client.ask("GET", f"metrics/get-history?run_id={run}&metric_key=loss&max_results={count}")["metrics"]
    except (AssertionError, OSError) as error:
        return f"refused: {error}"
    right = [(loss, step) for step in range(count)]
    return (
        ""
        if [(point["value"], point["step"]) for point in points] == right
        else f"wrong: {len(points)} of {count} points"
    )


def together(port: int, clients: int, count: int) -> tuple[float, list[str]]:
    """Seconds until all are done, each over a connection of its own, and what went wrong."""
    began = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        problems = list(pool.map(lambda number: write_and_read(Client(port), count, float(number)), range(clients)))
    return time.perf_counter() - began, list(filter(None, problems))


def main() -> int:
    """Compare all at once with one after the other, in turns."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--metrics", type=int, default=200, help=f"of each client, {AT_ONCE} in a request")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    ratios, wrong = list[float](), list[str]()
    with tempfile.TemporaryDirectory() as folder, server(APP, Path(folder), 1) as first:
        write_and_read(first, AT_ONCE, 0.0)
        for _ in range(options.rounds):
            began = time.perf_counter()
            wrong += filter(
                None, (write_and_read(first, options.metrics, float(number)) for number in range(options.clients))
            )
            alone = time.perf_counter() - began
            crowd, problems = together(first.port, options.clients, options.metrics)
            wrong += problems
            ratios.append(crowd / alone)
            print(f"{options.clients} clients at once {crowd:.1f} s, one after the other {alone:.1f} s", flush=True)
    print(f"at once against one after the other: min {min(ratios):.3f}, median {statistics.median(ratios):.3f}")
    print(f"refused or wrong: {len(wrong)} of {2 * options.rounds * options.clients}", *wrong[:5], sep="\n  ")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
