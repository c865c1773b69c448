"""The merge of a pool's patch into a job's pod: lists are merged by name, and no entry is lost."""

from understudy.kube.objects import Container, PodTemplate, ResourceRequirements
from understudy.kube.pod_patch import ContainerPatch, PodPatch, ResourcesPatch


def patched(template: PodTemplate, patch: PodPatch) -> PodTemplate:
    """Merge a pool's patch, which kube/pod_patch.py has checked, into a pod template.

    Args:
        template: the pod of a job; its one container is the ranks'. It is not modified.
        patch: the pool's patch.
    """
    added, spec = patch.get("spec", {}), template["spec"].copy()
    metadata, named = template["metadata"].copy(), patch.get("metadata", {})
    metadata["labels"] = named.get("labels", {}) | metadata["labels"]
    if "annotations" in named:
        metadata["annotations"] = named["annotations"]
    if "runtimeClassName" in added:
        spec["runtimeClassName"] = added["runtimeClassName"]
    if "schedulerName" in added:
        spec["schedulerName"] = added["schedulerName"]
    if "imagePullSecrets" in added:
        spec["imagePullSecrets"] = added["imagePullSecrets"]
    if "resourceClaims" in added:
        spec["resourceClaims"] = added["resourceClaims"]
    if "topologySpreadConstraints" in added:
        spec["topologySpreadConstraints"] = added["topologySpreadConstraints"]
    spec["volumes"] = [*spec["volumes"], *added.get("volumes", ())]
    for changes in added.get("containers", ()):
        spec["containers"] = [_container(spec["containers"][0], changes)]
    return {"metadata": metadata, "spec": spec}


def _container(original: Container, patch: ContainerPatch) -> Container:
    merged = original.copy()
    replacements = {variable["name"]: variable for variable in patch.get("env", ())}
    merged["env"] = [*(entry for entry in original["env"] if entry["name"] not in replacements), *replacements.values()]
    merged["volumeMounts"] = [*original["volumeMounts"], *patch.get("volumeMounts", ())]
    merged["resources"] = _resources(original["resources"], patch.get("resources", {}))
    return merged


def _resources(original: ResourceRequirements, patch: ResourcesPatch) -> ResourceRequirements:
    """Merge resources. A limit is also the default request: extended resources and huge pages need them equal."""
    limits = patch.get("limits", {})
    merged: ResourceRequirements = {
        "requests": original["requests"] | limits | patch.get("requests", {}),
        "limits": original["limits"] | limits,
    }
    if "claims" in patch:
        merged["claims"] = patch["claims"]
    return merged
