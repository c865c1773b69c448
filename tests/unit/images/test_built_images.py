"""The images, built for real and run as nobody in particular on a root that cannot be written.

UNDERSTUDY_TEST_BASE names the base image to build from; it takes buildah, and root to mount what it built.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator

import pytest

from tests import ROOT
from understudy import __version__

BASE = os.environ.get("UNDERSTUDY_TEST_BASE")
pytestmark = [
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        BASE is None or shutil.which("buildah") is None,
        reason="UNDERSTUDY_TEST_BASE names no base image, or there is no buildah",
    ),
]
RUN = """
mkdir -p /tmp/image-root && mount --bind "$1" /tmp/image-root && mount -o remount,ro,bind /tmp/image-root
mount -t tmpfs -o mode=1777 tmp /tmp/image-root/tmp; shift
exec chroot --userspec=1000:1000 /tmp/image-root /usr/bin/env -i PATH=/opt/understudy/bin:/usr/bin:/bin HOME=/tmp "$@"
"""
TRAINS = """
import torch, understudy.agent.worker, understudy.pipelines.distillation
layer = torch.nn.Linear(2, 1)
optimiser = torch.optim.AdamW(layer.parameters())
layer(torch.ones(4, 2)).sum().backward()
optimiser.step()
print("trained")
"""
Inside = Callable[..., str]


def said(*command: str) -> str:
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture(scope="module", params=["launcher", "mlflow", "trainer"])
def image(request: pytest.FixtureRequest) -> str:
    said("make", "images", f"WHICH={request.param}", f"BASE={BASE}", "IMAGES=localhost/understudy-test:1.2")
    return f"localhost/understudy-test-{request.param}:1.2"


@pytest.fixture(scope="module")
def inside(image: str) -> Iterator[Inside]:
    container = said("buildah", "from", image)
    mounted = said("buildah", "mount", container)
    yield lambda *command: said("unshare", "-m", "bash", "-ec", RUN, "run", mounted, *command)
    said("buildah", "rm", container)


def test_it_runs_as_one_fixed_user_and_says_what_it_is(image: str) -> None:
    config = json.loads(said("buildah", "inspect", image))["OCIv1"]["config"]
    assert config["User"] == "1000:1000"
    assert config["Labels"]["org.opencontainers.image.version"] == "1.2"
    assert config["Labels"]["org.opencontainers.image.revision"] == said("git", "rev-parse", "HEAD")
    assert config["Labels"]["org.opencontainers.image.base.name"] == BASE


def test_it_works_where_nothing_but_tmp_can_be_written(image: str, inside: Inside) -> None:
    assert inside("id", "-u") == "1000"
    if "launcher" in image:
        assert inside("understudy", "--version") == f"understudy {__version__}"
        program = "import understudy.launch.kubernetes.controller, understudy.registry.register, importlib.util as u"
        assert inside("python", "-c", f"{program}; print(u.find_spec('torch'))") == "None"
        return
    if "trainer" in image:
        assert inside("python", "-c", TRAINS).splitlines()[-1] == "trained"
        return
    program = "import psycopg, boto3, mlflow, mlflow.server; print(mlflow.__version__)"
    assert inside("python", "-c", program) == "3.17.2"
    program = "from importlib.metadata import entry_points as e; print(e(group='mlflow.app')['understudy'].load())"
    assert "create_app" in inside("python", "-W", "ignore", "-c", program)


def test_no_model_and_no_data_is_inside(inside: Inside) -> None:
    readable = ("find", "/", "-xdev", "!", "-readable", "-prune", "-o")
    wanted = ("(", "-name", "*.safetensors", "-o", "-name", "*.parquet", "-size", "+100k", ")", "-print")
    assert inside(*readable, *wanted) == ""
