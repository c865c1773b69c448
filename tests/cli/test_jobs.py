"""Commands about jobs where there is no namespace; what they find and end is in tests/cluster."""

import pytest

from understudy.cli import jobs
from understudy.errors import InputError
from understudy.launch.kubernetes import api


class Nowhere:
    """A cluster that does not have the namespace that is asked for."""

    def __init__(self, namespace: str | None) -> None:
        self.namespace = namespace

    def has_namespace(self) -> bool:
        return False


def test_a_namespace_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "Kube", Nowhere)
    for command in (jobs.list_, lambda namespace: jobs.stop("run", namespace), jobs.gc):
        with pytest.raises(InputError, match="there is no namespace nowhere; give another one with -n"):
            command("nowhere")
