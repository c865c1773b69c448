"""Scores of models on tasks of lm-eval, by its own evaluator; writes benchmarks.json.

The tasks' templates run here, in a process without credentials. They may be any jinja, as the models may be any code.
"""

import json
import math
import os
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import datasets
import jinja2
import lm_eval
import numpy as np
import torch
from lm_eval.api.registry import metric_registry
from lm_eval.api.task import ConfigurableTask

from understudy.errors import InputError
from understudy.evaluate.benchmark_model import BenchmarkModel
from understudy.evaluate.benchmark_scores import CONTENTS, Benchmarks, Score, TaskFacts
from understudy.evaluate.benchmark_tasks import FORMATS, TASKS
from understudy.evaluate.loading import kind_of, load_models
from understudy.models.trust import trusted_descriptions
from understudy.recipe import LmEval, Recipe

LISTED = "tasks.json"
"""The tasks' settings, in the folder of their files."""
SEED, FEWSHOT_SEED = 0, 1234
"""lm-eval's own seeds: of Python, and of NumPy, torch and the choice of solved examples."""
RESAMPLES = 1000
"""Of lm-eval's bootstrap, for the standard errors of metrics that are no means."""
RAISED: tuple[type[Exception], ...] = (
    *(jinja2.TemplateError, datasets.exceptions.DatasetsError, datasets.exceptions.DatasetGenerationError),
    *(ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError, SyntaxError),
)
"""Exceptions of tasks whose settings and documents do not fit together."""


def benchmark(
    models: Mapping[str, Path],
    digests: Mapping[str, str],
    examples: Path,
    recipe: Recipe,
    tasks: Path,
    folder: Path,
    device: str,
    progress: Callable[[int], None],
) -> None:
    """Score models on the recipe's tasks, one after the other. Documents are read anew for each, from a cache.

    Args:
        models: a folder of a saved model for each role.
        digests: the models' digests by role.
        examples: the folder of an `examples` object.
        recipe: the settings.
        tasks: the folder of the tasks and their files.
        folder: output folder.
        device: cpu or cuda.
        progress: called before each batch, with the number of models that are done.

    Raises:
        InputError: a task's settings and documents do not fit together, or a metric is unknown.
    """
    settings, target_device = recipe.evaluate.lm_eval, torch.device(device)
    assert settings is not None
    descriptions = trusted_descriptions(models, recipe.models, examples)
    kind, chat = kind_of(recipe.evaluate.precision, target_device), recipe.takes("data.chat")
    results: dict[str, Any] = {}
    contents: Benchmarks = {
        "lm_eval": metadata.version("lm-eval"),
        "chat_template": chat,
        "tasks": {},
        "models": {},
    }
    _go_offline()
    for done, (role, path) in enumerate(models.items()):
        (module,) = load_models({role: path}, {role: descriptions[role]}, target_device, None, kind).values()
        model = BenchmarkModel(module, examples, settings.batch_size, target_device, partial(progress, done))
        results = _evaluated(model, _loaded(tasks, folder, settings), settings, chat=chat)
        scores = {name: list(_scores(results["results"][name], model.is_broken)) for name in settings.tasks}
        contents["models"][role] = {"digest": digests[role], "tasks": scores}
    contents["tasks"] = {name: _facts(results, name) for name in settings.tasks}
    (folder / CONTENTS).write_text(json.dumps(contents, indent=1, allow_nan=False) + "\n", encoding="utf-8")


def _go_offline() -> None:
    """Fetch nothing, start no processes, and draw no bars."""
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "DISABLE_MULTIPROC": "1"}
    datasets.config.HF_HUB_OFFLINE = True
    datasets.disable_progress_bars()


def _loaded(tasks: Path, folder: Path, settings: LmEval) -> dict[str, Any]:
    """The tasks by name, with their documents; `folder` has the cache of the documents."""
    import lm_eval.api.metrics  # noqa: F401 (fills the registry)

    loaded = {}
    for config in json.loads((tasks / LISTED).read_text(encoding="utf-8")):
        name, options = config["task"], config["dataset_kwargs"]
        for metric in config.get("metric_list") or ():
            if metric["metric"] not in metric_registry:
                known = ", ".join(sorted(metric_registry))
                raise InputError(f"{TASKS}: {name}: lm-eval has no metric {metric['metric']}; it has {known}")
        if config["dataset_path"] in FORMATS:
            files = options["data_files"].items()
            options["data_files"] = {split: [str(tasks / file) for file in names] for split, names in files}
        else:
            config["dataset_path"] = str(tasks / config["dataset_path"])
        options["cache_dir"] = str(folder / "cache")
        with _explained(name):
            task = ConfigurableTask(config=config)
        if settings.num_fewshot is not None and task.get_config("num_fewshot") != 0:
            task.set_config(key="num_fewshot", value=settings.num_fewshot)
        if task.get_config("num_fewshot") is None:
            task.set_config(key="num_fewshot", value=0)
        task.set_fewshot_seed(seed=FEWSHOT_SEED)
        loaded[name] = task
    return loaded


@contextmanager
def _explained(name: str) -> Iterator[None]:
    """Turn exceptions of a task into errors that name it."""
    try:
        yield
    except RAISED as error:
        message = " ".join(str(error).split())[:500]
        raise InputError(
            f"{TASKS}: {name}: lm-eval cannot ask it ({type(error).__name__}: {message}); compare its settings with "
            "the documents"
        ) from error


def _evaluated(model: BenchmarkModel, tasks: dict[str, Any], settings: LmEval, *, chat: bool) -> dict[str, Any]:
    """lm-eval's results, with the seeds of its simple_evaluate()."""
    random.seed(SEED)
    np.random.seed(FEWSHOT_SEED)
    torch.manual_seed(FEWSHOT_SEED)
    with _explained(", ".join(tasks)):
        results: dict[str, Any] = lm_eval.evaluate(
            lm=model,
            task_dict={"tasks": tasks, "groups": {}, "group_map": {}},
            limit=settings.limit,
            bootstrap_iters=RESAMPLES,
            log_samples=False,
            apply_chat_template=chat,
            fewshot_as_multiturn=chat,
        )
    return results


def _scores(results: Mapping[str, Any], is_broken: bool) -> Iterator[Score]:
    """The scores of a task, in lm-eval's order."""
    for key, value in results.items():
        metric, _, filter_name = key.partition(",")
        if filter_name and not metric.endswith("_stderr"):
            stderr = results.get(f"{metric}_stderr,{filter_name}")
            yield {
                "metric": metric,
                "filter": filter_name,
                "value": None if is_broken else _finite(value),
                "stderr": None if is_broken else _finite(stderr),
            }


def _finite(value: object) -> float | None:
    """A number; None for lm-eval's N/A, and for NaN."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or not math.isfinite(value):
        return None
    return float(value)


def _facts(results: Mapping[str, Any], name: str) -> TaskFacts:
    return {
        "examples": int(results["n-samples"][name]["effective"]),
        "num_fewshot": int(results["n-shot"][name]),
        "higher_is_better": dict(results["higher_is_better"][name]),
    }
