import subprocess
import sys

import pytest

from understudy.models import architectures
from understudy.models.architectures import model_types, settings, types_for


@pytest.mark.parametrize("model_type", ["vit", "resnet", "convnext", "gpt2", "llama", "qwen2", "gpt_neox", "dinov2"])
def test_all_that_transformers_takes_is_known(model_type: str) -> None:
    """With vit, gpt2 and the rest written out, inherited, or made in a __post_init__."""
    from transformers import AutoConfig

    assert model_type in model_types()
    assert (known := settings(model_type)) is not None
    assert set(AutoConfig.for_model(model_type).to_dict()) <= known
    assert not {"hiden_size", "pacth_size", "n_layers_"} & known


def test_the_types_of_a_task_are_those_of_transformers() -> None:
    from transformers.models.auto import modeling_auto

    assert types_for("causal-lm") == set(modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)
    assert types_for("image-classification") == set(modeling_auto.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING_NAMES)


def test_nothing_is_refused_where_transformers_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(architectures, "find_spec", lambda _: None)
    for cached in (architectures._package, architectures._table):
        cached.cache_clear()
    assert (model_types(), types_for("causal-lm"), settings("vit")) == (frozenset(), frozenset(), None)
    for cached in (architectures._package, architectures._table):
        cached.cache_clear()


def test_nothing_heavy_is_imported_for_it() -> None:
    look = "import sys; from understudy.models import architectures as a; assert a.settings('vit');"
    look += "print({'torch', 'transformers'} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
