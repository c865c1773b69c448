"""The tasks of lm-eval that a recipe names, as data: their YAML files, and the local files with their documents.

Here they are read as lm-eval reads them, but nothing in them runs: the process that computes keys and launches jobs may
have credentials. Python functions (`!function`, `class`) are refused, and so is everything that would be fetched.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from understudy.errors import InputError
from understudy.recipe import LmEval
from understudy.store.files import Fingerprints

INCLUDE, TASKS = "evaluate.lm_eval.include", "evaluate.lm_eval.tasks"
FORMATS = ("json", "csv", "parquet")
"""Values of dataset_path that name a format of the files in dataset_kwargs.data_files."""
SUFFIXES = frozenset({".json", ".jsonl", ".csv", ".parquet"})
"""The files of a folder of documents."""
OUTPUT_TYPES = ("loglikelihood", "multiple_choice", "loglikelihood_rolling", "generate_until")
OPTIONS = frozenset({"data_files", "field", "delimiter", "sep", "column_names", "quotechar"})
"""Allowed keys of dataset_kwargs: others name places, or credentials."""
LENGTHS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
"""The most tokens of an answer under its several names; the first one that is given counts, as in lm-eval."""
GREEDY = frozenset({"until", "do_sample", "temperature", *LENGTHS})
"""Allowed keys of generation_kwargs."""
DEFAULT_LENGTH = 256
"""lm-eval's, if a task does not give one."""
REFUSED = {
    "class": "a task in Python",
    "custom_dataset": "a data set in Python",
    "unsafe_code": "a task that runs what models write",
    "use_prompt": "a prompt of promptsource, which is fetched",
    "doc_to_image": "a task with images",
    "doc_to_audio": "a task with sound",
}
STRUCTURE = frozenset({"tag", "group", "task_list", "task_alias"})
"""Keys of lists of tasks, which are no settings of a task."""
Config = dict[str, Any]
"""A task's settings, with those of the files that it includes."""


@dataclass(frozen=True)
class Benchmark:
    """A task: its settings, and its files by the names that these have for them, relative to a folder of all tasks."""

    config: Config
    files: Mapping[str, Path]

    def identity(self, fingerprints: Fingerprints) -> Mapping[str, object]:
        """What decides its prompts and answers: settings, and files by content, wherever they lie."""
        return {"config": self.config, "files": {name: fingerprints.file(path) for name, path in self.files.items()}}


def benchmarks(section: LmEval, length: int) -> list[Benchmark]:
    """The tasks of a recipe, in its order.

    Args:
        section: evaluate.lm_eval.
        length: the models' sequence length, in tokens.

    Raises:
        InputError: there is no such task, a file is missing or no YAML of a task, or a task needs code or a download.
    """
    root = Path(section.include)
    if not root.is_dir():
        raise InputError(f"{INCLUDE}: {root} is no folder; give that of the tasks' YAML files")
    paths = _tasks(root)
    for name in section.tasks:
        if name not in paths:
            raise InputError(f"{TASKS}: {root} has no task {name}; it has {', '.join(sorted(paths)) or 'none'}")
    return [_benchmark(name, paths[name], root, length) for name in section.tasks]


def _tasks(root: Path) -> dict[str, Path]:
    """The files of tasks below a folder, by the task's name; those of groups and shared settings have none."""
    paths: dict[str, Path] = {}
    for path in sorted(root.rglob("*.yaml")):
        name = _settings(path).get("task")
        if not isinstance(name, str):
            continue
        if name in paths:
            raise InputError(f"{path}: the task {name} is in {paths[name]}, too; rename one of them")
        paths[name] = path
    return paths


class _Loader(yaml.SafeLoader):
    """YAML as lm-eval reads it, without its tag !function."""


class _Function(str):
    """A Python function that a file names."""

    line: int


def _function(loader: yaml.SafeLoader, node: yaml.ScalarNode) -> _Function:
    function = _Function(loader.construct_scalar(node))
    function.line = node.start_mark.line + 1
    return function


_Loader.add_constructor("!function", _function)


def _settings(path: Path) -> Config:
    """The content of a YAML file."""
    try:
        content = yaml.load(path.read_bytes(), _Loader)
        json.dumps(content, default=_not_plain, allow_nan=False).encode()
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise InputError(f"{path}:{mark.line + 1 if mark else 1}: not YAML: {error.problem}; correct it") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(f"{path}:1: not the YAML of a task ({error}); correct it") from error
    if not isinstance(content, dict):
        raise InputError(f"{path}:1: has no settings; give task: NAME and the task's other keys, or remove the file")
    return content


def _not_plain(value: object) -> None:
    raise ValueError(f"{value!r:.40} is a {type(value).__name__}: put it in quotes")


def _merged(path: Path, root: Path, including: tuple[Path, ...] = ()) -> Config:
    """A file's settings after those of the files that it includes, as lm-eval merges them."""
    if path in including:
        raise InputError(f"{path}: includes itself; remove one of the includes")
    settings, merged = _settings(path), Config()
    includes = settings.pop("include", [])
    for name in includes if isinstance(includes, list) else [includes]:
        included = (path.parent / str(name)).resolve()
        if not included.is_relative_to(root.resolve()) or not included.is_file():
            raise InputError(f"{path}: include: {name} is no file in {root}; put it there")
        merged |= _merged(included, root, (*including, path))
        merged.pop("task_list", None)
    return merged | settings


