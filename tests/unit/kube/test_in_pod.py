from pathlib import Path

import pytest

from tests.unit.kube.api_server import ApiServer, write_certificate
from understudy.errors import UnderstudyError
from understudy.kube import in_pod

PATH = "/apis/authentication.k8s.io/v1/tokenreviews"


def test_a_pod_asks_with_the_token_that_it_has_now(pod: ApiServer) -> None:
    review = {"spec": {"token": pod.issue("a:b"), "audiences": ["mlflow"]}}
    assert in_pod.post(PATH, review)["status"]["user"]["username"] == "system:serviceaccount:a:b"
    (pod.folder / "token").write_text("replaced by one that is not good")
    with pytest.raises(UnderstudyError, match="does not answer"):
        in_pod.post(PATH, review)


def test_a_missing_right_is_named(pod: ApiServer) -> None:
    pod.status = 403
    with pytest.raises(UnderstudyError, match=r"tokenreviews with 403; the pod's account has no permission for that"):
        in_pod.post(PATH, {"spec": {"token": "", "audiences": []}})


def test_another_api_server_than_the_clusters_gets_no_token(pod: ApiServer) -> None:
    write_certificate(pod.folder)  # the pod's own cluster has another key
    with pytest.raises(UnderstudyError, match="certificate verify failed"):
        in_pod.post(PATH, {})


def test_outside_of_a_pod_there_is_no_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNDERSTUDY_SERVICE_ACCOUNT", str(tmp_path))
    with pytest.raises(UnderstudyError, match="the pod has no service account token"):
        in_pod.token()
