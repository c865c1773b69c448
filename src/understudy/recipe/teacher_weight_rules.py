"""The rules of an objective's teacher_weights: they are of its teachers, and it has several."""

from collections.abc import Iterator, Mapping

from understudy.recipe.key_path import Conflict
from understudy.recipe.learners import teacher_objectives
from understudy.recipe.logits import Sampled
from understudy.recipe.objectives import EnsembleObjective
from understudy.recipe.schema import Recipe

NOT_OF_SAMPLES = (
    "{} weighs teachers by probabilities that a sample does not show, and the logits of {} are cached as one; cache "
    "the top_k or a nucleus, or give each teacher a number"
)


def teacher_weight_conflicts(recipe: Recipe) -> Iterator[Conflict]:
    """The contradictions between objectives' weights of teachers and the rest of a recipe without other mistakes."""
    for path, key_path, section in teacher_objectives(recipe):
        if not isinstance(section, EnsembleObjective) or section.teacher_weights == "equal":
            continue
        weights, names = section.teacher_weights, section.names(tuple(recipe.all_teachers))
        reasons = [f"weighs several teachers, and the objective has one, {names[0]}; remove it"]
        if len(names) > 1:
            reasons = list(_numbers(weights, names)) if isinstance(weights, dict) else []
        if weights == "label" and recipe.trainings[path].train.mixed:
            reasons.append(
                "label compares teachers with the label, and a mixed image has two; leave augment.mixup out, or take "
                "confidence"
            )
        if isinstance(weights, str):
            reasons += [NOT_OF_SAMPLES.format(weights, name) for name in names if _is_sampled(recipe, name)]
        yield from (((*key_path, "teacher_weights"), why) for why in reasons)


def _is_sampled(recipe: Recipe, name: str) -> bool:
    return isinstance(recipe.logit_cache(name), Sampled)


def _numbers(weights: Mapping[str, float], names: tuple[str, ...]) -> Iterator[str]:
    for name in weights:
        if name not in names:
            yield f"the objective has no teacher {name}; name {', '.join(names)}"
    for name in names:
        if name not in weights:
            yield f"{name} has no weight; give it one, which may be 0"
    if not any(weights.values()):
        yield "all weights are 0; give a teacher a weight above 0"
