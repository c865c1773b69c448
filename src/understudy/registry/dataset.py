"""A run's data set in MLflow: its source, the digest of its examples, and their number."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from understudy.models.facts import Facts, read_facts
from understudy.recipe import Recipe
from understudy.registry.params import flat

if TYPE_CHECKING:
    from mlflow.entities import Dataset

DIGEST = 36  # characters; MLflow's limit
COUNTED = ("counts", "tokens", "vocab_size", "labels", "skipped")
"""The fields of examples.json that quantify the data."""


def dataset(recipe: Recipe, examples: Path, digest: str) -> "Dataset":
    """A run's examples as an MLflow data set.

    Args:
        recipe: the run's recipe.
        examples: the folder of the examples object.
        digest: the object's digest.
    """
    from mlflow.entities import Dataset

    source = flat(recipe.data.source.model_dump(mode="json"))
    facts = read_facts(examples)
    counted = {key: value for key, value in facts.items() if key in COUNTED}
    return Dataset(
        name=Path(source["path"]).name if "path" in source else source["type"],
        digest=digest[:DIGEST],
        source_type=source["type"],
        source=json.dumps(source),
        schema=json.dumps(_schema(facts)),
        profile=json.dumps(counted),
    )


def _schema(facts: Facts) -> Mapping[str, object]:
    """The schema of the examples, in MLflow's format for its pages."""
    import numpy as np
    from mlflow.data.schema import TensorDatasetSchema
    from mlflow.types.schema import ColSpec, DataType, Schema, TensorSpec

    if "image" not in facts:
        return {"mlflow_colspec": Schema([ColSpec(DataType.string, "text")]).to_dict()}
    image = facts["image"]
    pixels = TensorSpec(np.dtype("uint8"), (-1, image["channels"], image["size"], image["size"]))
    labels = TensorSpec(np.dtype("int64"), (-1,))
    return dict(TensorDatasetSchema(Schema([pixels]), Schema([labels])).to_dict())
