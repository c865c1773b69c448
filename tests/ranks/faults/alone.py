"""A run's steps up to one of them, in this process, as the pipeline's tasks do them: RECIPE LAST_STEP LEASE_SECONDS.

SECURITY, as JSON, is added to what all pods of its jobs run as; VERSION is the one that jobs are written by.
"""

import json
import os
import sys
from pathlib import Path

from understudy.kube.settings import RUN_ID
from understudy.launch.kubernetes.rendering import pod_security
from understudy.recipe.file import load
from understudy.steps import component, job_spec, start, start_component, step_names, tasks
from understudy.steps.environment import HOME
from understudy.store import Store


def main(path: Path, last: str, lease_seconds: float) -> None:
    """Print each step's name and digest."""
    if version := os.environ.get("VERSION"):
        job_spec.build = lambda: version
    pod_security.SECURITY |= json.loads(os.environ.get("SECURITY", "{}"))
    for module in (start, tasks):
        module.open_store = lambda: Store(Path(os.environ[HOME]) / "store", lease_seconds)
    recipe = load(path)
    values = recipe.model_dump(mode="json", by_alias=True)
    run = start_component(values, "", recipe.seed, os.environ.get(RUN_ID, ""), step_names(recipe), fails=False).run
    for name in step_names(recipe):
        print(name, component(name, run).digest, flush=True)
        if name == last:
            return


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]))
