"""The peft configuration of adapters, lora.json: built from the recipe, and compared with it in untrusted folders.

peft looks up the base model by the id in it, and some further keys name code that peft imports.
"""

from pathlib import Path
from typing import Any

from understudy.models.facts import ADAPTERS, ADAPTERS_CONFIG, Facts
from understudy.recipe import Lora, Model, PretrainedModel
from understudy.recipe.tasks import load
from understudy.store.files import read_json


def adapter_config(settings: Lora, began: Model, facts: Facts, layers: list[str], *, turned: bool) -> dict[str, Any]:
    """The content of peft's adapter_config.json.

    Args:
        settings: the recipe's section lora.
        began: the recipe's section of the base model.
        facts: the model's task and data.
        layers: the names of layers with an adapter.
        turned: whether their weights are (inputs, outputs).
    """
    of_the_hub = isinstance(began, PretrainedModel) and began.revision is not None  # a path means nothing elsewhere
    model = began.model_dump(include={"pretrained", "revision"}) if of_the_hub else {}
    return {
        "base_model_name_or_path": model.get("pretrained"),
        "revision": model.get("revision"),
        "peft_type": "LORA",
        "task_type": load(facts["task"]).PEFT_TYPE,
        "r": settings.rank,
        "lora_alpha": settings.alpha,
        "lora_dropout": settings.dropout,
        "target_modules": layers,
        "fan_in_fan_out": turned,
        "bias": "none",
        "inference_mode": True,
    }


def fits(folder: Path, began: Model, settings: Lora | None, facts: Facts) -> bool:
    """Whether a folder has adapters if and only if the recipe keeps them apart, with the recipe's configuration."""
    there = {name for name in (ADAPTERS, ADAPTERS_CONFIG) if (folder / name).exists()}
    if settings is None or not settings.kept_apart:
        return not there
    said = read_json(folder / ADAPTERS_CONFIG) if len(there) == 2 else None
    layers, turned = (
        (said.get("target_modules"), said.get("fan_in_fan_out")) if isinstance(said, dict) else (None, None)
    )
    if not isinstance(turned, bool) or not isinstance(layers, list) or not all(map(_is_name, layers)):
        return False
    return bool(said == adapter_config(settings, began, facts, layers, turned=turned))


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value.replace(".", "").isidentifier()
