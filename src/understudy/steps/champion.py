"""The champion as a step's input: looked up in the registry, fetched if the store lacks it, and checked.

A champion that exists but cannot be measured must not let a student pass: the reason is written into the run's
folder, and the gate fails closed on it.
"""

import shutil
from collections.abc import Mapping

from understudy.errors import Forbidden, UnderstudyError
from understudy.graph import EXAMPLES
from understudy.models.trust import same_tokenizer, trusted_champion, trusted_descriptions
from understudy.recipe import PretrainedModel, Recipe
from understudy.recipe.roles import CHAMPION, section_of
from understudy.steps.environment import tracking_uri
from understudy.steps.evidence import roles
from understudy.steps.foreign import foreign_results
from understudy.store import Run, Store
from understudy.store.files import read_json, write_json

FILE = "champion.json"
MISFIT = (
    "the champion was trained for other labels or tokens than this run's data has; give the alias champion to a "
    "version that fits, remove the alias, or set register.model to another name"
)


def champion_input(store: Store, run: Run, inputs: Mapping[str, str]) -> dict[str, str]:
    """The champion's digest by its role; empty if there is none, or if it cannot be measured on the examples.

    A champion that understudy did not make has the digest of its results instead, with the role `foreign`. If the
    champion needs images of another shape, the digest of the records for making them is added. If it cannot be
    measured, the reason is written into the run's folder.

    Args:
        store: where the champion is fetched to.
        run: the run that needs it.
        inputs: the digests, by role, of the examples and of the models that are measured with it.

    Raises:
        Forbidden: the registry refuses this account. This is no verdict on the student.
    """
    problem, digests = "", {}
    try:
        digests = _champion(store, run, inputs[EXAMPLES])
        if CHAMPION in digests:
            _check_code(store, run, digests[CHAMPION], inputs)
            digests |= _records(store, run, digests[CHAMPION], inputs[EXAMPLES])
    except Forbidden:
        raise
    except UnderstudyError as error:
        problem, digests = str(error), {}
    write_json(run.folder / FILE, {"problem": problem})
    return digests


def champion_problem(run: Run) -> str:
    """Why the champion could not be measured; empty if it was, or if there is none."""
    return str((read_json(run.folder / FILE) or {}).get("problem", ""))


def _champion(store: Store, run: Run, examples: str) -> dict[str, str]:
    from understudy.registry.champion import champion, fetch
    from understudy.registry.foreign import Foreign

    uri = tracking_uri(store)
    current = champion(uri, Recipe.model_validate(run.recipe).model_name)
    if current is None:
        return {}
    if isinstance(current, Foreign):
        return {"foreign": foreign_results(store, run, current, examples)}
    run.use(current.digest)
    if store.objects.damage(current.digest):
        folder = run.folder / "champion"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        manifest = fetch(uri, current, folder)
        store.objects.publish(folder, manifest.kind, manifest.inputs, manifest.facts)
    return {CHAMPION: current.digest}


def _check_code(store: Store, run: Run, champion: str, inputs: Mapping[str, str]) -> None:
    """Refuse a champion that needs other code than this run's models."""
    recipe = Recipe.model_validate(run.recipe)
    models = recipe.models
    sections = {role: section_of(role) for role in roles(recipe) if role in inputs}
    pretrained = [role for role, section in sections.items() if isinstance(models[section], PretrainedModel)]
    folders = {role: store.objects.path(inputs[role]) for role in pretrained}
    ours = trusted_descriptions(folders, models, store.objects.path(inputs[EXAMPLES])).values()
    trusted_champion(store.objects.path(champion), models, ours)


def _records(store: Store, run: Run, champion: str, examples: str) -> dict[str, str]:
    """The digest of the examples' records by its role, if the champion's images have to be made from them.

    Raises:
        UnderstudyError: the champion cannot be measured on these examples.
    """
    facts = read_json(store.objects.path(champion) / "understudy.json")
    expected = read_json(store.objects.path(examples) / "examples.json")
    _check_meaning(facts, expected)
    if not same_tokenizer(store.objects.path(champion), store.objects.path(examples)):
        raise UnderstudyError(MISFIT)
    if facts.get("image") == expected.get("image"):
        return {}
    manifest = store.objects.manifest(examples)
    assert manifest is not None
    records = manifest.inputs["records"]
    run.use(records)
    if store.objects.damage(records):
        size, background = facts["image"]["size"], facts["image"].get("background", "white")
        raise UnderstudyError(
            f"the champion sees images of {size} x {size} pixels on {background}, and the records that they are made "
            "from are not in the store, or damaged; run again, and they are made again"
        )
    return {"records": records}


def _check_meaning(facts: Mapping[str, object], expected: Mapping[str, object]) -> None:
    """Refuse a champion whose task, labels or vocabulary size differ from the examples'."""
    if any(facts.get(key) != expected.get(key) for key in ("task", "labels", "vocab_size")):
        raise UnderstudyError(MISFIT)
