"""The files of a pretrained model, in a local folder or downloaded to the hub's cache from a commit of a hub id."""

import json
from pathlib import Path

from understudy.errors import InputError
from understudy.models.hub import hub_file
from understudy.models.hub_index import named_files
from understudy.models.normalization import PREPROCESSOR
from understudy.recipe import PretrainedModel


def model_folder(model: PretrainedModel, section: str, *, weights: bool) -> Path:
    """The folder with a model's files. From the hub, only the required files are downloaded.

    Args:
        model: the recipe's section.
        section: the model's path in the recipe, for errors.
        weights: whether weights are required.

    Raises:
        InputError: as check_folder(), or the hub refuses the files.
    """
    folder = Path(model.pretrained)
    if folder.is_dir():
        check_folder(folder, model, section)
        return folder
    key_path = f"{section}.pretrained"
    config = hub_configuration(model, key_path)
    commit = config.parent.name  # all other files are from this commit, though a branch may move meanwhile
    hub_file(model.pretrained, PREPROCESSOR, commit, key_path)
    if weights:
        _fetch_weights(model, commit, key_path)
        check_folder(config.parent, model, section)
    if model.trust_remote_code:
        _fetch_code(model.pretrained, config, key_path)
    return config.parent


def check_folder(folder: Path, model: PretrainedModel, section: str) -> None:
    """Check that a folder has the files of a model in the hub's format.

    Raises:
        InputError: there is no configuration, or weights are in pickle files alone, which the recipe does not allow.
    """
    key_path = f"{section}.pretrained"
    if not (folder / "config.json").exists():
        raise InputError(f"{key_path}: {folder} has no config.json; give a folder in the hub's format")
    if not any(folder.glob("*.safetensors")) and not model.allow_pickle:
        raise InputError(
            f"{key_path}: {model.pretrained} has no safetensors. Pickle files run code when they are opened: convert "
            f"them, or set {section}.allow_pickle: true if you trust their source."
        )


def hub_configuration(model: PretrainedModel, key_path: str) -> Path:
    """A hub id's config.json in the hub's cache, in a folder named after its commit.

    Raises:
        InputError: the hub has none, or refuses it.
    """
    config = hub_file(model.pretrained, "config.json", model.revision, key_path)
    if config is None:
        raise InputError(f"{key_path}: {model.pretrained} has no config.json; is it a transformers model?")
    return config


def _fetch_weights(model: PretrainedModel, commit: str, key_path: str) -> None:
    def download(name: str) -> Path | None:
        return hub_file(model.pretrained, name, commit, key_path)

    weights, index = download("model.safetensors"), download("model.safetensors.index.json")
    if index:
        try:
            shards = named_files(index)
        except ValueError as error:
            raise InputError(f"{key_path}: {model.pretrained}: {error}") from error
        for shard in shards:
            download(shard)
    if model.allow_pickle and not (weights or index):
        download("pytorch_model.bin")


def _fetch_code(repository: str, config: Path, key_path: str) -> None:
    """Download the Python files that a repository's config.json names, and their relative imports, beside it."""
    from transformers.dynamic_module_utils import get_relative_imports

    auto_map = json.loads(config.read_text()).get("auto_map", {}).values()
    classes = [name for name in auto_map if isinstance(name, str)]  # a tokenizer's entry, a list, is not needed
    pending = {name.partition(".")[0] for name in classes if "--" not in name}  # "--" marks code of another repository
    fetched = set[str]()
    while pending:
        module = pending.pop()
        fetched.add(module)
        path = hub_file(repository, f"{module}.py", config.parent.name, key_path)
        pending |= set(get_relative_imports(path) if path else ()) - fetched
