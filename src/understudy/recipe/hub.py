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
    for name in ("", *recipe.data_sets):
        source = recipe.data_of(name).source
        if source.path_may_be_hub_id and (location := getattr(source, "path", None)):
            ids[source_section(name)] = location
    return {path: name for path, name in ids.items() if not name.startswith(FOLDERS)}


def source_section(data: str) -> str:
    """The path in the recipe of a data set's source; of `data` without a name."""
    return f"data_sets.{data}.source" if data else "data.source"
