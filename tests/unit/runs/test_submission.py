from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests import ROOT
from understudy.errors import InputError, UnderstudyError
from understudy.kube.api import Kube, Refused, Unavailable
from understudy.kube.identity import FETCHES
from understudy.kube.kind import JobKind
from understudy.kube.settings import CERTIFICATES_FOLDER, ENVIRONMENT, FETCHING, REQUIRED, Cluster, Pool
from understudy.recipe import JobResources, PretrainedModel, Recipe, Resources
from understudy.recipe.file import load
from understudy.registry import pod_token
from understudy.runs.submission import check, driver_pool, render, settings, submit


def test_a_pod_that_has_an_answer_is_not_tried_again_and_one_that_had_to_go_is() -> None:
    job = render("digits-1", Cluster(image="i:1", claim="c"))
    fail, ignore = job["spec"]["podFailurePolicy"]["rules"]
    assert (fail["action"], fail["onExitCodes"]["values"]) == ("FailJob", [1, 2, 3])
    assert (ignore["action"], ignore["onPodConditions"]) == ("Ignore", [{"type": "DisruptionTarget"}])
    assert job["spec"]["template"]["spec"]["restartPolicy"] == "Never"


def test_the_driver_has_a_short_token_for_mlflow_where_the_client_reads_it() -> None:
    pod = render("digits-1", Cluster(image="i:1", claim="c"))["spec"]["template"]["spec"]
    assert {"name": "mlflow", **pod_token.VOLUME} in pod["volumes"]
    [container] = pod["containers"]
    assert {"name": "mlflow", "mountPath": pod_token.FOLDER} in container["volumeMounts"]


def test_the_driver_profiles_where_that_is_requested() -> None:
    for profile in (False, True):
        pod = render("digits-1", Cluster(image="i:1", claim="c"), profile=profile)["spec"]["template"]["spec"]
        assert ("--profile" in pod["containers"][0]["command"]) is profile


RECIPES = ROOT / "recipes"
POOL = Pool(node_selector={"gpu": "a100"}, tolerations=({"key": "nvidia.com/gpu", "operator": "Exists"},))


CLUSTER = Cluster(image="i:1", claim="c")


@pytest.fixture
def digits() -> Recipe:
    return load(RECIPES / "digits.yaml")


def own_pod(recipe: Recipe, cluster: Cluster) -> dict[str, Any]:
    template = render("digits-1", cluster, driver_pool(cluster, recipe))["spec"]["template"]
    return {**template["spec"], "labels": template["metadata"]["labels"]}


def test_a_run_s_own_pod_goes_anywhere_unless_one_node_has_the_store(digits: Recipe) -> None:
    resources = JobResources(teacher=Resources(pool="gpu"), distill=Resources(pool="gpu"))
    recipe, cluster = (
        digits.model_copy(update={"resources": resources}),
        Cluster(image="i", claim="c", pools={"gpu": POOL}),
    )
    free, bound = own_pod(recipe, cluster), own_pod(recipe, cluster.model_copy(update={"one_node": True}))
    assert (free["nodeSelector"], free["tolerations"], "affinity" in free) == ({}, [], False)
    assert (bound["nodeSelector"], bound["tolerations"]) == (POOL.node_selector, list(POOL.tolerations))
    [term] = bound["affinity"]["podAffinity"][REQUIRED]
    assert term["labelSelector"]["matchLabels"].items() <= bound["labels"].items(), "the first one may go anywhere"


def test_one_node_cannot_have_two_pools_but_a_teacher_that_is_only_fetched_needs_none(digits: Recipe) -> None:
    cluster = Cluster(image="i", claim="c", pools={"gpu": POOL}, one_node=True)
    resources = JobResources(distill=Resources(pool="gpu"))
    recipe = digits.model_copy(update={"resources": resources})
    with pytest.raises(
        InputError,
        match=r"^resources\.teacher\.pool, resources\.distill\.pool: differ",
    ):
        driver_pool(cluster, recipe)
    measured = recipe.model_copy(update={"resources": resources.model_copy(update={"evaluate": Resources(pool="cpu")})})
    with pytest.raises(InputError, match=r"resources\.distill\.pool, resources\.evaluate\.pool: differ"):
        driver_pool(cluster, measured)
    fetched = recipe.teacher.model_copy(update={"train": None})
    assert driver_pool(cluster, recipe.model_copy(update={"teacher": fetched})) == POOL
    assert driver_pool(cluster.model_copy(update={"one_node": False}), recipe) == Pool()


@pytest.mark.parametrize("fetches", [True, False])
def test_a_run_that_fetches_has_a_way_out_and_knows_the_proxy_and_no_other_has(fetches: bool) -> None:
    job = render("digits-1", CLUSTER, fetches=fetches)
    template = job["spec"]["template"]
    [driver] = template["spec"]["containers"]
    assert (FETCHES.items() <= template["metadata"]["labels"].items()) == fetches
    maps = [source["configMapRef"]["name"] for source in driver["envFrom"] if "configMapRef" in source]
    assert maps == [ENVIRONMENT, *[FETCHING] * fetches]
    assert (CERTIFICATES_FOLDER in {mount["mountPath"] for mount in driver["volumeMounts"]}) == fetches
    assert {m["name"] for m in driver["volumeMounts"]} == {v["name"] for v in template["spec"]["volumes"]}


