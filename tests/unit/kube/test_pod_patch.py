"""A pool's patch: fields for fabrics and platforms are accepted, and dangerous fields are refused by name."""

from typing import Any

import pytest

from understudy.errors import InputError
from understudy.kube.settings import ANYWHERE, Cluster, Pool, parsed
from understudy.recipe import Resources

RDMA = {
    "metadata": {
        "annotations": {
            "k8s.v1.cni.cncf.io/networks": "rdma-0,rdma-1",
            "kueue.x-k8s.io/podset-required-topology": "cloud.provider.com/topology-block",
        },
        "labels": {"networking.example.com/fabric": "rdma"},
    },
    "spec": {
        "runtimeClassName": "nvidia",
        "schedulerName": "gang",
        "imagePullSecrets": [{"name": "registry"}],
        "resourceClaims": [{"name": "nics", "resourceClaimTemplateName": "rdma"}],
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}],
        "volumes": [
            {"name": "pages", "emptyDir": {"medium": "HugePages-2Mi"}},
            {"name": "topology", "configMap": {"name": "nccl-topology"}},
        ],
        "containers": [
            {
                "name": "pytorch",
                "env": [{"name": "NCCL_IB_HCA", "value": "mlx5"}],
                "resources": {
                    "limits": {"rdma/hca": "1", "hugepages-2Mi": "2Gi", "vpc.amazonaws.com/efa": "4"},
                    "claims": [{"name": "nics"}],
                },
                "volumeMounts": [{"name": "pages", "mountPath": "/hugepages"}],
            }
        ],
    },
}


def settings(patch: Any, **fields: Any) -> Cluster:
    pool = {"gpu": "nvidia.com/gpu", "pod_patch": patch}
    return parsed({"image": "i:1", "claim": "store", "pools": {"gpu": pool}, **fields}, "cluster.yaml")


def container(**fields: Any) -> dict[str, Any]:
    return {"spec": {"containers": [{"name": "pytorch", **fields}]}}


def mounted(volume: dict[str, Any], path: str = "/data") -> dict[str, Any]:
    mounts = [{"name": volume["name"], "mountPath": path}]
    return {"spec": {"volumes": [volume], "containers": [{"name": "node", "volumeMounts": mounts}]}}


SCRATCH = {"name": "scratch", "emptyDir": {}}


