"""Properties of the manifests as kustomize renders them; tests/cluster asks the API server."""

import base64
import shutil
import subprocess
from dataclasses import dataclass, field
from functools import cache
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import ROOT
from understudy.cli import doctor_accounts
from understudy.kube.identity import DRIVER as LAUNCHES
from understudy.kube.identity import FETCHES, PARTS, Identity
from understudy.kube.settings import CONFIG, SECRETS, parsed
from understudy.launch.kubernetes.rendering import network, pod_security, trainjob
from understudy.registry import pod_token, promotion_files
from understudy.runs import submission
from understudy_server import teams

MANIFESTS = ROOT / "manifests"
OVERLAYS = sorted(path.parent.name for path in MANIFESTS.glob("overlays/*/kustomization.yaml"))
KUBECTL = shutil.which("kubectl")
pytestmark = pytest.mark.skipif(KUBECTL is None, reason="kubectl is not installed")


@cache
def built(path: str) -> list[dict[str, Any]]:
    done = subprocess.run(
        [str(KUBECTL), "kustomize", str(MANIFESTS / path)], capture_output=True, text=True, check=True
    )
    return list(yaml.safe_load_all(done.stdout))


@pytest.fixture(params=OVERLAYS)
def overlay(request: pytest.FixtureRequest) -> list[dict[str, Any]]:
    return built(f"overlays/{request.param}")


def pods(resources: list[dict[str, Any]]) -> list[dict[str, Any]]:
    templates = []
    for resource in resources:
        spec = resource.get("spec", {})
        if resource["kind"] == "CronJob":
            spec = spec["jobTemplate"]["spec"]
        if "template" in spec and "containers" in spec["template"].get("spec", {}):
            templates.append(spec["template"])
    return templates


def named(resources: list[dict[str, Any]], kind: str) -> dict[str, dict[str, Any]]:
    return {resource["metadata"]["name"]: resource for resource in resources if resource["kind"] == kind}


def test_every_namespace_enforces_restricted(overlay: list[dict[str, Any]]) -> None:
    namespaces = named(overlay, "Namespace")
    assert namespaces
    for namespace in namespaces.values():
        assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"


