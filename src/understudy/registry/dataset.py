"""The data set of a run as MLflow shows it: where it came from, the digest of its examples, and how many there are."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from understudy.recipe import Recipe
from understudy.registry.params import flat
from understudy.store.files import read_json

if TYPE_CHECKING:
    from mlflow.entities import Dataset

DIGEST = 36  # characters of a digest that MLflow keeps


def dataset(recipe: Recipe, examples: Path, digest: str) -> "Dataset":
    """A run's examples as a data set of MLflow's.

    Args:
        recipe: the run's recipe.
        examples: the folder of the examples object.
        digest: its digest.
    """
    from mlflow.entities import Dataset

    source = flat(recipe.data.source.model_dump(mode="json"))
    facts = read_json(examples / "examples.json")
    counted = {key: facts[key] for key in ("counts", "tokens", "vocab_size", "labels", "skipped") if key in facts}
    return Dataset(
        name=Path(source["path"]).name if "path" in source else source["type"],
        digest=digest[:DIGEST],
        source_type=source["type"],
        source=json.dumps(source),
        schema=json.dumps(_schema(facts)),
        profile=json.dumps(counted),
    )


def _schema(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of the examples, as MLflow writes it for its pages."""
    import numpy as np
    from mlflow.data.schema import TensorDatasetSchema
    from mlflow.types.schema import ColSpec, DataType, Schema, TensorSpec

    if facts["task"] == "causal-lm":
        return {"mlflow_colspec": Schema([ColSpec(DataType.string, "text")]).to_dict()}
    image = facts["image"]
    pixels = TensorSpec(np.dtype("uint8"), (-1, image["channels"], image["size"], image["size"]))
    labels = TensorSpec(np.dtype("int64"), (-1,))
    return dict(TensorDatasetSchema(Schema([pixels]), Schema([labels])).to_dict())
