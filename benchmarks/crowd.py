"""Many clients of one MLflow server at once: nobody is refused, and everybody reads back what it wrote.

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


def write_and_read(client: Client, count: int, own: float) -> str:
    """A run of a client's own with so many metrics, read back; what was refused or wrong, or nothing."""
    try:
        run = log_metrics(client, count, own)
        found = client.ask("GET", f"metrics/get-history?run_id={run}&metric_key=loss&max_results={count}")["metrics"]
    except (AssertionError, OSError) as error:
        return f"refused: {error}"
    right = [(own, step) for step in range(count)]
    return "" if [(one["value"], one["step"]) for one in found] == right else f"wrong: {len(found)} of {count} points"


def together(port: int, clients: int, count: int) -> tuple[float, list[str]]:
    """Seconds until all are done, each over a connection of its own, and what went wrong."""
    began = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        found = list(pool.map(lambda own: write_and_read(Client(port), count, float(own)), range(clients)))
    return time.perf_counter() - began, list(filter(None, found))


def main() -> int:
    """Compare all at once with one after the other, in turns."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--metrics", type=int, default=200, help=f"of each client, {AT_ONCE} in a request")
    parser.add_argument("--rounds", type=int, default=3)
    asked = parser.parse_args()
    ratios, wrong = list[float](), list[str]()
    with tempfile.TemporaryDirectory() as folder, server(APP, Path(folder), 1) as first:
        write_and_read(first, AT_ONCE, 0.0)
        for _ in range(asked.rounds):
            began = time.perf_counter()
            wrong += filter(None, (write_and_read(first, asked.metrics, float(own)) for own in range(asked.clients)))
            alone = time.perf_counter() - began
            crowd, found = together(first.port, asked.clients, asked.metrics)
            wrong += found
            ratios.append(crowd / alone)
            print(f"{asked.clients} clients at once {crowd:.1f} s, one after the other {alone:.1f} s", flush=True)
    print(f"at once against one after the other: min {min(ratios):.3f}, median {statistics.median(ratios):.3f}")
    print(f"refused or wrong: {len(wrong)} of {2 * asked.rounds * asked.clients}", *wrong[:5], sep="\n  ")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
