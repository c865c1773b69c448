"""Models -> measures."""

from kfp import dsl


@dsl.component(base_image="understudy/trainer", install_kfp_package=False)
def evaluate(
    run: str, examples: str, teacher: str, student: str, control: str, metrics: dsl.Output[dsl.Metrics]
) -> str:
    """Measure teacher, student, control and champion side by side on the test split."""
    from understudy.steps import component, show

    result = component("evaluate", run, examples=examples, teacher=teacher, student=student, control=control)
    return show(metrics, "evaluate", result)
