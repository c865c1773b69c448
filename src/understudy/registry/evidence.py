"""What a reviewer of a version reads: metrics, tags, and a description in Markdown."""

from collections.abc import Iterator, Mapping
from typing import Any

ROLES = ("teacher", "student", "control", "champion")


def metrics(measured: Mapping[str, Any]) -> dict[str, float]:
    """One model's measures as metrics; those that could not be measured are left out."""
    latency = measured["latency"]
    found = {
        **measured["metrics"],
        "parameters": measured["parameters"],
        "flops": measured["flops"],
        "bytes": measured["bytes"],
        "latency_ms": latency["median_ms"],
        "throughput_per_s": latency["throughput_per_s"],
    }
    return {name: float(value) for name, value in found.items() if value is not None}


def all_metrics(measures: Mapping[str, Any]) -> dict[str, float]:
    """All models' metrics as role.metric."""
    return {
        f"{role}.{name}": value
        for role in _roles(measures)
        for name, value in metrics(measures["models"][role]).items()
    }


def key_figures(measures: Mapping[str, Any]) -> dict[str, str]:
    """The few numbers that are worth a tag on the version."""
    names = (measures["gate_metric"], "parameters", "latency_ms")
    found = all_metrics(measures)
    keys = [f"{role}.{name}" for role in _roles(measures) for name in names]
    return {key: f"{found[key]:.6g}" for key in keys if key in found}


def description(measures: Mapping[str, Any], verdict: Mapping[str, Any], run: str) -> str:
    """The version's page in MLflow, in Markdown.

    Args:
        measures: the content of measures.json.
        verdict: the content of verdict.json.
        run: where the run's evidence is, an address or an id.
    """
    verb = "passed" if verdict["approved"] else "did not pass"
    where = ", ".join(str(measures["hardware"][key]) for key in ("device", "cpu") if measures["hardware"].get(key))
    return "\n".join(
        [
            f"The student {verb} the gate on {measures['examples']} examples of the test split.",
            *(f"\n**{caution}**" for caution in verdict.get("cautions", [])),
            "",
            *_table(measures),
            "",
            f"Gate on {verdict['metric']}, margin {verdict['margin']:g}, confidence {verdict['confidence']:.0%}:",
            "",
            *(f"- {'✓' if rule['passed'] else '✗'} **{rule['rule']}**: {rule['detail']}" for rule in verdict["rules"]),
            "",
            f"Measured on {where}. Curves, plots and report.html: run {run}.",
        ]
    )


def _table(measures: Mapping[str, Any]) -> Iterator[str]:
    models = [measures["models"][role] for role in _roles(measures)]
    yield "| | " + " | ".join(_roles(measures)) + " |"
    yield "|---|" + "---:|" * len(models)
    for name in models[0]["metrics"]:
        yield _row(name, [_value(model, name) for model in models])
    yield _row("parameters", [f"{model['parameters']:,}" for model in models])
    yield _row("megabytes", [f"{model['bytes'] / 1e6:.3g}" for model in models])
    size = models[0]["latency"]["batch_size"]
    yield _row(f"latency, ms (batch of {size})", [f"{model['latency']['median_ms']:.3g}" for model in models])


def _value(model: Mapping[str, Any], name: str) -> str:
    value, interval = model["metrics"].get(name), model["intervals"].get(name)
    if value is None:
        return "not measured"
    return f"{value:.3g} [{interval[0]:.3g}, {interval[1]:.3g}]" if interval else f"{value:.3g}"


def _row(name: str, cells: list[str]) -> str:
    return f"| {name} | " + " | ".join(cells) + " |"


def _roles(measures: Mapping[str, Any]) -> list[str]:
    return [role for role in ROLES if role in measures["models"]]
