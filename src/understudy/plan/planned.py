"""A training as the planner has it: descriptions in place of models, and placeholders in place of data."""

from collections.abc import Mapping
from dataclasses import dataclass

from understudy.jobs.payload import TrainingSettings
from understudy.models.facts import Description
from understudy.plan.placeholders import PlaceholderExamples
from understudy.recipe import Train


@dataclass(frozen=True)
class Planned:
    """A training, with descriptions of its models and placeholders for its data."""

    settings: TrainingSettings
    model: Description
    teachers: Mapping[str, Description]
    """By name, in the recipe's order."""
    examples: PlaceholderExamples
    cached: frozenset[str] = frozenset()
    """The teachers whose logits are cached: they are not in memory."""

    @property
    def train(self) -> Train:
        """The settings of the loop."""
        return self.settings.train
