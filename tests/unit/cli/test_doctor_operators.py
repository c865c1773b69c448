"""Pure rules of operators' versions; the checks of a real cluster are tested in tests/cluster."""

from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from understudy.cli import doctor_operators
from understudy.kube.api import Kube, Refused
from understudy.kube.kind import PYTORCHJOB, TRAINJOB
from understudy.kube.settings import Cluster

OFF = {"integrations": {"frameworks": ["batch/job", "trainer.kubeflow.org/trainjob"]}}
ON = {"integrations": {"frameworks": ["kubeflow.org/pytorchjob"]}}


class Answers(Kube):
    """A cluster with one ConfigMap, and the given versions of the External Secrets' types."""

    def __init__(self, data: dict[str, Any] | None, served: tuple[str, ...] = (), objects: int = 0) -> None:
        self.namespace, self._data, self._served, self._objects = "here", data, served, objects
        self.core = SimpleNamespace(read_namespaced_config_map="map")
        self.custom = SimpleNamespace(list_namespaced_custom_object="list")

    def call(self, method: object, *arguments: object, **options: object) -> Any:
        if method == "list":
            assert arguments == ("external-secrets.io", "v1beta1", "here", "externalsecrets")
            return {"items": [{}] * self._objects}
        if self._data is None:
            raise Refused("a right is missing")
        return {"data": self._data}

    def knows(self, group: str, version: str, resource: str) -> bool:
        assert (group, resource) == ("external-secrets.io", "externalsecrets")
        return version in self._served

    def allows(self, *_: object, **__: object) -> bool:
        return True


@pytest.mark.parametrize(
    ("launcher", "config", "result", "fix"),
    [
        ("pytorchjob", ON, "yes", ""),
        ("pytorchjob", OFF, "no", "list kubeflow.org/pytorchjob in integrations.frameworks"),
        ("trainjob", ON, "no", "list trainer.kubeflow.org/trainjob in integrations.frameworks"),
        ("trainjob", OFF, "yes", ""),
        ("pytorchjob", {}, "no", "list kubeflow.org/pytorchjob"),
    ],
)
def test_jobs_that_kueue_does_not_manage_are_told(launcher: Any, config: Any, result: str, fix: str) -> None:
    kube = Answers({"controller_manager_config.yaml": yaml.safe_dump(config)})
    check = doctor_operators.queueing(kube, Cluster(image="i", claim="c", launcher=launcher))
    assert check.found == result
    assert check.fix.startswith(fix) if fix else check.ok


def test_settings_of_kueue_that_cannot_be_seen_are_no_problem_and_no_silence() -> None:
    check = doctor_operators.queueing(Answers(None), Cluster(image="i", claim="c"))
    assert check.ok
    assert "Kueue 0.19 and later does so for PyTorchJobs only if configured" in check.found


@pytest.mark.parametrize(
    ("served", "objects", "result", "fix"),
    [
        (("v1",), 0, "v1", ""),
        (("v1", "v1beta1"), 0, "v1, v1beta1", ""),
        (("v1beta1",), 0, "v1beta1", "add components/external-secret-v1beta1"),
        (("v1beta1",), 3, "v1beta1", ""),
        ((), 0, "not there", "install a release that serves one of v1"),
    ],
)
def test_an_operator_that_serves_only_the_older_version_is_told(
    served: tuple[str, ...], objects: int, result: str, fix: str
) -> None:
    [check] = doctor_operators.external_secrets(Answers({"secret-store": "vault"}, served, objects))
    assert check.found == result
    assert check.fix.startswith(fix) if fix else check.ok


def test_where_no_external_store_is_named_none_is_asked_for() -> None:
    assert list(doctor_operators.external_secrets(Answers({"environment": "dev"}))) == []


@pytest.mark.parametrize(
    ("fields", "result", "ok"),
    [
        ({*TRAINJOB.fields, "managedBy"}, "there", True),
        (None, "there", True),
        ({"runtimeRef", "trainer", "suspend", "podSpecOverrides"}, "has no podTemplateOverrides", False),
    ],
)
def test_a_type_without_a_field_of_ours_is_told(fields: set[str] | None, result: str, ok: bool) -> None:
    class Types(Answers):
        def fields(self, kind: object) -> set[str] | None:
            return fields

    check = doctor_operators.fields(Types({}), TRAINJOB)
    assert (check.found, check.ok) == (result, ok)
    assert ok or "install Kubeflow Trainer 2.1" in check.fix


def test_the_installed_version_of_kueue_is_shown() -> None:
    class Installed(Answers):
        kueue = None

    assert "install Kueue" in doctor_operators.kueue(Installed({})).fix
    assert PYTORCHJOB.fields
