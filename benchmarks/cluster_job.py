"""From a job submitted to its first training step, beside a bare PyTorchJob of the same pods; and what watching costs.

python -m benchmarks.cluster_job NAMESPACE [--rounds 4] [--processes 1]

Needs KUBECONFIG, and the resources of manifests/overlays in the namespace. The bare job is the watched one, applied by
kubectl for a copy of its folder, with nobody who watches it. Both train digits on two nodes of the pool gpu. They take
turns at being first, after a job that does not count, since the first one finds nothing in the nodes' memory.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate, pairwise
from typing import Any

from understudy.kube.job_state import true_conditions
from understudy.kube.quantities import seconds

RECIPE = "recipes/digits.yaml"
PHASES = ("importing", "joining the process group", "loading", "training")
TICKS = 100  # of /proc/PID/stat in a second
LOOKER = "benchmark-looker"
QUEUE = "kueue.x-k8s.io/queue-name"
STAMP = re.compile(r"rank \d+\] (\S+Z) INFO understudy")
HOME = "/var/lib/understudy/home"
PAUSE = 5.0
WATCHED = 60.0  # seconds over which the launcher is measured


class Namespace:
    """A namespace of the cluster, by kubectl."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *arguments: str, text: str | None = None) -> str:
        """What kubectl says."""
        command = ["kubectl", "-n", self.name, *arguments]
        return subprocess.run(command, input=text, capture_output=True, text=True, check=True).stdout

    def items(self, kind: str, selector: str) -> list[dict[str, Any]]:
        """Objects with these labels."""
        return list(json.loads(self("get", kind, "-l", selector, "-o", "json"))["items"])

    def owned(self, kind: str, owner: str) -> list[dict[str, Any]]:
        """Objects that another one owns."""
        objects = json.loads(self("get", kind, "-o", "json"))["items"]
        return [
            item
            for item in objects
            if owner in (owner_reference["name"] for owner_reference in item["metadata"].get("ownerReferences", []))
        ]

    def sh(self, pod: str, command: str) -> str:
        """A command's output in a pod."""
        return self("exec", pod, "--", "sh", "-c", command)


@dataclass(frozen=True)
class Watched:
    """A run's job: the object, its specification, seconds of its start in parts, and what watching it cost."""

    job: dict[str, Any]
    spec: dict[str, Any]
    parts: dict[str, float]
    cost: dict[str, float]


def wait(look: Callable[[], Any]) -> Any:
    """The first answer that is one."""
    end = time.time() + 300
    while time.time() < end:
        if answer := look():
            return answer
        time.sleep(0.2)
    raise TimeoutError("not within 300 s")


