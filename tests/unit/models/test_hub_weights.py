"""Weights in their maker's files: the same that transformers reads, and not in memory."""

import ctypes
import platform
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging

from understudy.models.build import tied_weights
from understudy.models.facts import WEIGHTS
from understudy.models.hub_weights import PICKLED, PICKLED_INDEX, HubWeights
from understudy.models.weights import write_weights

SIZES = {"hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 2}
SIZES |= {"num_key_value_heads": 2, "vocab_size": 96, "max_position_embeddings": 16}
KINDS: dict[str, dict[str, Any]] = {
    "llama": {"tie_word_embeddings": True},
    "gpt2": {"n_embd": 32, "n_layer": 2, "n_head": 2},
    "mixtral": {"num_local_experts": 4},  # whose experts transformers merges
}
MIB = 2**20


def published(folder: Path, kind: str, dtype: torch.dtype, shards: str = "50GB", **sizes: int) -> Path:
    """A model as its maker publishes it."""
    torch.manual_seed(0)
    logging.disable_progress_bar()
    config = AutoConfig.for_model(kind, **{**SIZES, **KINDS[kind], **sizes})
    AutoModelForCausalLM.from_config(config).to(dtype).save_pretrained(folder, max_shard_size=shards)
    return folder


def pickled(folder: Path) -> Path:
    """The same model as it was published years ago."""
    torch.save(load_file(folder / WEIGHTS), folder / PICKLED)
    (folder / WEIGHTS).unlink()
    return folder


def loaded(source: Path, scratch: Path, pickle: bool = False) -> Any:
    """A network with its weights in the files."""
    weights, config = HubWeights(source, pickle), AutoConfig.from_pretrained(source)
    with torch.device("meta"):
        kind = type(AutoModelForCausalLM.from_config(config))
    with weights.merged_on_disk(scratch):
        return kind.from_pretrained(None, config=config, state_dict=weights.tensors, dtype=torch.float32)


def written(net: Any, folder: Path) -> dict[str, Tensor]:
    """Its weights, after they were written in fp32."""
    folder.mkdir()
    ties = tied_weights(net)
    write_weights(folder, {n: t for n, t in net.state_dict().items() if n not in ties}, dtype=torch.float32)
    return load_file(folder / WEIGHTS)


def own_memory() -> int:
    """Bytes of this process's memory outside of files, after freed memory was returned to the system."""
    ctypes.CDLL(None).malloc_trim(0)
    lines = Path("/proc/self/status").read_text().splitlines()
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("storage", ["one file", "several files", "pickled"])
def test_weights_are_bit_for_bit_those_that_transformers_reads(tmp_path: Path, kind: str, storage: str) -> None:
    source = published(tmp_path / "source", kind, torch.bfloat16, "20KB" if storage == "several files" else "50GB")
    expected = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32).state_dict()
    if storage == "pickled":
        pickled(source)
    files = written(loaded(source, tmp_path, storage == "pickled"), tmp_path / "ours")
    assert files.keys() <= expected.keys()
    assert len(files) > 10
    assert all(torch.equal(tensor, expected[name]) for name, tensor in files.items())
    assert {tensor.dtype for tensor in files.values()} == {torch.float32}


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="needs glibc")
@pytest.mark.parametrize("kind", ["llama", "mixtral"])
def test_no_weights_are_in_memory(tmp_path: Path, kind: str) -> None:
    (tmp_path / "scratch").mkdir()
    sizes = {"hidden_size": 512, "intermediate_size": 2048, "num_hidden_layers": 4}
    source = published(tmp_path / "source", kind, torch.bfloat16, **sizes)
    size = (source / WEIGHTS).stat().st_size
    loaded(published(tmp_path / "small", kind, torch.bfloat16), tmp_path)  # imports do not count
    before = own_memory()
    net = loaded(source, tmp_path / "scratch")
    assert own_memory() - before < size / 4 > 4 * MIB
    assert not list((tmp_path / "scratch").iterdir())
    del net


def test_pickled_weights_in_several_files_are_found(tmp_path: Path) -> None:
    source = published(tmp_path / "source", "gpt2", torch.float32)
    expected = load_file(source / WEIGHTS)
    (source / WEIGHTS).unlink()
    for number, name in enumerate(expected):
        torch.save({name: expected[name]}, source / f"part-{number}.bin")
    places = ", ".join(f'"{name}": "part-{number}.bin"' for number, name in enumerate(expected))
    (source / PICKLED_INDEX).write_text(f'{{"weight_map": {{{places}}}}}')
    files = written(loaded(source, tmp_path, pickle=True), tmp_path / "ours")
    assert all(torch.equal(tensor, expected[name]) for name, tensor in files.items())
    with pytest.raises(OSError, match=r"has no file named model\.safetensors, and no index"):
        HubWeights(source, pickle=False)


def test_numbers_that_do_not_float_get_the_networks_type(tmp_path: Path) -> None:
    write_weights(tmp_path, {"count": torch.tensor([3, 4], dtype=torch.int32), "half": torch.ones(2).half()})
    tensors = HubWeights(tmp_path, pickle=False).tensors
    assert tensors["count"][...].to("cpu", torch.int64).dtype is torch.int64
    assert tensors["half"][...].to("cpu", torch.float32).dtype is torch.float16


@pytest.mark.parametrize("kind", [torch.int8, torch.uint8, torch.bool, torch.float8_e4m3fn])
def test_quantised_weights_are_refused(tmp_path: Path, kind: torch.dtype) -> None:
    tensors = {"layer.weight": torch.ones(2, 2).to(kind), "layer.weight_scale_inv": torch.ones(1)}
    save_file(tensors, tmp_path / WEIGHTS)
    with pytest.raises(ValueError, match=r"model\.safetensors: layer\.weight is quantised"):
        HubWeights(tmp_path, pickle=False)


def test_counters_may_be_whole_numbers(tmp_path: Path) -> None:
    save_file({"norm.num_batches_tracked": torch.tensor(3)}, tmp_path / WEIGHTS)
    assert HubWeights(tmp_path, pickle=False).tensors.keys() == {"norm.num_batches_tracked"}
