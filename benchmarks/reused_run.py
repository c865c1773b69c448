"""A run in a cluster of which every step is in the step cache, beside an empty Job of the same image.

python -m benchmarks.reused_run NAMESPACE [--rounds 5]

Needs KUBECONFIG, and the resources of manifests/overlays in the namespace. Both are Jobs of the same pod: one does a
run of digits that was done before, the other has python do nothing. They take turns at being first. The time is from
the request that creates the Job to the answer that says that it has ended.
"""

import argparse
import secrets
import statistics
import time
from pathlib import Path

from understudy.kube.api import Kube
from understudy.kube.job_state import true_conditions
from understudy.kube.objects import KubernetesObject
from understudy.kube.owner_state import ENDED
from understudy.recipe import Recipe
from understudy.recipe.file import load
from understudy.runs import submission

RECIPE = Path("recipes/digits.yaml")
SHORT = ["student.control=false", "teacher.train.epochs=8", "student.train.epochs=12", "gate.margin=0.5"]
LOOK = 0.1  # seconds between two looks at a Job


def seconds(kube: Kube, name: str, began: float) -> float:
    """From `began` until a Job has ended."""
    while True:
        job = kube.call(kube.batch.read_namespaced_job, name, kube.namespace)
        if ended := true_conditions(job).keys() & ENDED:
            assert not ended & {"Failed", "FailureTarget"}, f"{name}: the student was not approved, or the Job failed"
            return time.monotonic() - began
        time.sleep(LOOK)


def empty(kube: Kube, job: KubernetesObject) -> float:
    """Seconds of a run's Job whose container does nothing."""
    job["metadata"]["name"] = f"empty-{secrets.token_hex(3)}"
    job["spec"]["template"]["spec"]["containers"][0]["command"] = ["python", "-c", "pass"]
    pod = job["spec"]["template"]["spec"]
    pod["volumes"] = [volume for volume in pod["volumes"] if volume["name"] != "recipe"]
    mounts = pod["containers"][0]["volumeMounts"]
    pod["containers"][0]["volumeMounts"] = [mount for mount in mounts if mount["name"] != "recipe"]
    began = time.monotonic()
    kube.call(kube.batch.create_namespaced_job, kube.namespace, job)
    return seconds(kube, job["metadata"]["name"], began)


def run(kube: Kube, recipe: Recipe) -> float:
    """Seconds of a run."""
    began = time.monotonic()
    return seconds(kube, submission.submit(kube, submission.settings(kube), recipe), began)


def main() -> None:
    """Print both times, and their ratio by the least and the median."""
    parser = argparse.ArgumentParser()
    parser.add_argument("namespace")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    kube, recipe = Kube(options.namespace), load(RECIPE, SHORT)
    print(f"the run whose steps the later ones reuse: {run(kube, recipe):.1f} s")
    times: dict[str, list[float]] = {"reused": [], "empty": []}
    for number in range(options.rounds):
        for kind in sorted(times, reverse=bool(number % 2)):
            job = submission.render("empty", submission.settings(kube))
            times[kind].append(run(kube, recipe) if kind == "reused" else empty(kube, job))
    for kind, durations in times.items():
        print(f"{kind}: least {min(durations):.2f} s, median {statistics.median(durations):.2f} s of {len(durations)}")
    for statistic in (min, statistics.median):
        print(f"ratio by {statistic.__name__}: {statistic(times['reused']) / statistic(times['empty']):.2f}")


if __name__ == "__main__":
    main()