def test_every_pod_is_fit_for_restricted_and_cannot_write_its_image(overlay: list[dict[str, Any]]) -> None:
    for pod in pods(overlay):
        spec = pod["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        for container in spec["containers"]:
            security = container["securityContext"]
            assert security["readOnlyRootFilesystem"] is True
            assert security["allowPrivilegeEscalation"] is False
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert "memory" in container["resources"]["limits"]


def test_images_have_a_registry_and_a_tag_that_stays(overlay: list[dict[str, Any]]) -> None:
    images = [container["image"] for pod in pods(overlay) for container in pod["spec"]["containers"]]
    images.append(parsed(settings(overlay), "cluster.yaml").image)
    for image in images:
        name, _, tag = image.rpartition(":")
        assert "/" in name
        assert tag not in ("", "latest")


def settings(resources: list[dict[str, Any]]) -> Any:
    return yaml.safe_load(named(resources, "ConfigMap")[CONFIG]["data"]["cluster.yaml"])


def test_the_settings_are_read_as_every_step_reads_them(overlay: list[dict[str, Any]]) -> None:
    cluster = parsed(settings(overlay), "cluster.yaml")
    claims = named(overlay, "PersistentVolumeClaim")
    assert claims[cluster.claim]["spec"]["accessModes"] == ["ReadWriteMany"]
    assert {submission.ACCOUNT, cluster.service_account} <= named(overlay, "ServiceAccount").keys()
    assert cluster.queue is None or cluster.queue in named(overlay, "LocalQueue")


@pytest.mark.parametrize("path", ["base", *(f"overlays/{name}" for name in OVERLAYS if name != "dev")])
def test_no_secret_is_written_down(path: str) -> None:
    assert not named(built(path), "Secret")


def test_secrets_for_development_are_marked_as_such() -> None:
    for secret in named(built("overlays/dev"), "Secret").values():
        values = {key: base64.b64decode(value).decode() for key, value in secret["data"].items()}
        assert {value for key, value in values.items() if key != "MLFLOW_TRACKING_USERNAME"} == {"only-for-development"}


# Accounts


def server(resources: list[dict[str, Any]]) -> dict[str, Any]:
    container: dict[str, Any] = named(resources, "Deployment")["mlflow"]["spec"]["template"]["spec"]["containers"][0]
    return container


def test_every_secret_that_the_server_needs_is_brought_along(overlay: list[dict[str, Any]]) -> None:
    needed = {source["secretRef"]["name"] for source in server(overlay)["envFrom"]}
    provided = {secret["spec"]["target"]["name"] for secret in named(overlay, "ExternalSecret").values()}
    assert provided | named(overlay, "Secret").keys() == needed


def test_the_pipelines_pods_sign_in_with_a_token_and_no_secret(overlay: list[dict[str, Any]]) -> None:
    environment = named(overlay, "ConfigMap")["understudy-environment"]["data"]
    assert environment["MLFLOW_TRACKING_AUTH"] == pod_token.POD
    assert not named(overlay, "Secret").keys() & SECRETS.keys()


def test_the_servers_pod_has_a_token_for_reviewing_tokens(overlay: list[dict[str, Any]]) -> None:
    pod = named(overlay, "Deployment")["mlflow"]["spec"]["template"]["spec"]
    assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == ("mlflow", True)
    binding = named(overlay, "ClusterRoleBinding")["understudy-token-reviews"]
    assert [subject["name"] for subject in binding["subjects"]] == ["mlflow"]
    [rule] = named(overlay, "ClusterRole")[binding["roleRef"]["name"]]["rules"]
    assert (rule["resources"], rule["verbs"]) == (["tokenreviews"], ["create"])


def test_only_the_server_has_the_admins_password(overlay: list[dict[str, Any]]) -> None:
    for pod in pods(overlay):
        labels = pod.get("metadata", {}).get("labels", {}).values()
        if "mlflow" not in labels:
            assert "mlflow-accounts" not in str(pod["spec"])
            assert "operations" in labels or "secret" not in str(pod["spec"]).lower()
    assert "mlflow-accounts" not in str(submission.render("digits-1", parsed(settings(overlay), "cluster.yaml")))


def test_nobody_may_anything_on_the_server_unless_an_overlay_names_them(overlay: list[dict[str, Any]]) -> None:
    assert {"name": teams.SETTING, "value": ""} in server(built("base"))["env"]
    names = [value["name"] for value in server(overlay)["env"]]
    assert names.index("NAMESPACE") < names.index(teams.SETTING), "its value names the namespace"


def test_the_accounts_of_an_overlay_are_those_that_its_pods_have(
    overlay: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    (namespace,) = named(overlay, "Namespace")
    [setting] = [value["value"] for value in server(overlay)["env"] if value["name"] == teams.SETTING]
    monkeypatch.setenv(teams.SETTING, setting.replace("$(NAMESPACE)", namespace))
    [team] = teams.read().teams.values()
    of_kfp = {f"system:serviceaccount:{namespace}:{name}" for name in doctor_accounts.KFP}
    assert team.writers - of_kfp == {f"system:serviceaccount:{namespace}:{submission.ACCOUNT}"}
    [job] = [resource for resource in built("promotions") if resource["kind"] == "Job"]
    job_namespace, pod = job["metadata"]["namespace"], job["spec"]["template"]["spec"]
    assert team.reviewers == {f"system:serviceaccount:{job_namespace}:{pod['serviceAccountName']}"}
    assert {"name": "mlflow", **pod_token.VOLUME} in pod["volumes"]


def test_the_server_has_accounts_and_a_readiness_probe(overlay: list[dict[str, Any]]) -> None:
    container = server(overlay)
    assert container["command"] == ["python", "-m", "understudy_server.app"]
    assert container["readinessProbe"]["httpGet"]["path"] == "/health"


def test_the_pipeline_may_read_no_secret_and_the_ranks_nothing(overlay: list[dict[str, Any]]) -> None:
    for role in [*named(overlay, "Role").values(), *named(overlay, "ClusterRole").values()]:
        for rule in role["rules"]:
            assert not {"secrets", "*"} & {*rule["resources"], *rule["verbs"], *rule["apiGroups"]}
    bound = [named(overlay, kind) for kind in ("RoleBinding", "ClusterRoleBinding")]
    subjects = {
        subject["name"] for bindings in bound for binding in bindings.values() for subject in binding["subjects"]
    }
    assert subjects == {submission.ACCOUNT, "mlflow"}


# Who may speak to whom


@dataclass(frozen=True)
class Peer:
    """A pod by its labels and those of its namespace; without any, an address that is no pod's."""

    labels: dict[str, str] | None = None
    namespace: dict[str, str] = field(default_factory=lambda: {"kubernetes.io/metadata.name": "understudy"})
    address: str = "203.0.113.1"

    @property
    def is_ours(self) -> bool:
        """Whether the policies are about it."""
        return self.labels is not None and self == Peer(self.labels)


DRIVER = Peer(dict(LAUNCHES))
FETCHER = Peer({**LAUNCHES, **FETCHES})
CLEANUP = Peer({"app.kubernetes.io/name": "understudy", "app.kubernetes.io/component": "cleanup"})
TEACHER = Identity("run-1", "teacher", "7" * 64)
DISTILL = Identity("run-1", "distill", "5" * 64)
EVALUATE = Identity("run-1", "evaluate", "e" * 64)
RANK, SAME_AGAIN = Peer(TEACHER.labels), Peer(Identity("run-2", "teacher", TEACHER.key).labels)
OTHER_RANK, MEASURING = Peer(DISTILL.labels), Peer(EVALUATE.labels)
UNKNOWN_RANK = Peer(dict(PARTS))
MLFLOW = Peer({"app.kubernetes.io/name": "mlflow"})
OTHER = Peer({"app.kubernetes.io/name": "somebody"})
DNS = Peer({"k8s-app": "kube-dns"}, {"kubernetes.io/metadata.name": "kube-system"})
ELSEWHERE = Peer({"app.kubernetes.io/name": "mlflow"}, {"kubernetes.io/metadata.name": "elsewhere"})
USERS = Peer({}, {"kubernetes.io/metadata.name": "science", "understudy.dev/mlflow-users": "true"})
OUTSIDE = Peer()
API_SERVER = {"dev": Peer(address="10.96.0.1"), "production": Peer(address="192.0.2.1")}
PROXY = Peer(address="192.0.2.2")
HUB = Peer(address="198.51.100.7")
METADATA = Peer(address="169.254.169.254")
ON_THE_NODE = Peer(address="169.254.20.10")


def matches(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    if not selector.get("matchLabels", {}).items() <= labels.items():
        return False
    return all(labels.get(term["key"]) in term["values"] for term in selector.get("matchExpressions", ()))


def rule_matches(peer: Peer, written: dict[str, Any]) -> bool:
    """Whether a peer is one of those that a rule names."""
    if peer.labels is None or "ipBlock" in written:
        block, address = written.get("ipBlock"), ip_address(peer.address)
        within = block is not None and address in ip_network(block["cidr"])
        return within and not any(address in ip_network(hole) for hole in block.get("except", ()))
    in_namespace = (
        matches(written["namespaceSelector"], peer.namespace) if "namespaceSelector" in written else peer.is_ours
    )
    return in_namespace and matches(written.get("podSelector", {}), peer.labels)


def may(policies: list[dict[str, Any]], direction: str, pod: Peer, peer: Peer, port: tuple[str, int]) -> bool:
    """Whether a pod's side of a connection is allowed; somebody else's always is."""
    if not pod.is_ours:
        return True
    for policy in policies:
        assert pod.labels is not None
        if not matches(policy["spec"]["podSelector"], pod.labels):
            continue
        for rule in policy["spec"].get(direction, ()):
            peers = rule.get("from" if direction == "ingress" else "to")
            ports = [(entry["protocol"], entry["port"]) for entry in rule.get("ports", ())]
            if (peers is None or any(rule_matches(peer, entry) for entry in peers)) and (not ports or port in ports):
                return True
    return False


def protocol_and_port(port: int) -> tuple[str, int]:
    """A negative number is a port of UDP."""
    return ("UDP", -port) if port < 0 else ("TCP", port)


def of_launchers() -> list[dict[str, Any]]:
    """The policies that launchers create for jobs with several nodes; an evaluation has one node."""
    return [network.render(identity, None) for identity in (TEACHER, DISTILL)]


def may_speak(resources: list[dict[str, Any]], source: Peer, target: Peer, port: int) -> bool:
    policies = [*named(resources, "NetworkPolicy").values(), *of_launchers()]
    assert any(policy["spec"]["podSelector"] == {} for policy in policies), "denied by default"
    return may(policies, "egress", source, target, protocol_and_port(port)) and may(
        policies, "ingress", target, source, protocol_and_port(port)
    )


EVERYBODY = (DRIVER, FETCHER, CLEANUP, RANK, MEASURING, MLFLOW, OTHER)


@pytest.mark.parametrize(
    ("source", "target", "port", "allowed"),
    [
        (RANK, RANK, 40123, True),
        (RANK, SAME_AGAIN, 40123, True),
        (RANK, OTHER_RANK, 40123, False),
        (OTHER_RANK, RANK, 29500, False),
        *((MEASURING, peer, 40123, False) for peer in (RANK, MEASURING, DRIVER, OUTSIDE, PROXY)),
        (UNKNOWN_RANK, RANK, 40123, False),
        *((peer, MLFLOW, 5000, True) for peer in (DRIVER, FETCHER)),
        *((peer, MLFLOW, 5000, False) for peer in (RANK, OTHER, CLEANUP, MEASURING)),
        *((peer, RANK, 40123, False) for peer in (OTHER, MLFLOW, DRIVER, FETCHER)),
        (RANK, DRIVER, 80, False),
        *((peer, DNS, port, True) for peer in EVERYBODY for port in (53, -53)),
        (RANK, DNS, 443, False),
        *((peer, ON_THE_NODE, port, True) for peer in (DRIVER, RANK, MLFLOW) for port in (53, -53)),
        *((peer, ON_THE_NODE, 80, False) for peer in (RANK, DRIVER, FETCHER)),
        (RANK, OUTSIDE, 53, False),
        (RANK, ELSEWHERE, 53, False),
        *((peer, OUTSIDE, port, False) for peer in (DRIVER, CLEANUP) for port in (443, 6443, 80, 5432)),
        *((peer, METADATA, 80, False) for peer in EVERYBODY),
        *((RANK, OUTSIDE, port, False) for port in (443, 6443, 5000, 40123)),
        *((OTHER, OUTSIDE, port, False) for port in (443, 6443)),
        *((MLFLOW, OUTSIDE, port, True) for port in (443, 5432, 6443)),
        *((MLFLOW, OUTSIDE, port, False) for port in (80, 9000)),
        (USERS, MLFLOW, 5000, True),
        (USERS, MLFLOW, 22, False),
        (ELSEWHERE, MLFLOW, 5000, False),
        (OUTSIDE, MLFLOW, 5000, False),
        *((peer, RANK, 40123, False) for peer in (USERS, ELSEWHERE, OUTSIDE)),
        *((peer, DRIVER, 8080, False) for peer in (USERS, ELSEWHERE, OUTSIDE, MLFLOW)),
        (RANK, ELSEWHERE, 5000, False),
    ],
)
def test_only_the_flows_of_the_table_are_allowed(
    overlay: list[dict[str, Any]], source: Peer, target: Peer, port: int, allowed: bool
) -> None:
    assert may_speak(overlay, source, target, port) == allowed


@pytest.mark.parametrize("name", OVERLAYS)
def test_launchers_alone_reach_the_api_server(name: str) -> None:
    server = API_SERVER[name]
    for port in (443, 6443):
        reached = [peer for peer in EVERYBODY if may_speak(built(f"overlays/{name}"), peer, server, port)]
        assert reached in ([DRIVER, FETCHER, CLEANUP], [DRIVER, FETCHER, CLEANUP, MLFLOW])


@pytest.mark.parametrize(
    ("name", "target", "port"), [("dev", HUB, 443), ("production", PROXY, 8888)], ids=["dev", "production"]
)
def test_only_steps_that_fetch_go_out_and_only_to_addresses_of_their_overlay(
    name: str, target: Peer, port: int
) -> None:
    resources = built(f"overlays/{name}")
    assert [peer for peer in EVERYBODY if may_speak(resources, peer, target, port)] in ([FETCHER], [FETCHER, MLFLOW])
    assert not may_speak(resources, DRIVER, target, port)
    assert not any(may_speak(resources, FETCHER, target, other_port) for other_port in (80, 22, 8080))
    assert may_speak(resources, FETCHER, HUB, 443) == (name == "dev")
    assert not may_speak(resources, FETCHER, Peer(address="10.2.3.4"), 8443)
    assert not any(may_speak(built("base"), FETCHER, target, port) for target in (HUB, PROXY))


@pytest.mark.parametrize(
    ("component", "address", "port"),
    [("identity-eks", "169.254.170.23", 80), ("identity-gke", "169.254.169.254", 80)],
)
def test_a_cloud_s_own_credentials_are_for_launchers_and_never_for_ranks(
    component: str, address: str, port: int, tmp_path: Path
) -> None:
    resources, server = dev_with(component, tmp_path), Peer(address=address)
    assert [peer for peer in EVERYBODY if may_speak(resources, peer, server, port)] == [DRIVER, FETCHER]
    node = Peer(address="169.254.169.254")
    assert may_speak(resources, DRIVER, node, 80) == (component == "identity-gke"), "on EKS it gives the node's own"


def test_the_documented_flows_name_policies_that_exist() -> None:
    table = (MANIFESTS.parent / "docs" / "operating" / "network.md").read_text()
    rules = {
        cell.strip("` ")
        for line in table.splitlines()
        if line.count("|") == 4
        for cell in line.split("|")[3].split(",")
    }
    policies = named(built("base"), "NetworkPolicy").keys() - {"default-deny"}
    assert policies == rules - {"rule", "---", "a job's own"}


def test_jobs_cannot_use_the_servers_secrets(overlay: list[dict[str, Any]]) -> None:
    policy = named(overlay, "ValidatingAdmissionPolicy")["understudy-jobs"]["spec"]
    forbidden = {name["name"]: yaml.safe_load(name["expression"]) for name in policy["variables"][:2]}
    read = {source["secretRef"]["name"] for source in server(overlay)["envFrom"]}
    claims = named(overlay, "PersistentVolumeClaim").keys() - {settings(overlay)["claim"]}
    assert read <= set(forbidden["secrets"])
    assert claims <= set(forbidden["claims"])
    binding = named(overlay, "ValidatingAdmissionPolicyBinding")["understudy-jobs"]["spec"]
    assert "matchResources" not in binding, "for every namespace where the pipeline's account has its rights"
    assert "paramKind" not in policy, "an API server no longer reads it for a policy that was removed and made again"
    assert "'understudy-pipeline'" in policy["matchConditions"][0]["expression"]
    assert "understudy-pipeline" in named(overlay, "RoleBinding")


def dev_with(component: str, tmp_path: Path) -> list[dict[str, Any]]:
    """The overlay dev with one component more."""
    shutil.copytree(MANIFESTS, tmp_path / "manifests")
    return with_component(component, tmp_path / "manifests")


def with_component(component: str, manifests: Path, overlay: str = "dev") -> list[dict[str, Any]]:
    kustomization = manifests / "overlays" / overlay / "kustomization.yaml"
    last = "  - ../../components/settings"
    text = kustomization.read_text().replace(last, f"  - ../../components/{component}\n{last}")
    kustomization.write_text(text)
    return built(str(kustomization.parent))


def test_the_pods_of_train_jobs_are_fit_for_restricted(tmp_path: Path) -> None:
    resources = dev_with("trainer", tmp_path)
    runtime = named(resources, "TrainingRuntime")[trainjob.RUNTIME]
    assert runtime["metadata"]["namespace"] in named(resources, "Namespace")
    [job] = runtime["spec"]["template"]["spec"]["replicatedJobs"]
    pod = job["template"]["spec"]["template"]["spec"]
    assert pod["securityContext"] == pod_security.SECURITY
    assert pod["automountServiceAccountToken"] is False
    [ranks] = pod["containers"]
    ours = pod_security.container("x", parsed(settings(resources), "cluster.yaml"), [], {})
    assert ranks["securityContext"] == ours["securityContext"]


@pytest.mark.parametrize(("overlay", "count"), [("dev", 3), ("production", 9)])
def test_on_openshift_the_namespace_gives_users_and_groups(tmp_path: Path, overlay: str, count: int) -> None:
    shutil.copytree(MANIFESTS, tmp_path / "manifests")
    resources = with_component("openshift", tmp_path / "manifests", overlay)
    resolver = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "openshift-dns"}}}
    (rule,) = [rule for rule in named(resources, "NetworkPolicy")["names"]["spec"]["egress"] if resolver in rule["to"]]
    assert {(port["protocol"], port["port"]) for port in rule["ports"]} == {("UDP", 5353), ("TCP", 5353)}
    templates = pods(resources)
    assert len(templates) == count
    for pod in templates:
        contexts = [
            pod["spec"]["securityContext"],
            *(container["securityContext"] for container in pod["spec"]["containers"]),
        ]
        assert not {"runAsUser", "runAsGroup", "fsGroup", "supplementalGroups"} & {
            key for context in contexts for key in context
        }


