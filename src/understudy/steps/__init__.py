"""The pipeline's steps, one module each: the parts of its key, and the function that computes its result.

graph      the steps by name, in order
step       the declaration of a step, and the context of its function
execution  running a step: its key, the step cache, the lease, the run's state
tasks      a step as a task of a pipeline
cards      KFP's pages of a task's artifacts
start      the first task of every run
lookup     the steps of a run that are in the step cache
summary    the outcome of a run
"""

from understudy.steps.cards import show, show_confusion, show_start, show_verdict
from understudy.steps.graph import state_of, step_names, steps_of
from understudy.steps.step import Result, Step, Work
from understudy.steps.summary import Summary, summary_of
from understudy.steps.tasks import component, reject, start_component, verdict_of

__all__ = [
    "Result",
    "Step",
    "Summary",
    "Work",
    "component",
    "reject",
    "show",
    "show_confusion",
    "show_start",
    "show_verdict",
    "start_component",
    "state_of",
    "step_names",
    "steps_of",
    "summary_of",
    "verdict_of",
]
