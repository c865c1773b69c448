"""What peft has to know of adapters, lora.json: made from the recipe, and compared with it where others bring it.

peft looks up the model that they began with by its id, and imports what some further keys name.
"""

from pathlib import Path
from typing import Any

from understudy.models.facts import ADAPTERS_CONFIG, Facts
from understudy.recipe import Lora, Model, PretrainedModel
from understudy.store.files import read_json


def adapter_config(
    settings: Lora, began: Model, facts: Facts, layers: list[str], modules: list[str], *, turned: bool
) -> dict[str, Any]:
    """The content of peft's adapter_config.json.

    Args:
        settings: the recipe's.
        began: what the recipe says of the model that they began with.
        facts: of what that is for.
        layers: the names of those that have an adapter.
        modules: the names of those that are trained as ever; whole names, since peft takes any end of them.
        turned: whether their weights are (inputs, outputs).
    """
    return {
        **_fixed(began),
        "task_type": "CAUSAL_LM" if facts["task"] == "causal-lm" else None,
        "r": settings.rank,
        "lora_alpha": settings.alpha,
        "lora_dropout": settings.dropout,
        "target_modules": layers,
        "modules_to_save": modules or None,
        "fan_in_fan_out": turned,
    }


def fits(folder: Path, began: Model) -> bool:
    """Whether a folder's lora.json, if there is one, names the recipe's model, and says no more than ours does."""
    if not (folder / ADAPTERS_CONFIG).exists():
        return True
    said, fixed = read_json(folder / ADAPTERS_CONFIG), _fixed(began)
    known = fixed.keys() | {"task_type", "r", "lora_alpha", "lora_dropout"}
    known |= {"target_modules", "modules_to_save", "fan_in_fan_out"}
    return isinstance(said, dict) and said.keys() == known and {**said, **fixed} == said


def _fixed(began: Model) -> dict[str, Any]:
    """What the recipe alone decides. The path of a folder would say nothing elsewhere."""
    of_the_hub = isinstance(began, PretrainedModel) and began.revision is not None
    model = began.model_dump(include={"pretrained", "revision"}) if of_the_hub else {}
    return {
        "base_model_name_or_path": model.get("pretrained"),
        "revision": model.get("revision"),
        "peft_type": "LORA",
        "bias": "none",
        "inference_mode": True,
    }
