"""The files of a pretrained model, in a local folder or downloaded to the hub's cache from a commit of a hub id."""

import json
from pathlib import Path

from understudy.errors import InputError
from understudy.models.hub import hub_file
from understudy.models.hub_index import named_files
from understudy.models.normalization import PREPROCESSOR
from understudy.recipe import PretrainedModel


def own_files(model: PretrainedModel, where: str, *, weights: bool) -> Path:
    """The folder with a model's files. From the hub, only the required files are downloaded.

    Args:
        model: the recipe's section.
        where: its path in the recipe, for errors.
        weights: whether weights are required.

    Raises:
        InputError: as check_folder(), or the hub refuses the files.
    """
    folder = Path(model.pretrained)
    if folder.is_dir():
        check_folder(folder, model, where)
        return folder
    place = f"{where}.pretrained"
    config = hub_configuration(model, place)
    commit = config.parent.name  # all other files are from this commit, though a branch may move meanwhile
    hub_file(model.pretrained, PREPROCESSOR, commit, place)
    if weights:
        _fetch_weights(model, commit, place)
        check_folder(config.parent, model, where)
    if model.trust_remote_code:
        _fetch_code(model.pretrained, config, place)
    return config.parent


def check_folder(folder: Path, model: PretrainedModel, where: str) -> None:
    """Check that a folder has the files of a model in the hub's format.

    Raises:
        InputError: there is no configuration, or weights are in pickle files alone, which the recipe does not allow.
    """
    place = f"{where}.pretrained"
    if not (folder / "config.json").exists():
        raise InputError(f"{place}: {folder} has no config.json; give a folder in the hub's format")
    if not any(folder.glob("*.safetensors")) and not model.allow_pickle:
        raise InputError(
            f"{place}: {model.pretrained} has no safetensors. Pickle files run code when they are opened: convert "
            f"them, or say {where}.allow_pickle: true if you trust their source."
        )


def hub_configuration(model: PretrainedModel, place: str) -> Path:
    """A hub id's config.json in the hub's cache, in a folder named after its commit.

    Raises:
        InputError: the hub has none, or refuses it.
    """
    found = hub_file(model.pretrained, "config.json", model.revision, place)
    if found is None:
        raise InputError(f"{place}: {model.pretrained} has no config.json; is it a transformers model?")
    return found


def _fetch_weights(model: PretrainedModel, commit: str, place: str) -> None:
    def brought(name: str) -> Path | None:
        return hub_file(model.pretrained, name, commit, place)

    whole, index = brought("model.safetensors"), brought("model.safetensors.index.json")
    if index:
        try:
            shards = named_files(index)
        except ValueError as error:
            raise InputError(f"{place}: {model.pretrained}: {error}") from error
        for shard in shards:
            brought(shard)
    if model.allow_pickle and not (whole or index):
        brought("pytorch_model.bin")


def _fetch_code(repository: str, config: Path, place: str) -> None:
    """Download the Python files that a repository's config.json names, and their relative imports, beside it."""
    from transformers.dynamic_module_utils import get_relative_imports

    named = json.loads(config.read_text()).get("auto_map", {}).values()
    classes = [name for name in named if isinstance(name, str)]  # a tokenizer's entry, a list, is not needed
    todo = {name.partition(".")[0] for name in classes if "--" not in name}  # "--" marks code of another repository
    seen = set[str]()
    while todo:
        module = todo.pop()
        seen.add(module)
        path = hub_file(repository, f"{module}.py", config.parent.name, place)
        todo |= set(get_relative_imports(path) if path else ()) - seen
