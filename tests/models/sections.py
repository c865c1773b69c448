"""Models as a recipe has them, written short."""

from typing import Any

from understudy.recipe import ArchitectureModel, FactoryModel


def section(spec: dict[str, Any]) -> ArchitectureModel | FactoryModel:
    return FactoryModel(**spec) if "factory" in spec else ArchitectureModel(**spec)
