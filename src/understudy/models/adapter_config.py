"""The peft configuration of adapters, lora.json: built from the recipe, and compared with it in untrusted folders.

peft looks up the base model by the id in it, and some further keys name code that peft imports.
"""

from pathlib import Path
from typing import Any

from understudy.models.facts import ADAPTERS, ADAPTERS_CONFIG, Facts
from understudy.recipe import Lora, Model, PretrainedModel
from understudy.recipe.tasks import load
from understudy.store.files import read_json


def adapter_config(settings: Lora, base: Model, facts: Facts, layers: list[str], *, transposed: bool) -> dict[str, Any]:
    """The content of peft's adapter_config.json.

    Args:
        settings: the recipe's section lora.
        base: the recipe's section of the base model.
        facts: the model's task and data.
        layers: the names of layers with an adapter.
        transposed: whether their weights are (inputs, outputs).
    """
    is_on_hub = isinstance(base, PretrainedModel) and base.revision is not None  # a local path means nothing elsewhere
    base_id = base.model_dump(include={"pretrained", "revision"}) if is_on_hub else {}
    return {
        "base_model_name_or_path": base_id.get("pretrained"),
        "revision": base_id.get("revision"),
        "peft_type": "LORA",
        "task_type": load(facts["task"]).PEFT_TYPE,
        "r": settings.rank,
        "lora_alpha": settings.alpha,
        "lora_dropout": settings.dropout,
        "target_modules": layers,
        "fan_in_fan_out": transposed,
        "bias": "none",
        "inference_mode": True,
    }


def adapters_match(folder: Path, base: Model, settings: Lora | None, facts: Facts) -> bool:
    """Whether a folder has adapters if and only if the recipe keeps them apart, with the recipe's configuration."""
    present = {name for name in (ADAPTERS, ADAPTERS_CONFIG) if (folder / name).exists()}
    if settings is None or not settings.kept_apart:
        return not present
    config = read_json(folder / ADAPTERS_CONFIG) if len(present) == 2 else None
    layers, transposed = (
        (config.get("target_modules"), config.get("fan_in_fan_out")) if isinstance(config, dict) else (None, None)
    )
    if not isinstance(transposed, bool) or not isinstance(layers, list) or not all(map(_is_name, layers)):
        return False
    return bool(config == adapter_config(settings, base, facts, layers, transposed=transposed))


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value.replace(".", "").isidentifier()
