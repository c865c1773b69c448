"""Classifiers -> measures, and the confusion matrix."""

from kfp import dsl

from understudy.components.passthrough import TO_THE_JOB


@dsl.component(base_image="understudy/launcher", install_kfp_package=False, task_config_passthroughs=TO_THE_JOB)
def evaluate(
    run: str,
    node: str,
    task: dsl.TaskConfig,
    metrics: dsl.Output[dsl.Metrics],
    confusion: dsl.Output[dsl.ClassificationMetrics],
) -> str:
    """Measure teacher, student, control and champion side by side on the test split."""
    from understudy.steps import component, show, show_confusion

    result = component(node, run, vars(task))
    show(metrics, result)
    show_confusion(confusion, result)
    return run
