import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from understudy.errors import UnderstudyError
from understudy.models.weight_files import INDEX, weight_files
from understudy.models.weights import header, opened, write_weights

TENSORS = {
    "b": torch.arange(12.0).view(3, 4),
    "a": torch.arange(40.0).view(8, 5),
    "half": torch.ones(4, 2, dtype=torch.bfloat16),
    "count": torch.tensor(3),
    "c": torch.arange(7),
}


def read(folder: Path) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    for path in weight_files(folder):
        tensors |= load_file(path)
    return tensors


def same(tensors: dict[str, Tensor]) -> bool:
    return tensors.keys() == TENSORS.keys() and all(torch.equal(tensors[name], TENSORS[name]) for name in TENSORS)


def test_few_bytes_are_one_file(tmp_path: Path) -> None:
    (tmp_path / "beside").touch()
    write_weights(tmp_path, TENSORS)
    assert [path.name for path in weight_files(tmp_path)] == ["model.safetensors"]
    assert same(read(tmp_path))
    modes = {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()}
    assert len(modes) == 1


@pytest.mark.parametrize("smallest", [1, 60, 200])
def test_many_bytes_are_several_files_with_an_index_as_the_hub_has_it(tmp_path: Path, smallest: int) -> None:
    write_weights(tmp_path, TENSORS, smallest)
    files = weight_files(tmp_path)
    assert len(files) == {1: 5, 60: 4, 200: 3}[smallest]
    assert same(read(tmp_path))
    index = json.loads((tmp_path / INDEX).read_text())
    assert index["metadata"]["total_size"] == sum(tensor.nbytes for tensor in TENSORS.values())
    for name, file in index["weight_map"].items():
        assert name in load_file(tmp_path / file)


def test_transformers_reads_several_files(tmp_path: Path) -> None:
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.for_model("gpt2", n_embd=8, n_layer=1, n_head=1, vocab_size=9, bos_token_id=0, eos_token_id=0)
    model = AutoModelForCausalLM.from_config(config)
    state = {name: tensor for name, tensor in model.state_dict().items() if name != "lm_head.weight"}
    write_weights(tmp_path, state, 500)
    assert len(weight_files(tmp_path)) > 2
    config.architectures = ["GPT2LMHeadModel"]
    config.save_pretrained(tmp_path)
    loaded = AutoModelForCausalLM.from_pretrained(tmp_path, local_files_only=True).state_dict()
    assert all(torch.equal(tensor, loaded[name]) for name, tensor in state.items())


def written_by_ranks(folder: Path, tp: bool) -> dict[str, Any]:
    """Whether each rank reads its own part again, and the shape of the part."""
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    from understudy.models.parts import local_tensor

    dist.init_process_group("gloo")
    try:
        mesh = init_device_mesh("cpu", (2, 2))
        places = [Shard(0), Shard(1)] if tp else [Replicate(), Shard(0)]
        spread = {
            name: distribute_tensor(tensor, mesh, places) if tensor.ndim > 1 else tensor
            for name, tensor in TENSORS.items()
        }
        write_weights(folder, spread, 60)
        dist.barrier()
        with opened(folder) as weights:
            assert weights.headers == {name: header(tensor) for name, tensor in TENSORS.items()}
            loaded = {name: torch.zeros_like(tensor) for name, tensor in spread.items()}
            for name, tensor in loaded.items():
                weights.read(name, tensor)
        return {
            name: (
                torch.equal(local_tensor(loaded[name]), local_tensor(spread[name])),
                local_tensor(loaded[name]).shape,
            )
            for name in loaded
        }
    finally:
        dist.destroy_process_group()


@pytest.mark.parametrize("tp", [False, True])
def test_ranks_write_files_of_their_own_and_read_what_they_keep(ranks: Any, tmp_path: Path, tp: bool) -> None:
    outcomes = ranks.run(4, written_by_ranks, tmp_path, tp)
    assert all(equal for of_rank in outcomes for equal, _ in of_rank.values())
    assert outcomes[0]["a"][1] == ((4, 3) if tp else (4, 5))
    assert len(weight_files(tmp_path)) == 4
    assert same(read(tmp_path))


def test_a_file_that_is_no_safetensors_is_named(tmp_path: Path) -> None:
    write_weights(tmp_path, TENSORS, 60)
    damaged = weight_files(tmp_path)[1]
    damaged.write_bytes(b"x" * 100)
    with pytest.raises(UnderstudyError, match=f"{damaged.name}: is not a safetensors file"), opened(tmp_path):
        pass


WIDE = torch.randn(6, 5, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("at_a_time", [1, 4, 7, 100])
@pytest.mark.parametrize(("stored", "kept_in"), [("bfloat16", "float32"), ("float32", "bfloat16"), ("int32", "int64")])
def test_numbers_of_another_type_are_converted_some_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_a_time: int, stored: str, kept_in: str
) -> None:
    monkeypatch.setattr("understudy.models.weights.AT_A_TIME", at_a_time)
    full_tensor = (100 * WIDE).to(getattr(torch, stored))
    write_weights(tmp_path, {"first": torch.ones(3), "a": full_tensor})
    into = torch.zeros(6, 5, dtype=getattr(torch, kept_in))
    with opened(tmp_path) as weights:
        weights.read("a", into)
    assert torch.equal(into, full_tensor.to(into.dtype))


def test_memory_that_is_no_one_piece_is_filled_too(tmp_path: Path) -> None:
    write_weights(tmp_path, {"a": WIDE})
    into = torch.zeros(5, 6).t()
    with opened(tmp_path) as weights:
        weights.read("a", into)
    assert torch.equal(into, WIDE)


def test_a_file_that_shrinks_while_it_is_read_is_named(tmp_path: Path) -> None:
    write_weights(tmp_path, {"a": torch.ones(2**16)})
    (path,) = weight_files(tmp_path)

    def read_late() -> None:
        with opened(tmp_path) as weights:
            os.truncate(path, 2**12)
            weights.read("a", torch.zeros(2**16))

    with pytest.raises(UnderstudyError, match=f"{path.name}: .*the file ends before"):
        read_late()
