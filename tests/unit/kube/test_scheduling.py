from typing import Any

from understudy.kube.scheduling import never_fits


def test_a_request_that_can_never_fit_is_distinguished_from_one_that_waits() -> None:
    node = {
        "metadata": {"labels": {"pool": "gpu"}},
        "status": {"allocatable": {"nvidia.com/gpu": "4", "memory": "8Gi"}},
    }

    def asking(selector: dict[str, str], **requests: str) -> dict[str, Any]:
        return {"spec": {"nodeSelector": selector, "containers": [{"resources": {"requests": requests}}]}}

    assert never_fits(asking({"pool": "gpu"}, **{"nvidia.com/gpu": "4"}), [node]) == ""
    assert "asks for 8 nvidia.com/gpu" in never_fits(asking({"pool": "gpu"}, **{"nvidia.com/gpu": "8"}), [node])
    assert "memory" in never_fits(asking({}, memory="9Gi"), [node])
    assert "no node has the labels pool=tpu" in never_fits(asking({"pool": "tpu"}), [node])
