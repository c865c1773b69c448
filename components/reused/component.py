"""A run that was found whole -> the verdict and the version that are there."""

from kfp import dsl


@dsl.component(base_image="understudy/launcher", install_kfp_package=False)
def reused(
    run: str,
    verdict: dsl.Output[dsl.Markdown],
    report: dsl.Output[dsl.HTML],
    registered_model: dsl.Output[dsl.Model],
) -> str:
    """Show the verdict and the model version that an earlier run has come to."""
    from understudy.steps import ended, show, show_verdict

    show_verdict(verdict, report, ended("gate", run))
    result = ended("register", run)
    show(registered_model, result, result.inputs["student"])
    return run
