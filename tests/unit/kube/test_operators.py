import pytest

from understudy.kube.operators import KUEUE, SECRETS, SERVED, Version, other_version, queueing, release


@pytest.mark.parametrize(
    ("text", "version"),
    [("v0.12.3", (0, 12)), ("1.3.1", (1, 3)), ("v2.1.0-rc.1", (2, 1)), ("main", None), ("", None), ("v2", None)],
)
def test_a_release_is_read_from_a_tag_or_a_charts_version(text: str, version: Version | None) -> None:
    assert release(text) == version


@pytest.mark.parametrize(
    ("group", "version", "serves"),
    [
        (KUEUE, (0, 12), {"v1beta1"}),
        (KUEUE, (0, 17), {"v1beta1", "v1beta2"}),
        (KUEUE, (0, 20), {"v1beta2"}),
        (SECRETS, (0, 10), {"v1beta1"}),
        (SECRETS, (0, 16), {"v1beta1", "v1"}),
        (SECRETS, (1, 3), {"v1"}),
    ],
)
def test_a_release_serves_the_versions_of_its_types(group: str, version: Version, serves: set[str]) -> None:
    assert {api.version for api in SERVED if api.group == group and api.is_in(version)} == serves


@pytest.mark.parametrize(
    ("group", "ours", "serves", "fix"),
    [
        (KUEUE, "v1beta1", {"v1beta1", "v1beta2"}, ""),
        (KUEUE, "v1beta1", {"v1beta2"}, "add components/kueue-v1beta2"),
        (KUEUE, "v1beta2", {"v1beta1"}, "remove components/kueue-v1beta2 from"),
        (SECRETS, "v1", {"v1beta1"}, "add components/external-secret-v1beta1"),
        (SECRETS, "v1beta1", {"v1"}, "remove components/external-secret-v1beta1 from"),
        (SECRETS, "v1", set(), "install a release that serves one of v1, v1beta1"),
    ],
)
def test_objects_of_a_version_that_is_not_served_get_the_component_that_changes_them(
    group: str, ours: str, serves: set[str], fix: str
) -> None:
    advice = other_version(group, ours, frozenset(serves))
    assert advice.startswith(fix) if fix else advice == ""


@pytest.mark.parametrize(
    ("kueue", "trainer", "launcher", "expected"),
    [
        ((0, 12), None, "pytorchjob", ""),
        ((0, 18), None, "pytorchjob", ""),
        ((0, 19), None, "pytorchjob", "list kubeflow.org/pytorchjob in integrations.frameworks"),
        ((0, 12), (2, 1), "trainjob", "queues TrainJobs since 0.14"),
        ((0, 17), (2, 1), "trainjob", ""),
        ((0, 17), None, "trainjob", ""),
        ((0, 17), (2, 0), "trainjob", "Kueue 0.17 needs Kubeflow Trainer 2.1 or later"),
        ((0, 20), (2, 1), "trainjob", "Kueue 0.20 needs Kubeflow Trainer 2.3 or later"),
    ],
)
def test_a_kueue_that_does_not_queue_the_launchers_jobs_is_reported(
    kueue: Version, trainer: Version | None, launcher: str, expected: str
) -> None:
    advice = queueing(kueue, trainer, launcher)
    assert expected in advice if expected else advice == ""
