"""Where jobs run, and the consequences: chosen once, from the environment and the cluster's settings."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from understudy.errors import InputError
from understudy.kube import settings
from understudy.kube.kind import PYTORCHJOB, TRAINJOB, JobKind
from understudy.kube.owner import KFP_POD
from understudy.kube.settings import LAUNCHER
from understudy.launch.kubernetes import platform as kubernetes
from understudy.launch.kubernetes.launcher import KubernetesLauncher
from understudy.launch.kubernetes.platform import KubernetesPlatform
from understudy.launch.kubernetes.rendering import task_config
from understudy.launch.local import platform as local
from understudy.launch.local import warm
from understudy.launch.local.launcher import LocalLauncher
from understudy.launch.local.platform import LocalPlatform
from understudy.launch.platform import Platform, platform
from understudy.recipe import JobResources, Resources
from understudy.store import Run
from understudy.store.lease import Lease
from understudy.store.runs import RunFacts

PLATFORMS: list[Platform] = [LocalPlatform(), KubernetesPlatform()]
RUN = cast(Run, SimpleNamespace(id="run", facts=RunFacts(started=7)))


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> settings.Cluster:
    """Settings with a pool of GPUs, where jobs are TrainJobs."""
    pools = {"gpu": {"gpu": "nvidia.com/gpu"}}
    values = {"image": "i", "claim": "c", "pools": pools, "launcher": "trainjob", "launcher_timeout": 12}
    parsed = settings.parsed(values, "cluster.yaml")
    monkeypatch.setattr(kubernetes, "cluster_settings", lambda: parsed)
    monkeypatch.setenv(task_config.VARIABLE, "{}")
    return parsed


@pytest.mark.parametrize(
    ("name", "chosen"),
    [
        (None, LocalPlatform()),
        ("", LocalPlatform()),
        ("local", LocalPlatform()),
        ("cluster", KubernetesPlatform()),
        ("pytorchjob", KubernetesPlatform(PYTORCHJOB)),
        ("trainjob", KubernetesPlatform(TRAINJOB)),
    ],
)
def test_the_environment_decides_where_jobs_run(
    monkeypatch: pytest.MonkeyPatch, name: str | None, chosen: Platform
) -> None:
    monkeypatch.delenv(LAUNCHER, raising=False)
    if name is not None:
        monkeypatch.setenv(LAUNCHER, name)
    assert platform() == chosen


def test_a_launcher_that_does_not_exist_is_refused_with_those_that_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(LAUNCHER, "mpijob")
    with pytest.raises(InputError, match=r"UNDERSTUDY_LAUNCHER: 'mpijob' is not a .* local, pytorchjob, trainjob, or"):
        platform()


@pytest.mark.parametrize(("name", "kind"), [("cluster", TRAINJOB), ("pytorchjob", PYTORCHJOB)])
def test_the_cluster_s_settings_name_the_operator_unless_the_environment_does(
    monkeypatch: pytest.MonkeyPatch, cluster: settings.Cluster, name: str, kind: JobKind
) -> None:
    monkeypatch.setenv(LAUNCHER, name)
    launcher = platform().launcher(RUN, "teacher", "0" * 64)
    assert isinstance(launcher, KubernetesLauncher)
    assert launcher.kind is kind
    assert (launcher.cluster, launcher.since) == (cluster, 7.0)
    assert launcher.identity.name.startswith("teacher-0000000000-")


def test_here_a_job_is_processes_of_this_machine() -> None:
    assert LocalPlatform().launcher(RUN, "teacher", "0" * 64) == LocalLauncher(RUN)


def test_more_nodes_than_this_machine_are_refused_before_any_work() -> None:
    resources = JobResources(distill=Resources(nodes=2))
    with pytest.raises(InputError, match=r"resources\.distill\.nodes: 2 nodes need a cluster: add --on cluster"):
        LocalPlatform().check(resources)
    LocalPlatform().check(JobResources(distill=Resources(processes=2)))
    KubernetesPlatform().check(resources)


def test_a_job_in_a_cluster_outlives_the_lease_of_its_launcher(tmp_path: Path) -> None:
    lease = cast(Lease, SimpleNamespace(folder=tmp_path / "3.lease"))
    assert LocalPlatform().job_folder(lease) == lease.folder
    for _ in range(2):
        assert KubernetesPlatform().job_folder(lease) == tmp_path / "job"
    assert (tmp_path / "job").is_dir()


def test_ranks_wait_for_a_launcher_for_as_long_as_the_cluster_s_settings_say(cluster: settings.Cluster) -> None:
    assert KubernetesPlatform().launcher_timeout == cluster.launcher_timeout == 12
    assert LocalPlatform().launcher_timeout == 600


@pytest.mark.parametrize(("setting", "counts"), [(600.0, kubernetes.KFP_TIMEOUT), (12.0, 12.0)])
def test_ranks_of_a_kfp_run_wait_less_for_a_launcher_since_nothing_starts_it_again(
    monkeypatch: pytest.MonkeyPatch, cluster: settings.Cluster, setting: float, counts: float
) -> None:
    changed = cluster.model_copy(update={"launcher_timeout": setting})
    monkeypatch.setattr(kubernetes, "cluster_settings", lambda: changed)
    monkeypatch.setenv(KFP_POD, "digits-x-impl-1")
    assert KubernetesPlatform().launcher_timeout == counts


def test_a_process_imports_beforehand_where_jobs_are_processes_here(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Run] = []
    monkeypatch.setattr(warm, "begin", started.append)
    for chosen in PLATFORMS:
        chosen.prepare(RUN)
    assert started == [RUN]


# What there is to compute on


def test_a_job_s_device_is_its_pool_s_or_its_task_s(monkeypatch: pytest.MonkeyPatch, cluster: settings.Cluster) -> None:
    del cluster
    chosen = KubernetesPlatform()
    assert chosen.job_device(Resources(pool="gpu")) == "cuda"
    assert chosen.job_device(Resources(pool="gpu", device="cpu")) == "cpu"
    assert chosen.job_device(Resources()) == "cpu"
    task_config.hand_over({"resources": {"limits": {"nvidia.com/gpu": "1"}}})
    assert chosen.job_device(Resources()) == "cuda"


def test_a_local_job_computes_on_the_available_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "device_here", lambda: "cuda")
    for setting, device in (("auto", "cuda"), ("cpu", "cpu")):
        resources = Resources(device=setting)  # type: ignore[arg-type]
        assert LocalPlatform().job_device(resources) == device


@pytest.mark.parametrize(("resources", "cores"), [({}, 7), ({"cpu": "2500m"}, 2), ({"cpu": "100m"}, 1)])
def test_a_job_in_a_cluster_takes_the_cores_that_it_asks_for(
    monkeypatch: pytest.MonkeyPatch, resources: dict[str, Any], cores: int
) -> None:
    monkeypatch.setattr("os.cpu_count", lambda: 7)
    assert KubernetesPlatform().cores(Resources(**resources)) == cores
    assert LocalPlatform().cores(Resources(**resources)) == 7


# Output


@pytest.mark.parametrize(
    ("chosen", "url", "address"),
    [
        (LocalPlatform(), "sqlite:///x", "understudy ui"),
        (KubernetesPlatform(), "sqlite:///x", "understudy ui"),
        (LocalPlatform(), "http://mlflow:5000/#/models/m", "http://mlflow:5000/#/models/m"),
        (KubernetesPlatform(), "https://mlflow.example.com/#/models/m", "https://mlflow.example.com/#/models/m"),
        (
            KubernetesPlatform(),
            "http://mlflow:5000/#/models/m",
            "kubectl port-forward service/mlflow 5000:5000 in the run's namespace, then http://localhost:5000/#/models/m",
        ),
    ],
)
def test_a_page_is_one_that_its_reader_can_reach(chosen: Platform, url: str, address: str) -> None:
    assert chosen.reachable(url) == address