def looker(kubectl: Namespace) -> None:
    """A pod that sees the volume and sleeps."""
    security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    settings = json.loads(kubectl("get", "configmap", "understudy", "-o", "json"))["data"]["cluster.yaml"]
    image, claim = (re.findall(rf"^{key}: (\S+)", settings, re.MULTILINE)[0] for key in ("image", "claim"))
    container = {"name": "looker", "image": image, "command": ["sleep", "infinity"], "securityContext": security}
    container["volumeMounts"] = [{"name": "store", "mountPath": "/var/lib/understudy"}]
    spec = {
        "containers": [container],
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "terminationGracePeriodSeconds": 0,
        "volumes": [{"name": "store", "persistentVolumeClaim": {"claimName": claim}}],
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": LOOKER}, "spec": spec}
    kubectl("apply", "-f", "-", text=json.dumps(pod))
    kubectl("wait", "--for=condition=ready", f"pod/{LOOKER}", "--timeout=120s")


def submit(kubectl: Namespace, seed: int, processes: int) -> tuple[str, dict[str, Any]]:
    """Start a run whose teacher trains for long: the driver's pod, and the teacher's PyTorchJob."""
    sets = [f"seed={seed}", "teacher.train.strategy=ddp", "teacher.train.epochs=100000", "resources.teacher.pool=gpu"]
    sets += ["teacher.train.steps=null", "resources.teacher.nodes=2", f"resources.teacher.processes={processes}"]
    sets += ["resources.teacher.device=cpu", "student.control=false"]
    command = [sys.executable, "-m", "understudy", "run", RECIPE, "--on", "cluster", "-n", kubectl.name]
    before = {job["metadata"]["name"] for job in kubectl.items("pytorchjobs", "understudy.step=teacher")}
    following = subprocess.Popen(
        [*command, *(part for setting in sets for part in ("--set", setting))],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )

    def new() -> list[dict[str, Any]]:
        jobs = kubectl.items("pytorchjobs", "understudy.step=teacher")
        return [job for job in jobs if job["metadata"]["name"] not in before]

    (job,) = wait(new)
    following.terminate()  # the run goes on without it
    following.wait()
    (pod,) = kubectl.items("pods", f"batch.kubernetes.io/job-name={job['metadata']['labels']['understudy.run']}")
    return pod["metadata"]["name"], job


def log_lines(kubectl: Namespace, pod: str) -> list[tuple[float, str]]:
    """A pod's lines, and when it said them (Unix seconds)."""
    pairs = (line.partition(" ") for line in kubectl("logs", pod, "--timestamps").splitlines())
    return [(datetime.fromisoformat(stamp[:26].rstrip("Z") + "+00:00").timestamp(), text) for stamp, _, text in pairs]


def command_of(job: dict[str, Any]) -> list[str]:
    """The command of a PyTorchJob's pods; the last word is the path of the specification."""
    (container,) = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    command: list[str] = container["command"]
    return command


def became(condition: str, objects: list[dict[str, Any]]) -> float:
    """When a condition became true of the last of these objects; 0 when there are none."""
    conditions = [true_conditions(kubernetes_object) for kubernetes_object in objects]
    return max(
        (seconds(by_type[condition]["lastTransitionTime"]) for by_type in conditions if condition in by_type),
        default=0.0,
    )


def parts(kubectl: Namespace, job: dict[str, Any], spec: dict[str, Any], began: float) -> dict[str, float]:
    """Seconds from `began` to the first step, in parts. Nothing is compiled: that would be in the first step.

    Kubernetes knows the ends of the first three parts in whole seconds; they say where seconds went, no more.
    """
    points = wait(lambda: kubectl.sh(LOOKER, f"head -n 1 {spec['folder']}/metrics.jsonl 2>/dev/null || true"))
    step = float(json.loads(points)["time"])
    name = job["metadata"]["name"]
    pods = kubectl.items("pods", f"training.kubeflow.org/job-name={name}")
    admitted = became("Admitted", kubectl.owned("workloads", name)) if QUEUE in job["metadata"]["labels"] else 0.0
    started = max(seconds(pod["status"]["containerStatuses"][0]["state"]["running"]["startedAt"]) for pod in pods)
    lines = kubectl.sh(LOOKER, f"cat {spec['logs']}/teacher/rank-0.log")
    at = [float(re.findall(rf"(\d+\.\d+) {phase}", lines)[-1]) for phase in PHASES]
    names = ("queue", "schedule", "container", "agent's imports", "ranks' imports", "meeting", "loading", "first step")
    ends = [*accumulate([began, admitted, became("PodScheduled", pods), started], max), *at, step]
    return dict(zip(names, (end - begin for begin, end in pairwise(ends)), strict=True)) | {"whole": step - began}


def watching(kubectl: Namespace, driver: str) -> dict[str, float]:
    """The cost of the watching process: memory in MiB, CPU in per cent of a core, and how late log lines are."""
    pid = kubectl.sh(driver, "pgrep -nf 'kfp.dsl.[e]xecutor_main'").strip()

    def cpu() -> float:
        fields = kubectl.sh(driver, f"cat /proc/{pid}/stat").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    before, began = cpu(), time.time()
    time.sleep(WATCHED)
    share = 100 * (cpu() - before) / (time.time() - began)
    status = kubectl.sh(driver, f"cat /proc/{pid}/status")
    delays = [
        at - datetime.fromisoformat(stamp[1]).timestamp()
        for at, line in log_lines(kubectl, driver)
        if (stamp := STAMP.search(line))
    ]
    return {"memory": int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) / 1024, "cpu": share, "late": max(delays)}


def bare(job: dict[str, Any], spec: dict[str, Any], folder: str) -> dict[str, Any]:
    """The same object for another folder, and nobody's."""
    text = json.dumps({key: job[key] for key in ("apiVersion", "kind", "spec")}).replace(spec["folder"], folder)
    manifest: dict[str, Any] = json.loads(text)
    queue = {key: name for key, name in job["metadata"]["labels"].items() if key == QUEUE}
    manifest["metadata"] = {"name": f"bare-{int(time.time())}", "labels": {"understudy.step": "bare", **queue}}
    manifest["spec"]["elasticPolicy"]["rdzvId"] = manifest["metadata"]["name"]
    return manifest


