"""Verdict -> model version."""

from kfp import dsl


@dsl.component(base_image="understudy/launcher", install_kfp_package=False)
def register(
    run: str,
    measures: str,
    verdict: str,
    records: str,
    examples: str,
    teacher: str,
    student: str,
    control: str,
    registered_model: dsl.Output[dsl.Model],
) -> str:
    """Record the run in MLflow, and the student as challenger when the gate approved it."""
    from understudy.steps import component, show

    models = {"teacher": teacher, "student": student, "control": control}
    evidence = {"measures": measures, "verdict": verdict, "records": records, "examples": examples}
    result = component("register", run, **evidence, **models)
    return show(registered_model, "register", result, student)
