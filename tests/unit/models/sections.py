"""Models as a recipe has them, written short."""

from typing import Any

from understudy.recipe import ArchitectureModel, FactoryModel, PretrainedModel


def section(spec: dict[str, Any]) -> ArchitectureModel | FactoryModel | PretrainedModel:
    if "pretrained" in spec:
        return PretrainedModel(**spec)
    return FactoryModel(**spec) if "factory" in spec else ArchitectureModel(**spec)
