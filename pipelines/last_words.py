"""Why a run on a KFP server failed: what its tasks said last, from the Workflow that the run is.

KFP's API v2beta1 tells no reason: a task's details have no error, and its nodes no names. The run's Workflow has both,
and v1beta1 hands it out. A task leaves its words with its pod (steps/last_words.py), from where Argo copies them.
"""

import re
from collections.abc import Mapping
from typing import Any

ATTEMPT = re.compile(r"\((\d+)\)")
EXIT = re.compile(r"^(main: )?Error \(exit code \d+\): ")
BAD = {"Failed", "Error"}
DEADLINE = "Step exceeded its deadline"
"""What Argo says of a pod that had no time for words of its own: KFP terminates a run by a deadline that has passed."""


def reasons(workflow: Mapping[str, Any]) -> list[str]:
    """The tasks that failed for good, each as `task: its last words`; what Argo says of the run where none has any.

    Args:
        workflow: a Workflow of Argo's, as an object.
    """
    status = workflow.get("status", {})
    nodes = (status.get("nodes") or {}).values()
    made_good = [f"{node['name']}(" for node in nodes if node.get("type") == "Retry" and node["phase"] == "Succeeded"]
    last: dict[str, tuple[int, str]] = {}
    for node in nodes:
        if node.get("type") != "Pod" or node.get("phase") not in BAD or not node.get("message"):
            continue
        if node["name"].startswith(tuple(made_good)):  # a later attempt went well
            continue
        number = int((ATTEMPT.findall(node["name"]) or ["0"])[-1])
        task = _task(node["name"])
        last[task] = max(last.get(task, (-1, "")), (number, _words(node["message"])))
    said = [f"{task}: {message}" for task, (_, message) in sorted(last.items())]
    return said or list(filter(None, [status.get("message", "")]))


def _words(message: str) -> str:
    return f"terminated ({message})" if message == DEADLINE else EXIT.sub("", message)


def _task(name: str) -> str:
    """The pipeline's task of a node: WORKFLOW(0).root(0).TASK(0).executor(0), or of its driver, TASK-driver(0)."""
    parts = [part for part in ATTEMPT.sub("", name).split(".")[1:] if part not in ("root", "executor")]
    return (parts[0] if parts else "the run").removesuffix("-driver")
