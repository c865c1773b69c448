"""The architectures of transformers, their tasks and their settings, parsed from its source.

Importing transformers imports torch, which takes ten seconds, too long to report a typing error. This check is only the
first; describe.py uses transformers itself before a training begins. Source that cannot be parsed allows everything:
nothing that transformers accepts may be refused.
"""

import ast
import difflib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from understudy.recipe import TaskName
from understudy.recipe.tasks import load

ROOT = "PreTrainedConfig"
"""The base class of all configurations; its bases have no settings."""

OTHER_NAMES = {
    "num_layers": "num_hidden_layers",
    "n_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "n_heads": "num_attention_heads",
    "dim": "hidden_size",
    "hidden_dim": "hidden_size",
}
"""Names of settings in other libraries, and transformers' names for them."""
LANGUAGE_HEADS = ("ForCausalLM", "ForConditionalGeneration", "ForMaskedLM", "ForPreTraining")
READ_WITH_DEFAULT = re.compile(r'getattr\((?:self\.)?config, "(\w+)"')


@dataclass(frozen=True)
class ConfigClass:
    """A configuration class's source."""

    node: ast.ClassDef
    file: Path


def model_types() -> frozenset[str]:
    """All model types of transformers, for any task; empty if it is not installed."""
    return frozenset(_table("auto_mappings.py", "CONFIG_MAPPING_NAMES"))


def types_for(task: TaskName) -> frozenset[str]:
    """The model types for a task; empty if transformers is not installed."""
    return frozenset(_table("modeling_auto.py", load(task).ARCHITECTURES))


def settings(model_type: str) -> frozenset[str] | None:
    """The names of an architecture's settings; None if they cannot be determined."""
    config_class = _config_class(model_type)
    if config_class is None:
        return None
    try:
        return frozenset(_setting_names(config_class)) | optional_settings(model_type)
    except LookupError:
        return None


def aliases(model_type: str) -> dict[str, str]:
    """Aliases of an architecture's settings that transformers accepts, such as n_head for num_attention_heads."""
    config_class = _config_class(model_type)
    for node in config_class.node.body if config_class else ():
        match node:
            case ast.Assign([ast.Name("attribute_map")], ast.Dict() as table):
                return dict(ast.literal_eval(table))
    return {}


def depth(model_type: str, config: Mapping[str, Any]) -> int | None:
    """The number of layers in a configuration; None if it is left to the architecture."""
    name = "num_hidden_layers"
    n_layers = config.get(name, config.get(aliases(model_type).get(name, name)))
    return n_layers if isinstance(n_layers, int) else None