def wait_for_deletion(kubectl: Namespace, job: dict[str, Any]) -> None:
    """Wait until a job's pods are gone, which take a checkpoint first, so that the next start is undisturbed."""
    selector = f"training.kubeflow.org/job-name={job['metadata']['name']}"
    wait(lambda: not kubectl.items("pods", selector))
    time.sleep(PAUSE)


def watched_start(kubectl: Namespace, seed: int, processes: int) -> Watched:
    """A run's teacher, from its submission to its first step and a minute further."""
    driver, job = submit(kubectl, seed, processes)
    spec = json.loads(kubectl.sh(LOOKER, f"cat {command_of(job)[-1]}"))
    began = wait(lambda: next((at for at, line in log_lines(kubectl, driver) if "submitted as" in line), None))
    durations = parts(kubectl, job, spec, began)
    cost = watching(kubectl, driver)
    kubectl("delete", "job", job["metadata"]["labels"]["understudy.run"], "--cascade=foreground")
    wait_for_deletion(kubectl, job)
    return Watched(job, spec, durations, cost)


def bare_start(kubectl: Namespace, job: dict[str, Any], spec: dict[str, Any]) -> dict[str, float]:
    """The parts of the start of the same job, when kubectl applies it."""
    folder = f"{HOME}/bare-{int(time.time())}"
    kubectl.sh(LOOKER, f"mkdir -p {folder}/logs")
    copy = {**spec, "folder": folder, "logs": f"{folder}/logs"}
    kubectl("exec", "-i", LOOKER, "--", "sh", "-c", f"cat > {folder}/job.json", text=json.dumps(copy))
    alone = bare(job, spec, folder)
    kubectl("apply", "-f", "-", text=json.dumps(alone))
    began = time.time()  # a launcher too says that it has submitted a job when that was accepted
    durations = parts(kubectl, alone, copy, began)
    kubectl("delete", "pytorchjob", alone["metadata"]["name"], "--cascade=foreground")
    wait_for_deletion(kubectl, alone)
    kubectl.sh(LOOKER, f"rm -rf {folder}")
    return durations


def rounds(kubectl: Namespace, number: int, processes: int) -> list[tuple[Watched, dict[str, float]]]:
    """Pairs of a watched start and a bare one, every second time the bare one first."""
    seed = int(time.time())
    first = watched_start(kubectl, seed, processes)
    pairs = []
    for round_number in range(1, number + 1):
        alone = bare_start(kubectl, first.job, first.spec) if round_number % 2 else None
        watched = watched_start(kubectl, seed + round_number, processes)
        pairs.append((watched, alone or bare_start(kubectl, first.job, first.spec)))
        print(
            f"round {round_number}: {pairs[-1][0].parts['whole']:.1f} s watched, {pairs[-1][1]['whole']:.1f} s bare",
            flush=True,
        )
    return pairs


def main() -> None:
    """Print the parts, the ratio, and the launcher's cost: minimum and median over the rounds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("namespace")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--processes", type=int, default=1)
    options = parser.parse_args()
    kubectl = Namespace(options.namespace)
    looker(kubectl)
    pairs = rounds(kubectl, options.rounds, options.processes)
    kubectl("delete", "pod", LOOKER)
    print(f"{'seconds':<22}{'watched min':>12}{'median':>8}{'bare min':>12}{'median':>8}")
    for name in pairs[0][1]:
        columns = [[watched.parts[name] for watched, _ in pairs], [alone[name] for _, alone in pairs]]
        print(f"{name:<22}" + "".join(f"{min(c):>12.2f}{statistics.median(c):>8.2f}" for c in columns))
    ratios = [watched.parts["whole"] / alone["whole"] for watched, alone in pairs]
    print(f"watched over bare: minimum {min(ratios):.3f}, median {statistics.median(ratios):.3f}")
    for key, unit in (("memory", "MiB at most"), ("cpu", "% of a core"), ("late", "s, the latest log line")):
        values = [watched.cost[key] for watched, _ in pairs]
        print(f"launcher, {unit}: minimum {min(values):.2f}, median {statistics.median(values):.2f}")


if __name__ == "__main__":
    main()
