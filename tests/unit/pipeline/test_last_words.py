"""Which of a Workflow's nodes say why it failed; whole Workflows of a real server are in test_submission.py."""

from typing import Any

import pytest

from understudy.pipelines.last_words import DEADLINE, reasons

EXIT = "Error (exit code 1): "


def node(name: str, phase: str, message: str = "", kind: str = "Pod") -> dict[str, Any]:
    return {"name": f"w(0).root(0).{name}", "type": kind, "phase": phase, **({"message": message} if message else {})}


def attempts(task: str, phase: str, *messages: tuple[str, str]) -> list[dict[str, Any]]:
    """A task's executor, as Argo keeps it: a Retry, and a pod for each attempt."""
    pods = [node(f"{task}(0).executor({number})", *attempt) for number, attempt in enumerate(messages)]
    outer = [node(task, phase, "", "Retry"), node(f"{task}(0)", phase, "child 'w-1' failed", "DAG")]
    outer.append(node(f"{task}(0).executor", phase, messages[-1][1], "Retry"))
    return [*outer, *pods]


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([], []),
        (attempts("start", "Failed", ("Failed", f"{EXIT}seed is no integer")), ["start: seed is no integer"]),
        (attempts("ingest", "Succeeded", ("Error", "pod deleted"), ("Succeeded", "")), []),
        (attempts("ingest", "Failed", ("Error", "pod deleted"), ("Failed", f"{EXIT}no disk")), ["ingest: no disk"]),
        (
            [
                *attempts("teacher", "Failed", ("Failed", f"{EXIT}no GPU")),
                *attempts("control", "Failed", ("Failed", f"{EXIT}no GPU")),
                *attempts("ingest", "Succeeded", ("Succeeded", "")),
            ],
            ["control: no GPU", "teacher: no GPU"],
        ),
        (attempts("distill", "Failed", ("Failed", DEADLINE)), [f"distill: terminated ({DEADLINE})"]),
        ([node("gate-driver(0)", "Failed", f"{EXIT}no inputs")], ["gate: no inputs"]),
        ([node("prepare(0).executor(0)", "Failed")], []),
    ],
)
def test_the_tasks_that_failed_for_good_are_named_with_what_they_said_last(
    nodes: list[dict[str, Any]], expected: list[str]
) -> None:
    workflow = {"status": {"phase": "Failed", "nodes": {str(number): node for number, node in enumerate(nodes)}}}
    assert reasons(workflow) == expected
    workflow["status"]["message"] = "Stopped with strategy 'Terminate'"
    assert reasons(workflow) == (expected or ["Stopped with strategy 'Terminate'"])


@pytest.mark.parametrize("workflow", [{}, {"status": {}}, {"status": {"nodes": None}}])
def test_a_workflow_that_has_not_begun_says_nothing(workflow: dict[str, Any]) -> None:
    assert reasons(workflow) == []
