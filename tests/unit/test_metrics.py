import socket
import urllib.request

import pytest

from understudy import metrics
from understudy.errors import InputError


def free() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


def test_nothing_listens_where_nobody_asked_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(metrics.VARIABLE, raising=False)
    assert not metrics.serve()
    monkeypatch.setenv(metrics.VARIABLE, "")
    assert not metrics.serve()


def test_metrics_are_served_at_the_variables_address(monkeypatch: pytest.MonkeyPatch) -> None:
    address = free()
    monkeypatch.setenv(metrics.VARIABLE, address)
    assert metrics.serve()
    with urllib.request.urlopen(f"http://{address}/metrics") as answer:
        assert "process_resident_memory_bytes" in answer.read().decode()


def test_an_address_that_is_taken_costs_the_metrics_and_not_the_run(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        monkeypatch.setenv(metrics.VARIABLE, address)
        assert not metrics.serve()
    assert address in caplog.text


@pytest.mark.parametrize("address", ["9095", ":9095", "0.0.0.0", "0.0.0.0:http", "0.0.0.0:0", "0.0.0.0:70000"])
def test_an_invalid_address_is_refused_with_the_variables_name(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setenv(metrics.VARIABLE, address)
    with pytest.raises(InputError, match=r"UNDERSTUDY_METRICS: .* is not HOST:PORT"):
        metrics.serve()
