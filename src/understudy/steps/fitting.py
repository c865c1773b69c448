"""Check that pretrained models fit the examples' tokenizer and vocabulary, before anything is trained.

The first training checks the models of all learners: a student is fetched after its teachers, which may train for days.
Models that a recipe builds get the vocabulary of the examples.
"""

from pathlib import Path

import numpy as np

from understudy.data.model_tokenizer import has_tokenizer, misfits
from understudy.errors import InputError, printable
from understudy.evaluate.task import evaluated_task
from understudy.models.facts import read_facts
from understudy.models.hub import Unreachable
from understudy.models.pretrained import expected_description
from understudy.recipe import PretrainedModel, Recipe
from understudy.recipe.data import Tokenizer
from understudy.recipe.roles import STUDENT
from understudy.steps.step import Work

SAMPLES = 32
"""Maximum number of test examples whose texts are compared."""


def check_models_fit(work: Work, examples: Path, section: str) -> None:
    """Check that all pretrained models of a recipe for texts have the examples' tokens.

    Args:
        work: the context of a training, or of the fetching of a model.
        examples: the examples object of the training.
        section: the path of its model in the recipe; notes are on this model alone.

    Raises:
        InputError: a model's tokenizer, end token, chat template or number of tokens differs; one message a line.
    """
    recipe = work.recipe
    pretrained = {path: model for path, model in recipe.models.items() if isinstance(model, PretrainedModel)}
    if not recipe.takes("data.text") or not pretrained:
        return
    problems = []
    for path, model in pretrained.items():
        obstacle = ""
        try:
            if not _check(recipe, path, model, examples):
                obstacle = f"{model.pretrained} has no tokenizer.json"
        except Unreachable:  # an error only when it is fetched, unless it is cached by then
            obstacle = "the hub cannot be reached"
        except InputError as error:
            problems.append(str(error))
        if obstacle and path == section:
            work.run.note(f"{path}: {obstacle}, so its tokens were not compared with the data's")
    if problems:
        raise InputError("\n".join(problems))


def _check(recipe: Recipe, section: str, model: PretrainedModel, examples: Path) -> bool:
    """Check that a model has the examples' tokens, and enough of them; returns whether it has a tokenizer."""
    learner = section.removesuffix(".model")
    is_trained = bool(recipe.learners[learner].trainings)
    settings, key_path = Tokenizer(pretrained=model.pretrained, revision=model.revision), f"{section}.pretrained"
    is_compared = has_tokenizer(settings, key_path)
    if is_compared:
        found = misfits(settings, examples, _texts(examples), key_path, chats=recipe.takes("data.chat"))
        misfit = next((misfit for misfit in found if not (is_trained and misfit.is_learned)), None)
        if misfit:
            fix = _fix(recipe, learner, model, is_learned=misfit.is_learned)
            raise InputError(printable(f"{key_path}: {model.pretrained} does not fit the data: {misfit.reason}. {fix}"))
    if not model.trust_remote_code:  # only jobs run this code: this process has credentials
        expected_description(model, read_facts(examples), section, "new" if is_trained else "kept")
    return is_compared


def _texts(examples: Path) -> list[str]:
    """Texts of some test examples."""
    facts = read_facts(examples)
    task = evaluated_task(facts["task"])
    count = len(task.lengths(examples)[0])
    numbers = np.unique(np.linspace(0, count - 1, min(count, SAMPLES)).astype(int)).tolist()
    return [str(task.shown(examples, facts, number)) for number in numbers]


def _fix(recipe: Recipe, learner: str, model: PretrainedModel, *, is_learned: bool) -> str:
    if learner == STUDENT:
        return (
            f"Take a model with the tokenizer of the data, or give {learner}.model a type and a config: such a model "
            "is built for the data's tokenizer."
        )
    tokenizer, changes = recipe.text.tokenizer, []
    if (tokenizer.pretrained, tokenizer.revision) != (model.pretrained, model.revision):
        revision = f", revision: {model.revision}" if model.revision else ""
        changes.append(f"set data.text.tokenizer: {{pretrained: {model.pretrained}{revision}}}")
    if is_learned and recipe.takes("data.chat") and recipe.chat.template:
        changes.append("remove data.chat.template")
    fix = " and ".join(changes) or "take another model"
    trained = f", or give {learner} a section train, so that it learns the data's" if is_learned else ""
    return f"{fix[0].upper()}{fix[1:]}{trained}."