def _benchmark(name: str, path: Path, root: Path, length: int) -> Benchmark:
    config = _merged(path.resolve(), root)
    _check_plain(path, config)
    _check_settings(path, config, length)
    options = _options(path, config)
    source, given = config.get("dataset_path"), options.pop("data_files", None)
    if source in FORMATS:
        splits = _by_split(path, config, given)
        paths = dict.fromkeys(file for files in splits.values() for file in files)
        names = {file: f"{name}/{number}{file.suffix}" for number, file in enumerate(paths)}
        options["data_files"] = {split: [names[file] for file in files] for split, files in splits.items()}
    else:
        folder = _folder(path, source)
        source = name
        names = {file: f"{name}/{file.relative_to(folder).as_posix()}" for file in _files_in(path, folder)}
    kept = {key: value for key, value in config.items() if key not in STRUCTURE}
    config = {**kept, "dataset_path": source, "dataset_kwargs": options}
    return Benchmark(config, {place: file for file, place in names.items()})


def _check_plain(path: Path, config: Config) -> None:
    """Refuse Python, and what only some models take."""
    for function in _functions(config):
        raise InputError(
            f"{path}: !function {function} (line {function.line} of its file) is code, and tasks are data here; say it "
            "in the templates (doc_to_text, doc_to_target, doc_to_choice), or change the documents instead"
        )
    for key, what in REFUSED.items():
        if config.get(key):
            raise InputError(f"{path}: {key}: {what} cannot be run here; remove it, or leave the task out")
    for metric in config.get("metric_list") or ():
        if not isinstance(metric, dict) or metric.get("hf_evaluate") or not isinstance(metric.get("metric"), str):
            raise InputError(f"{path}: metric_list: {metric} is no metric of lm-eval's own; give {{metric: NAME}}")


def _functions(value: object) -> Iterator[_Function]:
    if isinstance(value, _Function):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _functions(item)
    elif isinstance(value, list):
        for item in value:
            yield from _functions(item)


def _check_settings(path: Path, config: Config, length: int) -> None:
    """Check the type of output, and that answers are greedy and leave room for a prompt."""
    output_type = config.get("output_type", "generate_until")
    if output_type not in OUTPUT_TYPES:
        raise InputError(f"{path}: output_type: {output_type} is none of {', '.join(OUTPUT_TYPES)}")
    if not any(config.get(f"{split}_split") for split in ("test", "validation")):
        raise InputError(f"{path}: names no documents to score; give test_split or validation_split")
    if output_type != "generate_until":
        return
    options = config.get("generation_kwargs") or {}
    for key, value in options.items():
        if key not in GREEDY or (key in ("do_sample", "temperature") and value):
            raise InputError(f"{path}: generation_kwargs: {key}: {value} is refused: answers are greedy; remove it")
    given = [options[key] for key in LENGTHS if options.get(key) is not None]
    tokens = given[0] if given else DEFAULT_LENGTH
    if not isinstance(tokens, int) or not 0 < tokens < length:
        raise InputError(
            f"{path}: generation_kwargs.max_gen_toks is {tokens}{'' if given else ' by default'}, and sequences have "
            f"{length} tokens (data.text.sequence_length): leave room for the prompt"
        )


def _options(path: Path, config: Config) -> Config:
    """The options of reading."""
    options = {key: value for key, value in (config.get("dataset_kwargs") or {}).items() if key != "trust_remote_code"}
    for key in options:
        if key not in OPTIONS:
            raise InputError(f"{path}: dataset_kwargs: {key} is refused; use {', '.join(sorted(OPTIONS))} alone")
    return options


def _by_split(path: Path, config: Config, given: object) -> dict[str, list[Path]]:
    """The files of a task's documents by split."""
    if not given:
        source = config["dataset_path"]
        raise InputError(f"{path}: dataset_path: {source} needs dataset_kwargs: {{data_files: {{test: FILE}}}}")
    by_split = given if isinstance(given, dict) else {"train": given}
    splits = {str(split): [_file(path, name) for name in _listed(names)] for split, names in by_split.items()}
    for key in ("training_split", "validation_split", "test_split", "fewshot_split"):
        if (split := config.get(key)) and split not in splits:
            raise InputError(f"{path}: {key}: data_files have no split {split}, only {', '.join(splits)}")
    return splits


def _folder(path: Path, source: object) -> Path:
    folder = (path.parent / Path(source).expanduser()).resolve() if isinstance(source, str) and source else None
    if folder is None or not folder.is_dir():
        raise InputError(
            f"{path}: dataset_path: {source} is neither a folder nor one of {', '.join(FORMATS)}, and nothing is "
            "fetched from a hub; save the documents, and give dataset_path: json with dataset_kwargs: "
            "{data_files: {test: FILE.jsonl}}"
        )
    return folder


def _files_in(path: Path, folder: Path) -> list[Path]:
    files = sorted(file for file in folder.rglob("*") if file.is_file() and file.suffix in SUFFIXES)
    if not files:
        raise InputError(f"{path}: dataset_path: {folder} has no {', '.join(sorted(SUFFIXES))} files")
    return files


def _listed(names: object) -> Sequence[object]:
    return names if isinstance(names, list) else [names]


def _file(path: Path, name: object) -> Path:
    file = (path.parent / Path(str(name)).expanduser()).resolve()
    if not isinstance(name, str) or "://" in name or not file.is_file():
        raise InputError(f"{path}: data_files: there is no file {name}; relative paths start at the YAML's folder")
    return file
