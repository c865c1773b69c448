from typing import Any

import pytest

from understudy.errors import InputError
from understudy.kube.settings import parsed


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"claim": "store"}, r"cluster.yaml: image: Field required"),
        ({"image": "i", "claim": "c", "queues": []}, r"cluster.yaml: queues: Extra inputs"),
        ({"image": "i", "claim": "c", "pools": {"a": {"gpus": 1}}}, r"cluster.yaml: pools\.a\.gpus: Extra inputs"),
        ({"image": "i", "claim": "c", "patience": 60}, r"cluster.yaml: patience: it was renamed to launcher_timeout"),
        ({"image": "i", "claim": "c", "launcher": "mpijob"}, r"launcher: .*'pytorchjob' or 'trainjob'"),
        (None, r"cluster.yaml: the file: "),
        ({"image": "i", "claim": "c", "cache": {"hostPath": {"path": "/x"}}}, r"cache: .*one of csi, .*no hostPath"),
        ({"image": "i", "claim": "c", "cache": {"csi": {}, "emptyDir": {}}}, r"cache: .*one of csi, emptyDir"),
        ({"image": "i", "claim": "c", "cache": {"emptyDir": {}}}, r"cache: .*emptyDir needs a sizeLimit such as 20Gi"),
        ({"image": "i", "claim": "c", "cache": "20Gi"}, r"cache: "),
        (
            {"image": "i", "claim": "c", "cache": {"persistentVolumeClaim": {"claimName": "c"}}},
            r"cache: the store's claim",
        ),
        ({"image": "i", "claim": "c", "mount": "//"}, r"mount: .*a folder below /"),
        ({"image": "i", "claim": "c", "mount": "/a/.."}, r"mount: .*a folder below /"),
        ({"image": "i", "claim": "c", "mount": "run"}, r"mount: "),
    ],
)
def test_settings_that_are_wrong_are_named(values: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        parsed(values, "cluster.yaml")
