import logging

import pytest
import torch
from torch import nn
from torch.nn.parallel import DataParallel

from understudy.parallel.devices import over_devices


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_process_that_drives_several_devices_is_told_what_is_better(
    caplog: pytest.LogCaptureFixture, device: str
) -> None:
    model = nn.Linear(2, 2)
    with caplog.at_level(logging.WARNING):
        parallel = over_devices(model, torch.device(device))
    assert (parallel is model) is (device == "cpu")
    assert isinstance(parallel, DataParallel) is (device == "cuda")
    assert "ddp, with a process for each GPU, trains the same and is faster" in caplog.text
