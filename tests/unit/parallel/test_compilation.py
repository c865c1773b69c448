import logging

import pytest
import torch
from torch import nn

from tests.unit.parallel.test_activation_checkpointing import model
from understudy.errors import InputError
from understudy.parallel import compilation
from understudy.parallel.compilation import compile_blocks, has_compiler
from understudy.parallel.savers import Savers
from understudy.recipe import Train


def test_without_a_compiler_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor import cpp_builder
    from torch._inductor.exc import InvalidCxxCompiler

    def none() -> str:
        raise InvalidCxxCompiler

    monkeypatch.setattr(cpp_builder, "get_cpp_compiler", none)
    with pytest.raises(InputError, match=r"student\.train\.compile: there is no C\+\+ compiler on this machine"):
        compile_blocks(model("llama"), "student.train")


def test_a_model_without_blocks_is_refused() -> None:
    with pytest.raises(InputError, match=r"student\.train\.compile: the model has no repeated blocks"):
        compile_blocks(nn.Linear(2, 2), "student.train")


def test_a_machine_without_a_compiler_says_so_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(compilation, "has_triton", lambda: True)
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", "")
    has_compiler.cache_clear()
    with caplog.at_level(logging.WARNING):
        assert [has_compiler(), has_compiler()] == [False, False]
    assert [record.message.partition(" (")[0] for record in caplog.records] == [
        "torch.compile cannot build kernels for this GPU"
    ]
    monkeypatch.setenv("CC", "cc")
    has_compiler.cache_clear()
    assert has_compiler()
    has_compiler.cache_clear()


@pytest.mark.parametrize(
    ("device", "able", "splits", "strategy", "kind", "compiled"),
    [
        ("cuda", True, False, "single", "llama", True),
        ("cuda", True, False, "ddp", "llama", True),
        ("cpu", True, False, "single", "llama", False),
        ("cuda", False, False, "single", "llama", False),
        ("cuda", True, True, "single", "llama", False),
        ("cuda", True, False, "dp", "llama", False),
        ("cuda", True, False, "single", None, False),
    ],
)
def test_auto_compiles_where_it_pays_and_is_right(
    monkeypatch: pytest.MonkeyPatch,
    device: str,
    able: bool,
    splits: bool,
    strategy: str,
    kind: str | None,
    compiled: bool,
) -> None:
    compiled_models = list[nn.Module]()
    monkeypatch.setattr(compilation, "has_compiler", lambda: able)
    monkeypatch.setattr("understudy.parallel.savers.compile_blocks", lambda model, _: compiled_models.append(model))
    train = Train.model_validate({"steps": 1, "compile": "auto", "strategy": strategy})
    trained = model(kind) if kind else nn.Linear(2, 2)
    Savers.of(train).apply(trained, "student.train", torch.device(device), splits=splits)
    assert bool(compiled_models) is compiled
