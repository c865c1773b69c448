"""The APIs and features of the operators around us by release, from their types and release notes."""

import re
from dataclasses import dataclass

Version = tuple[int, int]
KUEUE = "kueue.x-k8s.io"
SECRETS = "external-secrets.io"


@dataclass(frozen=True)
class Served:
    """A version of an operator's API, and the releases that serve it."""

    operator: str
    group: str
    version: str
    since: Version
    until: Version | None
    """The first release that does not serve it any more."""
    component: str
    """The folder in manifests/components that sets our objects to this version; empty if it is their default."""

    def is_in(self, release: Version) -> bool:
        """Whether a release serves it."""
        return self.since <= release and (self.until is None or release < self.until)


SERVED = (
    Served("Kueue", KUEUE, "v1beta2", (0, 15), None, "kueue-v1beta2"),
    Served("Kueue", KUEUE, "v1beta1", (0, 0), (0, 20), ""),
    Served("External Secrets", SECRETS, "v1", (0, 16), None, ""),
    Served("External Secrets", SECRETS, "v1beta1", (0, 0), (0, 17), "external-secret-v1beta1"),
)
"""The newest version of an API first."""
PYTORCHJOBS_OFF = (0, 19)
"""The first Kueue whose default settings do not manage PyTorchJobs."""
TRAINER_OF_KUEUE = (((0, 20), (2, 3)), ((0, 14), (2, 1)))
"""First Kueue releases that queue TrainJobs, each with the Trainer that it needs; the newest first."""
TRAINER = (2, 1)
"""The first Trainer whose TrainJobs have the fields that we set."""


def release(text: str) -> Version | None:
    """Major and minor of a tag or a chart's version, such as v0.12.3; None where there are none, as in a branch."""
    match = re.fullmatch(r"v?(\d+)\.(\d+)(\..*)?", text)
    return (int(match[1]), int(match[2])) if match else None


def shown(version: Version) -> str:
    """A release as people write it."""
    return ".".join(map(str, version))


def other_version(group: str, version: str, serves: frozenset[str]) -> str:
    """The fix where our objects are of a version that a cluster or release does not serve; empty where it does.

    Args:
        group: the operator's API group.
        version: of our objects.
        serves: the versions that are served.
    """
    if version in serves:
        return ""
    fitting = [api for api in SERVED if api.group == group and api.version in serves]
    if not fitting:
        supported = ", ".join(api.version for api in SERVED if api.group == group)
        return f"install a release that serves one of {supported}"
    best = fitting[0]
    if best.component:
        return f"add components/{best.component} to the overlay, behind the others"
    used_api = next(api for api in SERVED if api.group == group and api.version == version)
    return f"remove components/{used_api.component} from the overlay"


def queueing(kueue: Version, trainer: Version | None, launcher: str) -> str:
    """The fix where a release of Kueue does not queue the jobs of a launcher; empty where it does."""
    if launcher == "pytorchjob":
        if kueue < PYTORCHJOBS_OFF:
            return ""
        return (
            f"Kueue {shown(PYTORCHJOBS_OFF)} and later manages PyTorchJobs only if configured: list "
            "kubeflow.org/pytorchjob in integrations.frameworks of its ConfigMap kueue-manager-config"
        )
    needed = next((requirement for since, requirement in TRAINER_OF_KUEUE if kueue >= since), None)
    if needed is None:
        return f"Kueue queues TrainJobs since {shown(TRAINER_OF_KUEUE[-1][0])}: upgrade it, or leave out `queue`"
    if trainer is not None and trainer < needed:
        return f"Kueue {shown(kueue)} needs Kubeflow Trainer {shown(needed)} or later"
    return ""
