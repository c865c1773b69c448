from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from understudy.kube.objects import Affinity, Toleration, Variable, Volume, VolumeMount


@pytest.mark.parametrize(
    ("part", "value"),
    [
        (Volume, {"name": "disk", "csi": {"driver": "a.b", "volumeAttributes": {"x": "y"}}}),
        (
            Volume,
            {"name": "settings", "configMap": {"name": "c", "items": [{"key": "k", "path": "p"}]}, "secret": None},
        ),
        (VolumeMount, {"name": "disk", "mountPath": "/d", "subPath": "s"}),
        (Variable, {"name": "A", "valueFrom": {"resourceFieldRef": {"resource": "limits.cpu"}}}),
        (Affinity, {"podAffinity": {}, "nodeAffinity": {"anything": [1]}}),
    ],
)
def test_fields_that_only_kubernetes_reads_are_passed_on_unchanged(part: Any, value: dict[str, Any]) -> None:
    assert TypeAdapter(part).validate_python(value) == value


@pytest.mark.parametrize(
    ("part", "value", "field"),
    [
        (Toleration, {"key": "spot", "efect": "NoSchedule"}, "efect"),
        (Affinity, {"podAntiAfinity": {}}, "podAntiAfinity"),
        (Affinity, {"podAffinity": {"preferred": []}}, "podAffinity.preferred"),
    ],
)
def test_a_misspelt_field_of_a_part_that_is_merged_is_named(part: Any, value: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError) as caught:
        TypeAdapter(part).validate_python(value)
    assert ".".join(str(step) for step in caught.value.errors()[0]["loc"]) == field
