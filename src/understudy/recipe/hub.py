"""What a recipe takes from a model hub: who does a step with it has to get out of the cluster, and nobody else has."""

from understudy.recipe.models import PretrainedModel
from understudy.recipe.schema import Recipe

FOLDERS = ("/", ".", "~")
"""How the paths of folders start; a recipe that was read from a file has absolute ones."""
TOKENIZER = "data.text.tokenizer"


def hub_ids(recipe: Recipe) -> dict[str, str]:
    """Hub ids by their place in the recipe."""
    named = {where: model.pretrained for where, model in recipe.models.items() if isinstance(model, PretrainedModel)}
    if recipe.task == "causal-lm" and recipe.text.tokenizer.pretrained:
        named[TOKENIZER] = recipe.text.tokenizer.pretrained
    return {where: name for where, name in named.items() if not name.startswith(FOLDERS)}
