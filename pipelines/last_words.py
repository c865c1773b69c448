"""Why a run on a KFP server failed: its tasks' termination messages, from the run's Workflow.

KFP's API v2beta1 has no reason: a task's details have no error, and its nodes no names. The run's Workflow has both,
and v1beta1 returns it. A task writes its message into its pod's status (steps/last_words.py), and Argo copies it.
"""

import re
from collections.abc import Mapping
from typing import Any

ATTEMPT = re.compile(r"\((\d+)\)")
EXIT = re.compile(r"^(main: )?Error \(exit code \d+\): ")
BAD = {"Failed", "Error"}
DEADLINE = "Step exceeded its deadline"
"""Argo's message for a pod that could not write one: KFP terminates a run by a deadline that has passed."""


def reasons(workflow: Mapping[str, Any]) -> list[str]:
    """The tasks that failed for good, each as `task: message`; if none has a message, Argo's for the run.

    Args:
        workflow: an Argo Workflow, as an object.
    """
    status = workflow.get("status", {})
    nodes = (status.get("nodes") or {}).values()
    recovered = [f"{node['name']}(" for node in nodes if node.get("type") == "Retry" and node["phase"] == "Succeeded"]
    last: dict[str, tuple[int, str]] = {}
    for node in nodes:
        if node.get("type") != "Pod" or node.get("phase") not in BAD or not node.get("message"):
            continue
        if node["name"].startswith(tuple(recovered)):  # a later attempt succeeded
            continue
        number = int((ATTEMPT.findall(node["name"]) or ["0"])[-1])
        task = _task(node["name"])
        last[task] = max(last.get(task, (-1, "")), (number, _words(node["message"])))
    messages = [f"{task}: {message}" for task, (_, message) in sorted(last.items())]
    return messages or list(filter(None, [status.get("message", "")]))


def _words(message: str) -> str:
    return f"terminated ({message})" if message == DEADLINE else EXIT.sub("", message)


def _task(name: str) -> str:
    """The pipeline task of a node: WORKFLOW(0).root(0).TASK(0).executor(0), or of its driver, TASK-driver(0)."""
    parts = [part for part in ATTEMPT.sub("", name).split(".")[1:] if part not in ("root", "executor")]
    return (parts[0] if parts else "the run").removesuffix("-driver")
