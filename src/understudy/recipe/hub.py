"""The hub ids in a recipe: only steps with one need access to networks outside the cluster."""

from understudy.recipe.models import PretrainedModel
from understudy.recipe.schema import Recipe

FOLDERS = ("/", ".", "~")
"""Prefixes of folder paths; in a recipe that was read from a file, paths are absolute."""
TOKENIZER = "data.text.tokenizer"


def hub_ids(recipe: Recipe) -> dict[str, str]:
    """Hub ids by their path in the recipe."""
    ids = {path: model.pretrained for path, model in recipe.models.items() if isinstance(model, PretrainedModel)}
    if recipe.takes("data.text") and recipe.text.tokenizer.pretrained:
        ids[TOKENIZER] = recipe.text.tokenizer.pretrained
    sources = {"data": recipe.data.source, **{f"data_sets.{name}": s.source for name, s in recipe.data_sets.items()}}
    for section, source in sources.items():
        if source.path_may_be_hub_id and (path := getattr(source, "path", None)):
            ids[f"{section}.source"] = path
    return {path: name for path, name in ids.items() if not name.startswith(FOLDERS)}
