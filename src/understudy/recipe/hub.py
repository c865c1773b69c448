"""The hub ids in a recipe: only steps with one need a way out of the cluster."""

from understudy.recipe.models import PretrainedModel
from understudy.recipe.schema import Recipe

FOLDERS = ("/", ".", "~")
"""Prefixes of paths of folders; a recipe that was read from a file has absolute ones."""
TOKENIZER = "data.text.tokenizer"


def hub_ids(recipe: Recipe) -> dict[str, str]:
    """Hub ids by their path in the recipe."""
    named = {where: model.pretrained for where, model in recipe.models.items() if isinstance(model, PretrainedModel)}
    if recipe.takes("data.text") and recipe.text.tokenizer.pretrained:
        named[TOKENIZER] = recipe.text.tokenizer.pretrained
    return {where: name for where, name in named.items() if not name.startswith(FOLDERS)}
