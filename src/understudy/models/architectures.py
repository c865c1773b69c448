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
"""Names of settings in other libraries."""
LANGUAGE_HEADS = ("ForCausalLM", "ForConditionalGeneration", "ForMaskedLM", "ForPreTraining")
ASKED = re.compile(r'getattr\((?:self\.)?config, "(\w+)"')


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
    found = _config_class(model_type)
    if found is None:
        return None
    try:
        return frozenset(_names(found)) | asked_for(model_type)
    except LookupError:
        return None


def aliases(model_type: str) -> dict[str, str]:
    """Aliases of an architecture's settings that transformers accepts, such as n_head for num_attention_heads."""
    found = _config_class(model_type)
    for node in found.node.body if found else ():
        match node:
            case ast.Assign([ast.Name("attribute_map")], ast.Dict() as table):
                return dict(ast.literal_eval(table))
    return {}


def depth(model_type: str, config: Mapping[str, Any]) -> int | None:
    """The number of layers in a configuration; None if it is left to the architecture."""
    name = "num_hidden_layers"
    found = config.get(name, config.get(aliases(model_type).get(name, name)))
    return found if isinstance(found, int) else None


def given_twice(names: Mapping[str, str], config: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Settings given under two names, of which transformers silently ignores one.

    Args:
        names: other names of the architecture's settings, as `aliases` returns them.
        config: the names of all given settings, of the recipe and the data.

    Yields:
        A name and the problem.
    """
    given: dict[str, str] = {}
    for name in config:
        if (first := given.setdefault(names.get(name, name), name)) != name:
            yield name, f"is another name of {first}, which has a value already; leave it out"


def meant(word: str, known: Iterable[str]) -> str:
    """A suggestion of the closest name, to append to an error message; empty if none is close."""
    names = sorted(name for name in known if not name.startswith("_"))
    near = (
        difflib.get_close_matches(word, names, 1, cutoff=0.9)  # n_heads means n_head if that exists
        or [name for name in (OTHER_NAMES.get(word),) if name in names]
        or difflib.get_close_matches(word, names, 1)
    )
    return f"; did you mean {near[0]}?" if near else ""


def other_head(config: Mapping[str, Any], task: TaskName) -> str | None:
    """The class that a config.json names, if it is for another task; None otherwise.

    transformers loads a language model from weights with any head, drops the head, and gives no warning if the last
    layer is tied. A class without a head is accepted: it is a base model, whose last layer may be tied too.
    """
    named = config.get("architectures")
    if load(task).LABELLED or not isinstance(named, list):
        return None
    names = [name for name in named if isinstance(name, str)]
    known = set(_table("modeling_auto.py", load(task).ARCHITECTURES).values())
    fits = any(name in known or "For" not in name or name.endswith(LANGUAGE_HEADS) for name in names)
    return None if fits or not names or config.get("auto_map") else names[0]


def is_composite(model_type: str) -> bool:
    """Whether an architecture's configuration is a composite, with a text configuration as a part."""
    found = _config_class(model_type)
    fields = [node.target for node in found.node.body if isinstance(node, ast.AnnAssign)] if found else []
    names = {field.id for field in fields if isinstance(field, ast.Name)}
    return "text_config" in names and "vocab_size" not in names


def composite(model_type: str, task: TaskName) -> str:
    """The error message for a composite architecture that is named for a new model of texts."""
    texts = [name for name in (f"{model_type}_text", f"{model_type}_text_model") if name in types_for(task)]
    advice = f"take {texts[0]}, with its settings" if texts else "take an architecture for text alone"
    return f"{model_type} reads more than text, and its settings for text are in a part of its configuration; {advice}"


def asked_for(model_type: str) -> frozenset[str]:
    """Settings that an architecture's network reads with a default; the configuration class need not have them."""
    files = sorted(_folder(model_type).glob("modeling_*.py"))
    return frozenset(name for file in files for name in ASKED.findall(file.read_text(encoding="utf-8")))


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
    found: dict[str, str] = {}
    for entry in node.elts if isinstance(node, ast.List) else ():
        match entry:
            case ast.Tuple([ast.Constant(str(key)), value]):
                found[key] = value.value if isinstance(value, ast.Constant) and isinstance(value.value, str) else ""
    return found


def _config_class(model_type: str) -> ConfigClass | None:
    """The class of an architecture's configuration; None if it is not found."""
    name = _table("auto_mappings.py", "CONFIG_MAPPING_NAMES").get(model_type)
    return _named(name, sorted(_folder(model_type).glob("configuration_*.py"))) if name else None


def _named(name: str, files: list[Path]) -> ConfigClass | None:
    """The class of this name in the first file that defines it."""
    for file in files:
        for node in _tree(file).body:
            if isinstance(node, ast.ClassDef) and node.name == name:
                return ConfigClass(node, file)
    return None


def _names(of: ConfigClass) -> Iterator[str]:
    """The names that look like settings in a class and its bases; some of them may not be.

    Raises:
        LookupError: a base is not found.
    """
    for node in of.node.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id
    for inner in ast.walk(of.node):
        match inner:
            case ast.Attribute(ast.Name("self"), name, ast.Store()):
                yield name
            case ast.Constant(str(text)) if text.isidentifier():
                yield text  # kwargs.pop("name"), and the names in attribute_map
            case ast.arg(name):
                yield name  # the parameters of an explicit __init__
    for base in of.node.bases if of.node.name != ROOT else ():
        yield from _names(_base(ast.unparse(base), of.file))


def _base(name: str, file: Path) -> ConfigClass:
    """The class of this name, defined in the file or imported into it."""
    if here := _named(name, [file]):
        return here
    for node in ast.walk(_tree(file)):
        if isinstance(node, ast.ImportFrom) and name in {alias.name for alias in node.names}:
            folder = file.parents[node.level - 1] if node.level else Path()
            if found := _named(name, [folder.joinpath(*(node.module or "").split(".")).with_suffix(".py")]):
                return found
    raise LookupError(name)
