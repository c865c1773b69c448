"""Measures -> verdict and report."""

from typing import NamedTuple

from kfp import dsl


@dsl.component(base_image="understudy/launcher", install_kfp_package=False)
def gate(run: str, node: str, verdict: dsl.Output[dsl.Markdown], report: dsl.Output[dsl.HTML]) -> NamedTuple(  # type: ignore[valid-type]
    "Verdict", [("Output", str), ("run", str)]
):
    """Decide from paired statistics whether the student is good enough; fail closed."""
    from understudy.steps import component, show_verdict

    return show_verdict(verdict, report, component(node, run)), run
