"""Measures -> verdict and report."""

from kfp import dsl


@dsl.component(base_image="understudy/launcher", install_kfp_package=False)
def gate(
    run: str,
    measures: str,
    records: str,
    examples: str,
    teacher: str,
    student: str,
    control: str,
    verdict: dsl.Output[dsl.Markdown],
    report: dsl.Output[dsl.HTML],
) -> str:
    """Decide from paired statistics whether the student is good enough; fail closed."""
    import shutil

    from understudy.steps import component, show

    models = {"teacher": teacher, "student": student, "control": control}
    result = component("gate", run, measures=measures, records=records, examples=examples, **models)
    shutil.copyfile(result.path / "report.html", report.path)
    return show(verdict, "gate", result)
