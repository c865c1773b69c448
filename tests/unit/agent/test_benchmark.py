"""What a benchmark's rank says where lm-eval is missing; ranks/pipeline/test_benchmark.py runs whole jobs."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from understudy.agent.benchmark import benchmark
from understudy.errors import InputError


@pytest.mark.parametrize("missing", ["lm_eval", "datasets"])
def test_without_lm_eval_the_fix_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, missing: str) -> None:
    del tmp_path
    for name in ("understudy.evaluate.benchmark", "understudy.evaluate.benchmark_model", missing):
        monkeypatch.delitem(sys.modules, name, raising=False)
    monkeypatch.setitem(sys.modules, missing, None)
    nothing: Any = SimpleNamespace(heartbeat=lambda phase, step: None)
    with pytest.raises(InputError, match=r"^evaluate\.lm_eval: .*pip install 'understudy\[lm-eval\]'"):
        benchmark(nothing, nothing, nothing)
