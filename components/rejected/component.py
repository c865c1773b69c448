"""A rejected student -> its record, and no model."""

from kfp import dsl


@dsl.component(base_image="understudy/launcher", install_kfp_package=False)
def rejected(run: str, fails: bool, verdict: dsl.Output[dsl.Markdown], report: dsl.Output[dsl.HTML]) -> str:
    """Say that the gate rejected the student, and why; record the run in MLflow without a version."""
    from understudy.steps import reject, show_verdict, verdict_of

    show_verdict(verdict, report, verdict_of(run))
    reject(run, fails)
    return run
