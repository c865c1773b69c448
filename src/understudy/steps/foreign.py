"""The per-example results on the test split of a champion that understudy did not make, as an object.

They are computed once for each version and test split. The recipe has to allow it, since the champion's code runs.
"""

import math
import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from understudy.errors import UnderstudyError
from understudy.evaluate.contents import RESULTS
from understudy.recipe import Recipe
from understudy.recipe.roles import CHAMPION
from understudy.steps.environment import tracking_uri
from understudy.store import Run, Store
from understudy.store.files import canonical, read_json, sha256, write_json
from understudy.store.step_cache import CachedStep

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from understudy.registry.foreign import Foreign

KIND = "foreign-results"
RECORD = "champion.json"


def foreign_results(store: Store, run: Run, champion: "Foreign", examples: str) -> str:
    """The digest of the champion's results on these examples.

    Raises:
        UnderstudyError: the recipe does not allow it, or the champion cannot be evaluated.
    """
    recipe = Recipe.model_validate(run.recipe)
    if not recipe.register_.trust_champion:
        raise UnderstudyError(
            f"{champion.words}, was not made by understudy: it has no digest (understudy.digest). Loading it runs its "
            "own code; if you trust that, set register.trust_champion to true, and the student is compared with its "
            "answers. Otherwise give the alias champion to a version that understudy registered, or remove it"
        )
    uri = tracking_uri(store)
    parts = {"step": KIND, "uri": sha256(uri.encode()), "name": champion.name, "version": champion.version}
    key = sha256(canonical({**parts, "examples": examples}))
    if cached := store.cached_step(key, run):
        return cached.digest
    began, work = time.monotonic(), Path(tempfile.mkdtemp(prefix=".foreign.", dir=store.folder / "work"))
    try:
        results = _results(store, champion, examples, uri, work)
        staged = work / "staged"
        staged.mkdir()
        _write(staged, champion, results)
        digest = store.objects.publish(staged, KIND, {"examples": examples})
    finally:
        shutil.rmtree(work, ignore_errors=True)
    run.use(digest)
    store.step_cache.put(CachedStep(key, KIND, parts, digest, time.monotonic() - began, time.time()))
    return digest


def _write(folder: Path, champion: "Foreign", results: "dict[str, NDArray[Any]]") -> None:
    import numpy as np

    np.savez_compressed(folder / RESULTS, allow_pickle=False, **results)
    write_json(folder / RECORD, {"name": champion.name, "version": champion.version})


def _results(store: Store, champion: "Foreign", examples: str, uri: str, scratch: Path) -> "dict[str, NDArray[Any]]":
    """Per-example sums, named like those of a model with the role champion."""
    import numpy as np

    from understudy.registry.foreign import predictions_of

    folder = store.objects.path(examples)
    facts = read_json(folder / "examples.json")
    if "labels" not in facts:
        sizes = np.load(folder / "test.bytes.npy")
        _, bits_per_byte = predictions_of(uri, champion, {"texts": _texts(store, examples, sizes)}, scratch)
        return {"champion.nll": bits_per_byte * sizes * math.log(2)}
    if "image" not in facts:
        raise UnderstudyError(
            f"{champion.words}, was not made by understudy, and such a champion can be evaluated on images and "
            "documents only. Give the alias champion to a version that understudy registered, or remove it"
        )
    targets, images = np.load(folder / "test.labels.npy"), np.load(folder / "test.images.npy")
    kind, predictions = predictions_of(uri, champion, {"images": images, "labels": list(facts["labels"])}, scratch)
    if kind == "labels":
        return {"champion.correct": (predictions == targets).astype(np.float64)}
    return _of_probabilities(predictions, targets)


def _of_probabilities(probabilities: "NDArray[Any]", targets: "NDArray[Any]") -> "dict[str, NDArray[Any]]":
    import numpy as np

    from understudy.evaluate.answers import by_role
    from understudy.evaluate.scoring import Scores

    rows = np.arange(len(targets))
    with np.errstate(divide="ignore"):
        nll = -np.log(probabilities[rows, targets])
    scores = Scores(len(targets))
    correct = (probabilities.argmax(axis=1) == targets).astype(np.float64)
    scores.add(rows, nll, correct, probabilities.max(axis=1).clip(0, 1))
    return by_role(CHAMPION, scores.arrays())


def _texts(store: Store, examples: str, sizes: "NDArray[Any]") -> list[str]:
    """The documents of the test split, in order."""
    from understudy.data.records import read

    manifest = store.objects.manifest(examples)
    records = manifest.inputs["records"] if manifest else ""
    if not records or store.objects.damage(records):
        raise UnderstudyError(
            "the champion reads texts, and the records with the texts are not in the store; run again"
        )
    contents = [record.content for group in read(store.objects.path(records), "test") for record in group]
    if [len(content) for content in contents] != sizes.tolist():
        raise UnderstudyError("the champion reads texts, and the examples have other documents than their records")
    return [content.decode() for content in contents]
