"""Alerts and dashboard: tried by Prometheus' own tools, about numbers that this package has, and documented."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard
from prometheus_client import CollectorRegistry

from tests import ROOT
from tests.unit.manifests.promtool import needs_promtool
from understudy.jobs.heartbeat import Heartbeat
from understudy.launch.metrics import CURVE, STAGES, JobMetrics, Observation, Reported
from understudy.steps import tasks
from understudy_server import metrics as of_server

MONITORING = ROOT / "manifests" / "components" / "monitoring"
PAGE = ROOT / "docs" / "operating" / "monitoring.md"
OTHERS = {
    "up",
    "ALERTS",
    "kube_cronjob_status_last_schedule_time",
    "kube_cronjob_status_last_successful_time",
    "kube_deployment_status_replicas_available",
    "kube_job_failed",
    "kube_job_owner",
    "kubelet_volume_stats_available_bytes",
    "kubelet_volume_stats_capacity_bytes",
}
"""Of Prometheus, kube-state-metrics and the kubelet."""
VARIABLES = {"$__rate_interval": "5m", "$namespace": ".*", "$run": ".*"}


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load((MONITORING / "rules.yaml").read_text())["spec"]["groups"]
    return [rule for group in groups for rule in group["rules"]]


def dashboard() -> dict[str, Any]:
    content: dict[str, Any] = json.loads((MONITORING / "dashboard.json").read_text())
    return content


def shown() -> list[str]:
    """The dashboard's expressions, with values for its variables."""
    expressions = [target["expr"] for panel in dashboard()["panels"] for target in panel.get("targets", ())]
    for name, value in VARIABLES.items():
        expressions = [expression.replace(name, value) for expression in expressions]
    assert len(expressions) > 15
    return expressions


def samples() -> dict[str, set[str]]:
    """The names of all samples that launchers and server have, with their labels."""
    job = JobMetrics("run", "teacher", "digits", "images")
    job.report(Reported(**dict.fromkeys(CURVE, 1)))  # type: ignore[typeddict-item]
    job.observe(
        Observation("PyTorchJob", "name", "running", 1, heartbeats={0: Heartbeat(0, "", "training", 1, "n", 1.0)})
    )
    jobs = CollectorRegistry()
    jobs.register(job)
    labels = {s.name: set(s.labels) for family in jobs.collect() for s in family.samples}
    of_process = (of_server.REQUESTS, of_server.DURATION, of_server.IN_PROGRESS, of_server.SIGN_IN_FAILURES)
    for metric in (*of_process, of_server.AUDIT_LINES, tasks.STARTED):
        names = set(metric._labelnames)
        for family in metric.describe():
            for suffix in {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum")}.get(family.type, ("",)):
                labels[family.name + suffix] = names | ({"le"} if suffix == "_bucket" else set())
    return labels


def named(expression: str) -> set[str]:
    return set(re.findall(r"\b(?:understudy|kube|kubelet)_\w+|\bup\b", re.sub(r'"[^"]*"', "", expression)))


@pytest.mark.parametrize("rule", rules(), ids=lambda rule: rule["alert"])
def test_an_alert_uses_existing_metrics_and_gives_an_action(rule: dict[str, Any]) -> None:
    assert named(rule["expr"])
    assert named(rule["expr"]) <= samples().keys() | OTHERS
    assert rule["labels"]["severity"] in ("critical", "warning")
    assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}
    page, _, heading = rule["annotations"]["runbook_url"].partition("#")
    assert page.endswith("docs/operating/monitoring.md")
    assert heading == rule["alert"].lower()
    assert f"### {rule['alert']}\n" in PAGE.read_text()


def test_every_alert_that_the_page_describes_is_there() -> None:
    assert re.findall(r"### (Understudy\w+)\n", PAGE.read_text()) == [rule["alert"] for rule in rules()]


def test_every_number_that_there_is_stands_on_the_page() -> None:
    page = PAGE.read_text()
    families = {name.removesuffix("_bucket").removesuffix("_count").removesuffix("_sum") for name in samples()}
    assert [name for name in sorted(families) if f"`{name}`" not in page] == []


def test_stages_that_an_expression_names_are_stages() -> None:
    for expression in [*shown(), *(rule["expr"] for rule in rules())]:
        for words in re.findall(r'stage[!=]?[=~]+"([^"]+)"', expression):
            assert set(words.split("|")) <= set(STAGES)


@needs_promtool
def test_alerts_fire_when_they_should_and_not_otherwise(tmp_path: Path) -> None:
    spec = yaml.safe_load((MONITORING / "rules.yaml").read_text())["spec"]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(spec))
    shutil.copy(Path(__file__).with_name("rules_test.yaml"), tmp_path)
    tried = (tmp_path / "rules_test.yaml").read_text()
    assert [rule["alert"] for rule in rules() if rule["alert"] not in tried] == []
    done = subprocess.run(
        ["promtool", "test", "rules", "rules_test.yaml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


# The dashboard


@needs_promtool
def test_prometheus_parses_the_dashboards_queries(tmp_path: Path) -> None:
    records = [{"record": f"panel:{number}", "expr": expression} for number, expression in enumerate(shown())]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": records}]}))
    done = subprocess.run(
        ["promtool", "check", "rules", "rules.yaml"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_dashboard_asks_for_numbers_that_there_are() -> None:
    for expression in shown():
        assert named(expression)
        assert named(expression) <= samples().keys() | OTHERS, expression


def test_legends_name_labels_that_the_numbers_have() -> None:
    labels = {"namespace", "persistentvolumeclaim"}.union(*samples().values())
    for panel in dashboard()["panels"]:
        for target in panel.get("targets", ()):
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= labels


def lost(ours: Any, theirs: Any, path: str = "") -> Iterator[str]:
    """Where something of ours is missing or different."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key, value in ours.items():
            yield from lost(value, theirs.get(key), f"{path}.{key}")
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for number, (our_item, their_item) in enumerate(zip(ours, theirs, strict=True)):
            yield from lost(our_item, their_item, f"{path}[{number}]")
    elif ours != theirs:
        yield f"{path}: {ours!r} is {theirs!r}"


def test_grafanas_types_keep_every_field_of_the_dashboard() -> None:
    register_default_plugins()
    read = Dashboard.from_json(dashboard())
    assert list(lost(dashboard(), json.loads(JSONEncoder().encode(read)))) == []


def test_panels_do_not_overlap_and_have_numbers_of_their_own() -> None:
    panels = dashboard()["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    cells = [
        (x, y)
        for at in (panel["gridPos"] for panel in panels)
        for x in range(at["x"], at["x"] + at["w"])
        for y in range(at["y"], at["y"] + at["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) == 23