def test_whether_a_run_fetches_follows_from_its_recipe(digits: Recipe) -> None:
    jobs: list[Any] = []

    class Keeps(Answers):
        def call(self, method: str, *arguments: Any, **options: object) -> Any:
            jobs.extend(arguments[1:] if method == "create job" else ())
            return super().call(method)

    hub = PretrainedModel(pretrained="org/vit")
    for model in (digits.teacher.model, hub):
        teacher = digits.teacher.model_copy(update={"model": model})
        submit(cast(Kube, Keeps()), CLUSTER, digits.model_copy(update={"teacher": teacher}))
    assert [FETCHES.items() <= job["metadata"]["labels"].items() for job in jobs] == [False, True]


class Answers:
    """A namespace that answers the n-th question with an error, and records the requests."""

    namespace = "here"
    batch = SimpleNamespace(create_namespaced_job="create job", delete_namespaced_job="delete job")
    core = SimpleNamespace(create_namespaced_config_map="create map", read_namespaced_config_map="read map")

    def __init__(self, **errors: BaseException) -> None:
        self._errors = {method.replace("_", " "): error for method, error in errors.items()}
        self.calls: list[str] = []

    def call(self, method: str, *arguments: object, **options: object) -> Any:
        self.calls.append(method)
        if method in self._errors:
            raise self._errors[method]
        return {"metadata": {"uid": "1"}, "data": {"cluster.yaml": "image: [i"}}


@pytest.mark.parametrize("error", [Refused("a quota is full"), Unavailable("nobody answers"), KeyboardInterrupt()])
def test_of_a_run_that_could_not_be_submitted_nothing_is_left(digits: Recipe, error: BaseException) -> None:
    kube = Answers(create_map=error)
    with pytest.raises(type(error)):
        submit(cast(Kube, kube), CLUSTER, digits)
    assert kube.calls == ["create job", "create map", "delete job"]
    unheard = Answers(create_job=error)  # it may have been made, and only the answer was lost
    with pytest.raises(type(error)):
        submit(cast(Kube, unheard), CLUSTER, digits)
    assert unheard.calls == ["create job", "delete job"]


def test_a_run_that_could_neither_be_submitted_nor_taken_back_is_named(digits: Recipe) -> None:
    kube = Answers(create_map=Refused("a quota is full"), delete_job=Unavailable("nobody answers"))
    message = r"a quota is full; .* \(nobody answers\): if `understudy jobs ls -n here` shows the run digits-\S+, "
    with pytest.raises(UnderstudyError, match=message):
        submit(cast(Kube, kube), CLUSTER, digits)


def test_an_elastic_job_is_refused_where_jobs_are_train_jobs(digits: Recipe) -> None:
    elastic = JobResources(distill=Resources(nodes=4, min_nodes=2))
    recipe = digits.model_copy(update={"resources": elastic})
    check(cast(Kube, Namespace()), CLUSTER, recipe)
    with pytest.raises(InputError, match=r"resources\.distill\.min_nodes: 2; a TrainJob has a fixed number of nodes"):
        check(cast(Kube, Namespace()), CLUSTER.model_copy(update={"launcher": "trainjob"}), recipe)


def test_settings_that_are_not_yaml_are_named() -> None:
    with pytest.raises(InputError, match=r"(?s)ConfigMap .* namespace here: cluster\.yaml: is not YAML: .*line 1"):
        settings(cast(Kube, Answers()))


class Namespace:
    """A namespace with a run's requirements, except for those that a test removes."""

    namespace = "here"
    kueue = "v1beta1"
    custom = SimpleNamespace(get_namespaced_custom_object="queue")
    core = SimpleNamespace(read_namespaced_persistent_volume_claim="claim")

    def __init__(self, *lacks: str) -> None:
        self._lacks = lacks

    def has(self, kind: JobKind) -> bool:
        return kind.plural not in self._lacks

    def training_runtime(self, name: str) -> Any:
        pod = {"terminationGracePeriodSeconds": 60, "containers": [{"name": "node"}]}
        jobs = [{"name": "node", "template": {"spec": {"template": {"spec": pod}}}}]
        return None if name in self._lacks else {"spec": {"template": {"spec": {"replicatedJobs": jobs}}}}

    def call(self, method: str, *arguments: object) -> Any:
        return None if method in self._lacks else {"spec": {"accessModes": ["ReadWriteMany"]}}


@pytest.mark.parametrize(
    ("launcher", "lacks", "message"),
    [
        ("pytorchjob", "pytorchjobs", "does not serve PyTorchJobs of kubeflow.org/v1: install the Kubeflow Training"),
        ("pytorchjob", "queue", r"resources\.teacher\.queue: namespace here has no LocalQueue team"),
        ("pytorchjob", "claim", "namespace here: there is no claim c for the store"),
        (
            "trainjob",
            "trainjobs",
            "TrainJobs of .*: install Kubeflow Trainer 2.1 .*, or set `launcher` in the",
        ),
        ("trainjob", "understudy", "namespace here: there is no TrainingRuntime understudy"),
    ],
)
def test_missing_parts_of_a_namespace_are_named_before_anything_is_submitted(
    digits: Recipe, launcher: str, lacks: str, message: str
) -> None:
    cluster = CLUSTER.model_copy(update={"queue": "team", "launcher": launcher})
    check(cast(Kube, Namespace()), cluster, digits)
    with pytest.raises(InputError, match=message):
        check(cast(Kube, Namespace(lacks)), cluster, digits)