def test_the_server_answers_to_the_name_that_people_ask_for(tmp_path: Path) -> None:
    shutil.copytree(MANIFESTS, tmp_path / "manifests")
    settings_file = tmp_path / "manifests" / "settings" / "dev" / "settings.yaml"
    settings_file.write_text(settings_file.read_text().replace("# mlflow-host: mlflow", "mlflow-host: pages"))
    resources = with_component("mlflow-ingress", tmp_path / "manifests")
    spec = named(resources, "Ingress")["mlflow"]["spec"]
    (host,) = [rule["host"] for rule in spec["rules"]]
    assert spec["tls"][0]["hosts"] == [host] == ["pages.example.com"]
    (container,) = named(resources, "Deployment")["mlflow"]["spec"]["template"]["spec"]["containers"]
    (hosts,) = [variable["value"] for variable in container["env"] if variable["name"] == "MLFLOW_SERVER_ALLOWED_HOSTS"]
    assert hosts.split(",")[-1] == host
    assert "mlflow:5000" in hosts.split(",")


def test_no_job_of_a_gitops_engine_expires(overlay: list[dict[str, Any]]) -> None:
    assert not [name for name, job in named(overlay, "Job").items() if "ttlSecondsAfterFinished" in job["spec"]]


@pytest.mark.parametrize("recipe", sorted((MANIFESTS.parent / "recipes").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_pipelines_are_those_of_the_recipes(recipe: Path, tmp_path: Path) -> None:
    from understudy.pipelines.compiled import write
    from understudy.recipe.file import load

    compiled = write(load(recipe), "registry.example.com/ml/understudy:0.1.0", tmp_path)[1]
    committed = MANIFESTS / "pipelines" / recipe.name
    assert compiled.read_bytes() == committed.read_bytes(), "make manifests writes them anew"
    assert recipe.name in yaml.safe_load((MANIFESTS / "pipelines/kustomization.yaml").read_text())["resources"]


def test_users_have_every_right_that_doctor_checks() -> None:
    from understudy.cli.doctor_cluster import RIGHTS

    documents = yaml.safe_load_all((MANIFESTS / "base/rights.yaml").read_text())
    (role,) = [d for d in documents if d["kind"] == "Role" and d["metadata"]["name"] == "understudy-user"]
    granted = {
        (verb, group, resource)
        for rule in role["rules"]
        for verb in rule["verbs"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
    }
    assert set(RIGHTS) <= granted
    assert not {resource for _, _, resource in granted} & {"secrets", "pods/exec", "roles", "rolebindings"}


def test_defaults_of_the_api_server_in_lists_are_written_out() -> None:
    secrets = named(built("overlays/production"), "ExternalSecret").values()
    extracts = [source["extract"] for secret in secrets for source in secret["spec"]["dataFrom"]]
    defaults = {"conversionStrategy": "Default", "decodingStrategy": "None", "metadataPolicy": "None"}
    assert [{**defaults, "key": source["key"]} for source in extracts] == extracts
    assert len(extracts) == 2


@pytest.mark.parametrize("kind", ["PersistentVolumeClaim", "Namespace"])
def test_no_engine_removes_volumes_and_namespaces(overlay: list[dict[str, Any]], kind: str) -> None:
    resources = named(overlay, kind)
    assert resources
    for resource in resources.values():
        notes = resource["metadata"]["annotations"]
        assert notes["argocd.argoproj.io/sync-options"] == "Prune=false,Delete=false"
        assert notes["kustomize.toolkit.fluxcd.io/prune"] == "disabled"


# Promotions


def test_the_account_that_promotes_has_a_namespace_of_its_own_and_no_right_there() -> None:
    resources = built("promotions")
    assert {resource["metadata"].get("namespace") for resource in resources if resource["kind"] != "Namespace"} == {
        "understudy-promotions"
    }
    assert not {"Role", "RoleBinding", "ClusterRoleBinding", "Secret"} & {m["kind"] for m in resources}
    [namespace] = named(resources, "Namespace").values()
    assert namespace["metadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    allowed = named(built("overlays/production"), "NetworkPolicy")["mlflow"]["spec"]["ingress"][0]["from"]
    labels = [peer.get("namespaceSelector", {}).get("matchLabels", {}) for peer in allowed]
    assert any(label and label.items() <= namespace["metadata"]["labels"].items() for label in labels)
    [pod] = pods(resources)
    assert pod["spec"]["automountServiceAccountToken"] is False
    accounts = [named(built(f"overlays/{name}"), "ServiceAccount").keys() for name in OVERLAYS]
    assert not any("understudy-promoter" in names for names in accounts)


def test_the_folder_has_promotions_and_their_policy() -> None:
    assert promotion_files.promotions(MANIFESTS / "promotions") == {}
    assert promotion_files.policy(MANIFESTS / "promotions").reviewers == {}


def test_other_promotions_are_another_job(tmp_path: Path) -> None:
    job = named(built("promotions"), "Job")["understudy-promote"]
    [volume] = [
        candidate for candidate in job["spec"]["template"]["spec"]["volumes"] if candidate["name"] == "promotions"
    ]
    assert volume["configMap"]["name"].startswith("understudy-promotions-"), "with the hash of its content"
    notes = job["metadata"]["annotations"]
    assert notes["argocd.argoproj.io/sync-options"] == "Force=true,Replace=true"
    assert notes["kustomize.toolkit.fluxcd.io/force"] == "enabled"
    copy = shutil.copytree(MANIFESTS / "promotions", tmp_path / "promotions")
    [(kustomization, text)] = promotion_files.listing(copy, "digits.yaml").items()
    kustomization.write_text(text)
    (copy / "digits.yaml").write_text("model: digits\n")
    done = subprocess.run([str(KUBECTL), "kustomize", str(copy)], capture_output=True, text=True, check=True)
    resources = list(yaml.safe_load_all(done.stdout))
    [files] = named(resources, "ConfigMap").values()
    assert files["data"].keys() == {"policy.yaml", "digits.yaml"}
    assert promotion_files.policy(copy).approvals == 2
    [later_volume] = [
        v
        for v in named(resources, "Job")["understudy-promote"]["spec"]["template"]["spec"]["volumes"]
        if "configMap" in v
    ]
    assert later_volume["configMap"]["name"] == files["metadata"]["name"] != volume["configMap"]["name"]


# Metrics

PROMETHEUS = Peer({"app.kubernetes.io/name": "prometheus"}, {"kubernetes.io/metadata.name": "monitoring"})
BESIDE_IT = Peer({"app.kubernetes.io/name": "grafana"}, {"kubernetes.io/metadata.name": "monitoring"})


@pytest.mark.parametrize(
    ("source", "target", "allowed"),
    [
        (PROMETHEUS, DRIVER, True),
        (PROMETHEUS, MLFLOW, True),
        (PROMETHEUS, RANK, False),
        (PROMETHEUS, CLEANUP, False),
        (BESIDE_IT, MLFLOW, False),
        (USERS, MLFLOW, False),
        (DRIVER, MLFLOW, False),
        (RANK, DRIVER, False),
        (OTHER, DRIVER, False),
    ],
)
def test_metrics_are_for_prometheus_alone(source: Peer, target: Peer, allowed: bool) -> None:
    policies = list(named(built("overlays/production"), "NetworkPolicy").values())
    assert may(policies, "ingress", target, source, ("TCP", 9095)) is allowed


def test_prometheus_scrapes_the_ports_that_listen() -> None:
    resources = built("overlays/production")
    address = named(resources, "ConfigMap")["understudy-environment"]["data"]["UNDERSTUDY_METRICS"]
    assert {"name": "UNDERSTUDY_METRICS", "value": address} in server(resources)["env"]
    ports = {port["name"]: port["containerPort"] for port in server(resources)["ports"]}
    assert address == f"0.0.0.0:{ports['metrics']}"
    assert "UNDERSTUDY_METRICS" not in str(built("overlays/dev")), "nothing listens where nobody scrapes"
    monitors = named(resources, "PodMonitor")
    assert monitors["understudy-mlflow"]["spec"]["podMetricsEndpoints"][0]["port"] == "metrics"
    [launchers] = monitors["understudy-launchers"]["spec"]["podMetricsEndpoints"]
    assert f"$1:{ports['metrics']}" in [rule.get("replacement") for rule in launchers["relabelings"]]
    assert named(resources, "ConfigMap")["understudy-dashboard"]["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert len(named(resources, "Service")["mlflow"]["spec"]["ports"]) == 1


def empty_lists(value: Any, path: str = "") -> list[str]:
    if isinstance(value, dict):
        return [empty for key, item in value.items() for empty in empty_lists(item, f"{path}.{key}")]
    if isinstance(value, list):
        return [empty for item in value for empty in empty_lists(item, f"{path}[]")] if value else [path]
    return []


def test_nothing_is_written_that_the_api_server_drops(overlay: list[dict[str, Any]]) -> None:
    """An engine would see a difference from the cluster for ever, and apply it again and again."""
    assert [(resource["metadata"]["name"], path) for resource in overlay for path in empty_lists(resource)] == []
