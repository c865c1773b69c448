"""From a job submitted to its first training step, beside a bare PyTorchJob of the same pods; and what watching costs.

python -m benchmarks.cluster_job NAMESPACE [--rounds 5] [--processes 1]

Needs KUBECONFIG, and in the namespace what manifests/overlays bring. The bare job is the watched one, applied by
kubectl for a copy of its folder, with nobody who watches it. Both train digits on two nodes of the pool gpu.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import datetime
from itertools import pairwise
from typing import Any

RECIPE = "recipes/digits.yaml"
PHASES = ("importing", "meeting the others", "loading", "training")
TICKS = 100  # of /proc/PID/stat in a second
LOOKER = "benchmark-looker"
STAMP = re.compile(r"rank \d+\] (\d{10}\.\d+) ")
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

    def sh(self, pod: str, command: str) -> str:
        """What a command says in a pod."""
        return self("exec", pod, "--", "sh", "-c", command)


def wait(found: Callable[[], Any]) -> Any:
    """The first answer that is one."""
    end = time.time() + 300
    while time.time() < end:
        if answer := found():
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
    sets += ["resources.teacher.device=cpu"]
    command = [sys.executable, "-m", "understudy", "run", RECIPE, "--on", "cluster", "-n", kubectl.name]
    before = {job["metadata"]["name"] for job in kubectl.items("pytorchjobs", "understudy.step=teacher")}
    following = subprocess.Popen(
        [*command, *(part for one in sets for part in ("--set", one))],
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


def said(kubectl: Namespace, pod: str) -> list[tuple[float, str]]:
    """A pod's lines, and when it said them (Unix seconds)."""
    pairs = (line.partition(" ") for line in kubectl("logs", pod, "--timestamps").splitlines())
    return [(datetime.fromisoformat(stamp[:26].rstrip("Z") + "+00:00").timestamp(), text) for stamp, _, text in pairs]


def command_of(job: dict[str, Any]) -> list[str]:
    """What a PyTorchJob's pods run; the last word is the path of the specification."""
    (container,) = job["spec"]["pytorchReplicaSpecs"]["Worker"]["template"]["spec"]["containers"]
    command: list[str] = container["command"]
    return command


def parts(kubectl: Namespace, job: dict[str, Any], spec: dict[str, Any], began: float) -> dict[str, float]:
    """Seconds from `began` to the first step, in parts; what Kubernetes knows is in whole seconds."""
    points = wait(lambda: kubectl.sh(LOOKER, f"head -n 1 {spec['folder']}/metrics.jsonl 2>/dev/null || true"))
    step = float(json.loads(points)["time"])
    pods = kubectl.items("pods", f"training.kubeflow.org/job-name={job['metadata']['name']}")
    starts = [pod["status"]["containerStatuses"][0]["state"]["running"]["startedAt"] for pod in pods]
    started = max(datetime.fromisoformat(start.replace("Z", "+00:00")).timestamp() for start in starts)
    lines = kubectl.sh(LOOKER, f"cat {spec['logs']}/teacher-rank-0.log")
    at = [float(re.findall(rf"(\d+\.\d+) {phase}", lines)[-1]) for phase in PHASES]
    names = ("schedule, container", "agent's imports", "ranks' imports", "meeting", "loading", "first step")
    ends = [began, started, *at, step]
    return dict(zip(names, (two - one for one, two in pairwise(ends)), strict=True)) | {"whole": step - began}


def watching(kubectl: Namespace, driver: str) -> dict[str, float]:
    """What the process that watches takes: memory in MiB, CPU in per cent of a core, and how late log lines are."""
    pid = kubectl.sh(driver, "pgrep -nf 'kfp.dsl.[e]xecutor_main'").strip()

    def cpu() -> float:
        fields = kubectl.sh(driver, f"cat /proc/{pid}/stat").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS

    before, began = cpu(), time.time()
    time.sleep(WATCHED)
    share = 100 * (cpu() - before) / (time.time() - began)
    status = kubectl.sh(driver, f"cat /proc/{pid}/status")
    late = [at - float(found[1]) for at, line in said(kubectl, driver) if (found := STAMP.search(line))]
    return {"memory": int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) / 1024, "cpu": share, "late": max(late)}


def bare(job: dict[str, Any], spec: dict[str, Any], folder: str) -> dict[str, Any]:
    """The same object for another folder, and nobody's."""
    text = json.dumps({key: job[key] for key in ("apiVersion", "kind", "spec")}).replace(spec["folder"], folder)
    made: dict[str, Any] = json.loads(text)
    made["metadata"] = {"name": f"bare-{int(time.time())}", "labels": {"understudy.step": "bare"}}
    made["spec"]["elasticPolicy"]["rdzvId"] = made["metadata"]["name"]
    return made


def one_round(kubectl: Namespace, seed: int, processes: int) -> tuple[dict[str, float], dict[str, float], Any]:
    """The parts of a watched job's start, those of a bare one's, and what watching cost."""
    driver, job = submit(kubectl, seed, processes)
    spec = json.loads(kubectl.sh(LOOKER, f"cat {command_of(job)[-1]}"))
    folder = f"/var/lib/understudy/home/bare-{seed}-{int(time.time())}"
    kubectl.sh(LOOKER, f"mkdir -p {folder}/logs")
    copy = {**spec, "folder": folder, "logs": f"{folder}/logs"}
    kubectl("exec", "-i", LOOKER, "--", "sh", "-c", f"cat > {folder}/job.json", text=json.dumps(copy))
    began = next(at for at, line in said(kubectl, driver) if "submitted as" in line)
    watched = parts(kubectl, job, spec, began)
    cost = watching(kubectl, driver)
    kubectl("delete", "job", job["metadata"]["labels"]["understudy.run"], "--cascade=foreground")
    alone = bare(job, spec, folder)
    began = time.time()
    kubectl("apply", "-f", "-", text=json.dumps(alone))
    found = parts(kubectl, alone, copy, began)
    kubectl("delete", "pytorchjob", alone["metadata"]["name"], "--cascade=foreground")
    kubectl.sh(LOOKER, f"rm -rf {folder}")
    return watched, found, cost


def main() -> None:
    """Print the parts, the ratio, and the launcher's cost: minimum and median over the rounds."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("namespace")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--processes", type=int, default=1)
    given = parser.parse_args()
    kubectl = Namespace(given.namespace)
    looker(kubectl)
    rounds = [one_round(kubectl, int(time.time()) + seed, given.processes) for seed in range(given.rounds)]
    kubectl("delete", "pod", LOOKER)
    print(f"{'seconds':<22}{'watched min':>12}{'median':>8}{'bare min':>12}{'median':>8}")
    for name in rounds[0][0]:
        columns = [[one[which][name] for one in rounds] for which in (0, 1)]
        print(f"{name:<22}" + "".join(f"{min(c):>12.2f}{statistics.median(c):>8.2f}" for c in columns))
    ratios = [watched["whole"] / alone["whole"] for watched, alone, _ in rounds]
    print(f"watched over bare: minimum {min(ratios):.3f}, median {statistics.median(ratios):.3f}")
    for key, unit in (("memory", "MiB at most"), ("cpu", "% of a core"), ("late", "s, the latest log line")):
        values = [cost[key] for _, _, cost in rounds]
        print(f"launcher, {unit}: minimum {min(values):.2f}, median {statistics.median(values):.2f}")


if __name__ == "__main__":
    main()