def duplicate_settings(names: Mapping[str, str], config: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Settings given under two names, of which transformers silently ignores one.

    Args:
        names: other names of the architecture's settings, as `aliases` returns them.
        config: the names of all given settings, of the recipe and the data.

    Yields:
        A name and the problem.
    """
    first_names: dict[str, str] = {}
    for name in config:
        if (first := first_names.setdefault(names.get(name, name), name)) != name:
            yield name, f"is another name of {first}, which has a value already; leave it out"


def suggestion(word: str, names: Iterable[str]) -> str:
    """A suggestion of the closest of some names, to append to an error message; empty if none is close."""
    candidates = sorted(name for name in names if not name.startswith("_"))
    closest = (
        difflib.get_close_matches(word, candidates, 1, cutoff=0.9)  # n_heads means n_head if that exists
        or [name for name in (OTHER_NAMES.get(word),) if name in candidates]
        or difflib.get_close_matches(word, candidates, 1)
    )
    return f"; did you mean {closest[0]}?" if closest else ""


def other_head(config: Mapping[str, Any], task: TaskName) -> str | None:
    """The class that a language model's config.json names, if it is for another task; None otherwise.

    transformers loads a language model from weights with any head, drops the head, and gives no warning if the last
    layer is tied. A class without a head is accepted: it is a base model, whose last layer may be tied too.
    """
    architectures = config.get("architectures")
    if not isinstance(architectures, list):
        return None
    names = [name for name in architectures if isinstance(name, str)]
    task_classes = set(_table("modeling_auto.py", load(task).ARCHITECTURES).values())
    is_suitable = any(name in task_classes or "For" not in name or name.endswith(LANGUAGE_HEADS) for name in names)
    return None if is_suitable or not names or config.get("auto_map") else names[0]


def is_composite(model_type: str) -> bool:
    """Whether an architecture's configuration is a composite, with a text configuration as a part."""
    config_class = _config_class(model_type)
    fields = [node.target for node in config_class.node.body if isinstance(node, ast.AnnAssign)] if config_class else []
    names = {field.id for field in fields if isinstance(field, ast.Name)}
    return "text_config" in names and "vocab_size" not in names


def composite_message(model_type: str, task: TaskName) -> str:
    """The error message for a composite architecture that is named for a new model of texts."""
    text_types = [name for name in (f"{model_type}_text", f"{model_type}_text_model") if name in types_for(task)]
    advice = f"take {text_types[0]}, with its settings" if text_types else "take an architecture for text alone"
    return f"{model_type} reads more than text, and its settings for text are in a part of its configuration; {advice}"


def optional_settings(model_type: str) -> frozenset[str]:
    """Settings that an architecture's network reads with a default; the configuration class need not have them."""
    files = sorted(_folder(model_type).glob("modeling_*.py"))
    return frozenset(name for file in files for name in READ_WITH_DEFAULT.findall(file.read_text(encoding="utf-8")))


def _folder(model_type: str) -> Path:
    special = _table("auto_mappings.py", "SPECIAL_MODEL_TYPE_TO_MODULE_NAME")
    return _package() / "models" / special.get(model_type, model_type.replace("-", "_"))


@cache
def _package() -> Path:
    """The folder of transformers, located without importing it."""
    spec = find_spec("transformers")
    return Path(spec.origin).parent if spec and spec.origin else Path()


@cache
def _tree(file: Path) -> ast.Module:
    return ast.parse(file.read_bytes()) if file.is_file() else ast.Module([], [])


@cache
def _table(file: str, name: str) -> dict[str, str]:
    """A table of names: NAME = OrderedDict([(key, value), ...])."""
    for node in _tree(_package() / "models" / "auto" / file).body:
        if not isinstance(node, ast.Assign) or not isinstance(node.value, ast.Call):
            continue
        if [ast.unparse(target) for target in node.targets] == [name] and len(node.value.args) == 1:
            return _pairs(node.value.args[0])
    return {}


def _pairs(node: ast.expr) -> dict[str, str]:
    """The pairs in a list, by key; a value that is not a string becomes ""."""
    pairs: dict[str, str] = {}
    for entry in node.elts if isinstance(node, ast.List) else ():
        match entry:
            case ast.Tuple([ast.Constant(str(key)), value]):
                pairs[key] = value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""
    return pairs


def _config_class(model_type: str) -> ConfigClass | None:
    """The class of an architecture's configuration; None if it is not found."""
    name = _table("auto_mappings.py", "CONFIG_MAPPING_NAMES").get(model_type)
    return _find_class(name, sorted(_folder(model_type).glob("configuration_*.py"))) if name else None


def _find_class(name: str, files: list[Path]) -> ConfigClass | None:
    """The class of this name in the first file that defines it."""
    for file in files:
        for node in _tree(file).body:
            if isinstance(node, ast.ClassDef) and node.name == name:
                return ConfigClass(node, file)
    return None


def _setting_names(config_class: ConfigClass) -> Iterator[str]:
    """The names that look like settings in a class and its bases; some of them may not be.

    Raises:
        LookupError: a base is not found.
    """
    for node in config_class.node.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
    for child in ast.walk(config_class.node):
        match child:
            case ast.Attribute(ast.Name("self"), name, ast.Store()):
                yield name
            case ast.Constant(str(text)) if text.isidentifier():
                yield text  # kwargs.pop("name"), and the names in attribute_map
            case ast.arg(name):
                yield name  # the parameters of an explicit __init__
    for base in config_class.node.bases if config_class.node.name != ROOT else ():
        yield from _setting_names(_base(ast.unparse(base), config_class.file))


def _base(name: str, file: Path) -> ConfigClass:
    """The class of this name, defined in the file or imported into it."""
    if local_class := _find_class(name, [file]):
        return local_class
    for node in ast.walk(_tree(file)):
        if isinstance(node, ast.ImportFrom) and name in {alias.name for alias in node.names}:
            folder = file.parents[node.level - 1] if node.level else Path()
            if imported := _find_class(name, [folder.joinpath(*(node.module or "").split(".")).with_suffix(".py")]):
                return imported
    raise LookupError(name)
