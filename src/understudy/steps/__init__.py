"""The pipeline's steps: one file each, with what decides its result and the function that makes it.

graph      the steps by name, in their order
step       what a step declares, and what its function is given
execution  what happens around every step: its key, the step cache, the lease, the run's state
tasks      a step as a task of a pipeline
cards      what KFP's pages show of a task
start      the first task of every run
lookup     which steps of a run are in the step cache
summary    what a run came to
"""

from understudy.steps.cards import show, show_confusion, show_start, show_verdict
from understudy.steps.graph import STEPS, step_names
from understudy.steps.step import Result, Step, Work
from understudy.steps.summary import Summary, summary_of
from understudy.steps.tasks import component, ended, reject, start_component

__all__ = [
    "STEPS",
    "Result",
    "Step",
    "Summary",
    "Work",
    "component",
    "ended",
    "reject",
    "show",
    "show_confusion",
    "show_start",
    "show_verdict",
    "start_component",
    "step_names",
    "summary_of",
]
