import pytest
from torch import nn

from tests.unit.parallel.test_activation_checkpointing import model
from understudy.errors import InputError
from understudy.parallel.compilation import compile_blocks


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
