"""The champion as a step's input: found in the registry, fetched where the store lacks it, and checked.

A champion that is there and cannot be measured must not let a student pass: why not is kept in the run's folder, and
the gate fails closed on it.
"""

import shutil
from pathlib import Path

from understudy.errors import UnderstudyError
from understudy.recipe import Recipe
from understudy.steps.environment import tracking_uri
from understudy.store import Run, Store
from understudy.store.files import read_json, write_json

FILE = "champion.json"


def champion_input(store: Store, run: Run, examples: str) -> dict[str, str]:
    """The champion's digest by its role; nothing when there is none, or none that can be measured on these examples.

    Why it cannot is written into the run's folder.
    """
    problem, found = "", {}
    try:
        found = _champion(store, run)
        for champion in found.values():
            _check_meaning(store.objects.path(champion), store.objects.path(examples))
    except UnderstudyError as error:
        problem, found = str(error), {}
    write_json(run.folder / FILE, {"problem": problem})
    return found


def champion_problem(run: Run) -> str:
    """Why the champion could not be measured; empty when it was, or when there is none."""
    return str((read_json(run.folder / FILE) or {}).get("problem", ""))


def _champion(store: Store, run: Run) -> dict[str, str]:
    from understudy.registry.champion import champion, fetch

    uri = tracking_uri(store)
    found = champion(uri, Recipe.model_validate(run.recipe).model_name)
    if found is None:
        return {}
    run.use(found.digest)
    if store.objects.damage(found.digest):
        folder = run.folder / "champion"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        manifest = fetch(uri, found, folder)
        store.objects.publish(folder, manifest.kind, manifest.inputs, manifest.facts)
    return {"champion": found.digest}


def _check_meaning(champion: Path, examples: Path) -> None:
    """Refuse a champion to which these examples' labels, pixels or tokens mean something else than to the student."""
    own, ours = read_json(champion / "understudy.json"), read_json(examples / "examples.json")
    same = all(own.get(key) == ours.get(key) for key in ("task", "labels", "image", "vocab_size"))
    tokenizers = [folder / "tokenizer.json" for folder in (champion, examples)]
    if not same or len({path.read_bytes() if path.exists() else b"" for path in tokenizers}) > 1:
        raise UnderstudyError(
            "the champion was trained for other labels, image sizes or tokens than this run's data has; give the alias "
            "champion to a version that fits, remove the alias, or set register.model to another name"
        )
