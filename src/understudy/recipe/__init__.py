"""The recipe, which defines a run: its sections, its rules, and its YAML."""

from understudy.recipe.data import Data, Image, Text
from understudy.recipe.evaluation import Evaluate, EvaluatePrecision, Gate, Generation
from understudy.recipe.lora import Lora
from understudy.recipe.models import ArchitectureModel, FactoryModel, Model, PretrainedModel, SavedLogits, SavedModel
from understudy.recipe.objectives import Objectives, ObjectiveSection
from understudy.recipe.roles import Candidate
from understudy.recipe.schema import (
    JobResources,
    Learner,
    Recipe,
    Resources,
    Student,
    Teacher,
    TeacherPrecision,
    Train,
)
from understudy.recipe.section import Section
from understudy.recipe.start import SavedLayers, Start
from understudy.recipe.strategy import (
    AXES,
    CommType,
    Compression,
    Degrees,
    Diloco,
    Pipeline,
    Recompute,
    StrategyName,
    degrees,
)
from understudy.recipe.tasks import MetricName, TaskName
from understudy.recipe.training import Augment, Guard, Optimizer, RandAugment, Schedule

__all__ = [
    "AXES",
    "ArchitectureModel",
    "Augment",
    "Candidate",
    "CommType",
    "Compression",
    "Data",
    "Degrees",
    "Diloco",
    "Evaluate",
    "EvaluatePrecision",
    "FactoryModel",
    "Gate",
    "Generation",
    "Guard",
    "Image",
    "JobResources",
    "Learner",
    "Lora",
    "MetricName",
    "Model",
    "ObjectiveSection",
    "Objectives",
    "Optimizer",
    "Pipeline",
    "PretrainedModel",
    "RandAugment",
    "Recipe",
    "Recompute",
    "Resources",
    "SavedLayers",
    "SavedLogits",
    "SavedModel",
    "Schedule",
    "Section",
    "Start",
    "StrategyName",
    "Student",
    "TaskName",
    "Teacher",
    "TeacherPrecision",
    "Text",
    "Train",
    "degrees",
]