def test_a_fabrics_fields_are_passed_on_unchanged() -> None:
    assert settings(RDMA).pools["gpu"].pod_patch == RDMA
    assert settings(mounted({"name": "scratch", "persistentVolumeClaim": {"claimName": "scratch"}}))


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        ({"spec": {"serviceAccountName": "default"}}, r"spec\.serviceAccountName: a pool cannot set it"),
        ({"spec": {"automountServiceAccountToken": True}}, r"spec\.automountServiceAccountToken: a pool cannot"),
        (
            {"spec": {"securityContext": {"runAsUser": 0}}},
            r"spec\.securityContext: .* as Pod Security restricted requires",
        ),
        ({"spec": {"hostNetwork": True}}, r"spec\.hostNetwork: .* network policies do not see the host's network"),
        ({"spec": {"hostPID": True}}, r"spec\.hostPID: a pool cannot set it"),
        ({"spec": {"shareProcessNamespace": True}}, r"spec\.shareProcessNamespace"),
        ({"spec": {"initContainers": []}}, r"spec\.initContainers"),
        ({"spec": {"ephemeralContainers": []}}, r"spec\.ephemeralContainers"),
        ({"spec": {"nodeSelector": {}}}, r"spec\.nodeSelector: .* write it as node_selector of the pool"),
        ({"spec": {"priorityClassName": "high"}}, r"resources\.<job>\.priority of a recipe"),
        ({"spec": {"runtimeClass": "nvidia"}}, r"spec\.runtimeClass: .* a pool may set .*runtimeClassName"),
        ({"spec": {"$patch": "replace"}}, r"spec\.\$patch: a pool cannot set it"),
        ({"spec": {"volumes": [{"name": "a", "$patch": "delete"}]}}, r"spec\.volumes\.a\.\$patch"),
        ({"kind": "Pod"}, r"pod_patch\.kind: a pool cannot set it: a pool may set metadata, spec"),
        ({"spec": []}, r"pod_patch\.spec: expected a mapping"),
        ({"spec": {"containers": [{"name": "spy", "image": "x"}]}}, r"only container is the ranks'; name it node or"),
        (container(command=["sh"]), r"spec\.containers\.command: a pool cannot set it"),
        (container(image="x"), r"spec\.containers\.image: .* it is image of these settings"),
        (container(securityContext={"privileged": True}), r"spec\.containers\.securityContext"),
        (container(envFrom=[{"secretRef": {"name": "s"}}]), r"spec\.containers\.envFrom"),
        (container(lifecycle={}), r"spec\.containers\.lifecycle"),
        (
            container(env=[{"name": "UNDERSTUDY_HOME", "value": "/"}]),
            r"env\.UNDERSTUDY_HOME: determines the command of ranks",
        ),
        (container(env=[{"name": "PYTHONPATH", "value": "/data"}]), r"env\.PYTHONPATH"),
        (container(env=[{"name": "PET_RDZV_ENDPOINT", "value": "x"}]), r"env\.PET_RDZV_ENDPOINT"),
        (
            container(env=[{"name": "T", "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}]),
            r"env\.T: ranks may not read Secrets",
        ),
        (container(resources={"limits": {"memory": "1Gi"}}), r"resources: memory is set in a recipe"),
        (container(resources={"requests": {"nvidia.com/gpu": "8"}}), r"resources: nvidia\.com/gpu is set in a recipe"),
        (container(volumeMounts=[{"name": "store", "mountPath": "/all"}]), r"store is not a volume of this patch"),
        (mounted({"name": "store", "emptyDir": {}}), r"spec\.volumes\.store: every rank's pod has a volume of this"),
        (mounted({"name": "t", "projected": {"sources": []}}), r"volumes\.t\.projected: could hold credentials"),
        (mounted({"name": "s", "secret": {"secretName": "understudy-mlflow"}}), r"volumes\.s\.secret"),
        (mounted({"name": "h", "hostPath": {"path": "/"}}), r"volumes\.h\.hostPath: .*the node's files"),
        (mounted({"name": "c", "csi": {"driver": "secrets-store.csi.k8s.io"}}), r"volumes\.c\.csi"),
        (mounted({"name": "c", "configMap": {"name": "understudy-environment"}}), r"only launchers may read it"),
        (
            mounted({"name": "c", "persistentVolumeClaim": {"claimName": "store"}}),
            r"only their folders of the store's claim",
        ),
        (
            mounted({"name": "c", "ephemeral": {"volumeClaimTemplate": {"spec": {"dataSource": {"name": "store"}}}}}),
            r"volumes\.c\.ephemeral: must not copy another claim",
        ),
        (mounted({"name": "c", "emptyDir": {"sizeLimt": "1Gi"}}), r"c\.emptyDir\.sizeLimt: Kubernetes has no such"),
        *(
            (mounted(SCRATCH, path), r"volumeMounts: .* is or hides a path that every rank uses")
            for path in ("/", "/var/lib", "/var/lib/understudy/home", "/tmp", "/dev/shm/", "/data/../tmp", "//dev")
        ),
        ({"metadata": {"labels": {"understudy.fetches": "true"}}}, r"understudy\.fetches: jobs and network policies"),
        ({"metadata": {"labels": {"app.kubernetes.io/name": "mlflow"}}}, r"labels\.app\.kubernetes\.io/name"),
        ({"metadata": {"labels": {"kueue.x-k8s.io/queue-name": "q"}}}, r"labels\.kueue\.x-k8s\.io/queue-name"),
        ({"metadata": {"ownerReferences": []}}, r"metadata\.ownerReferences: a pool cannot set it"),
        (
            {"metadata": {"annotations": {"container.apparmor.security.beta.kubernetes.io/pytorch": "unconfined"}}},
            r"keep the node's default profile",
        ),
        ({"spec": {"volumes": ["a"]}}, r"pod_patch: is not part of a pod template"),
        (
            {"spec": {"volumes": [{"emptyDir": {}}]}},
            r"pod_patch: is not part of a pod template \(KeyError\('name'\)\)",
        ),
        (container(resources={"limit": {}}), r"resources\.limit"),
        ([], r"pod_patch: "),
    ],
)
def test_a_field_that_would_undo_a_protection_is_refused_by_name(patch: Any, message: str) -> None:
    with pytest.raises(InputError, match=rf"cluster\.yaml: pools.*{message}"):
        settings(patch)


def test_the_cluster_alone_decides_the_stores_path() -> None:
    assert settings(mounted(SCRATCH, "/var/lib/understudy"), mount="/store")
    with pytest.raises(InputError, match="is or hides"):
        settings(mounted(SCRATCH, "/store/home"), mount="/store")


def test_jobs_that_name_no_pool_go_where_the_settings_say() -> None:
    pools = {"gpu": {"gpu": "nvidia.com/gpu"}, "cpu": {"node_selector": {"node-pool": "cpu"}}}
    cluster = parsed({"image": "i:1", "claim": "c", "pools": pools, "pool": "cpu"}, "cluster.yaml")
    assert cluster.pool_of(Resources(), "resources.distill") == Pool(node_selector={"node-pool": "cpu"})
    assert cluster.pool_of(Resources(pool="gpu"), "resources.distill").gpu
    without = parsed({"image": "i:1", "claim": "c", "pools": pools}, "cluster.yaml")
    assert without.pool_of(Resources(), "resources.distill") == ANYWHERE
    with pytest.raises(InputError, match=r"pool: .*there is no pool cpus among pools \(cpu, gpu\)"):
        parsed({"image": "i:1", "claim": "c", "pools": pools, "pool": "cpus"}, "cluster.yaml")
