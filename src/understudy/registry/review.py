"""Versions up for review: each challenger beside its model's champion, with its evidence and their differences."""

import difflib
import json
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from understudy.errors import InputError, UnderstudyError, printable
from understudy.evaluate.contents import Measures, Verdict
from understudy.recipe.roles import CONTROL, STUDENT
from understudy.registry import evidence
from understudy.registry.client import mlflow_at, server_at
from understudy.registry.names import CHALLENGER, CHAMPION, DIGEST
from understudy.registry.server import run_page
from understudy.registry.tracking import Version

LINEAGE = {"data": "examples", "teacher": "teacher", "code": "revision"}
"""The inputs of a version besides its recipe, and their tags."""
SHORT = 12  # characters of a digest shown to people


@dataclass(frozen=True)
class Review:
    """A version that may be promoted."""

    version: Version
    champion: Version | None
    """The model's current champion, possibly the version itself."""
    measures: Measures
    verdict: Verdict
    recipe: list[str]
    """The difference between the champion's recipe and its own, as lines of a unified diff."""
    page: str
    """The address of the run's evidence."""

    @property
    def digest(self) -> str:
        """The store's digest of its model."""
        return self.version.tags[DIGEST]

    def text(self) -> str:
        """The review in Markdown."""
        version = self.version
        lines = [f"# {version.name}, version {version.number}, {self._comparison()}", "", f"digest {self.digest}", ""]
        lines += evidence.findings(self.measures, self.verdict)
        lines += self._changes()
        return "\n".join(map(printable, [*lines, "", f"Evidence: {self.page}"]))

    def _comparison(self) -> str:
        if self.champion is None:
            return "against no champion: it would be the first"
        standing = self.champion == self.version
        return "the champion" if standing else f"against version {self.champion.number}, the champion"

    def _changes(self) -> Iterator[str]:
        if self.champion is None or self.champion == self.version:
            return
        yield from ("", "## Changes since the champion", "")
        yield from ("From the versions' tags, which were written by the accounts that made them:", "")
        for name, tag in LINEAGE.items():
            before, after = (side.tags.get(f"understudy.{tag}", "unknown") for side in (self.champion, self.version))
            yield f"- {name}: " + ("the same" if before == after else f"{before[:SHORT]} -> {after[:SHORT]}")
        if not self.recipe:
            yield "- recipe: the same"
        else:
            yield from ("- recipe:", "", *(f"      {line}" for line in self.recipe))

    def facts(self) -> dict[str, Any]:
        """The review as data, for programs."""
        identity = {"model": self.version.name, "version": self.version.number, "digest": self.digest}
        champion = self.champion.number if self.champion else None
        lineage = {
            name: [side.tags.get(f"understudy.{tag}") for side in (self.champion, self.version) if side]
            for name, tag in LINEAGE.items()
        }
        judged = {"verdict": self.verdict, "models": self.measures["models"]}
        return {
            **identity,
            "champion": champion,
            **judged,
            "lineage": lineage,
            "recipe": self.recipe,
            "page": self.page,
        }


def up_for_review(uri: str, name: str | None = None) -> list[tuple[Version, Version | None]]:
    """The challengers and their models' champions.

    Args:
        uri: the registry.
        name: restricts them to this model.

    Raises:
        UnderstudyError: the registry cannot be queried.
    """
    server = server_at(uri)
    versions = {(version.name, version.number): version for version in server.versions()}
    pairs = []
    for model in sorted({model for model, _ in versions} if name is None else {name}):
        aliases = server.aliases(model)
        challenger, champion = (versions.get((model, aliases.get(alias, ""))) for alias in (CHALLENGER, CHAMPION))
        if challenger and challenger != champion:
            pairs.append((challenger, champion))
    return pairs


def review(uri: str, name: str, number: str | None = None) -> Review:
    """A version with its evidence; without a number, the challenger.

    Raises:
        InputError: the version does not exist, understudy did not make it, or its evidence is invalid.
        UnderstudyError: the registry cannot be queried.
    """
    server = server_at(uri)
    versions = {version.number: version for version in server.versions() if version.name == name}
    aliases = server.aliases(name)
    number = number or aliases.get(CHALLENGER)
    if number is None or number not in versions:
        problem = f"no version {number}" if number else "no version up for review (the alias challenger)"
        raise InputError(f"{name}: the registry has {problem}; `understudy review` lists those that it has")
    version, champion = versions[number], versions.get(aliases.get(CHAMPION, ""))
    if DIGEST not in version.tags:
        raise InputError(f"{name}, version {number}: understudy did not make it, and knows no evidence of it")
    texts = _evidence(uri, version)
    champion_recipe = _evidence(uri, champion)["recipe"] if champion and champion != version else texts["recipe"]
    diff = difflib.unified_diff(
        champion_recipe.splitlines(), texts["recipe"].splitlines(), "champion", "candidate", n=1, lineterm=""
    )
    page = run_page(uri, server.experiment_of(version.run), version.run)
    measures, verdict = _judged(version, texts)
    return Review(version, champion, measures, verdict, list(diff), page)


def _judged(version: Version, texts: dict[str, str]) -> tuple[Measures, Verdict]:
    """A version's measures and verdict, checked to be about its model: the account names the run that has them."""
    named = f"{version.name}, version {version.number}"
    try:
        measures, verdict = json.loads(texts["measures"]), json.loads(texts["verdict"])
        judged = CONTROL if verdict.get("candidate") == CONTROL else STUDENT
        measured, _ = measures["models"][judged]["digest"], verdict["approved"]
        list(evidence.findings(measures, verdict))  # missing fields raise here, not later with a traceback
    except (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise InputError(f"{named}: the evidence of run {version.run} is none of understudy's") from error
    if measured != version.tags[DIGEST]:
        raise InputError(
            f"{named}: the evidence of run {version.run} is of other files ({measured}) than the version's "
            f"({version.tags[DIGEST]}); it cannot be reviewed"
        )
    return measures, verdict


def _evidence(uri: str, version: Version) -> dict[str, str]:
    """The texts of a run's measures, verdict and recipe; runs of earlier understudy versions have no recipe."""
    server, texts = mlflow_at(uri), {}
    with tempfile.TemporaryDirectory() as folder:
        for name in ("measures.json", "verdict.json", "recipe.yaml"):
            stem = name.partition(".")[0]
            try:
                texts[stem] = server.download(f"runs:/{version.run}/{name}", Path(folder)).read_text("utf-8", "replace")
            except UnderstudyError:
                if stem != "recipe":
                    raise
                texts[stem] = ""
    return texts
