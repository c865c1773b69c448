"""Measures -> verdict and report."""

from kfp import dsl


@dsl.component(base_image="understudy/launcher", install_kfp_package=False)
def gate(
    run: str, decision: dsl.OutputPath(str), verdict: dsl.Output[dsl.Markdown], report: dsl.Output[dsl.HTML]
) -> str:
    """Decide from paired statistics whether the student is good enough; fail closed."""
    from pathlib import Path

    from understudy.steps import component, show_verdict

    Path(decision).write_text(show_verdict(verdict, report, component("gate", run)))
    return run
