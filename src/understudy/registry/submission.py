"""The content that a run sends to the registry: its models, its evidence and their lineage."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from understudy.evaluate.benchmark_scores import CONTENTS, Benchmarks
from understudy.evaluate.contents import Measures, Verdict
from understudy.recipe import Recipe


@dataclass(frozen=True)
class Submission:
    """The registered content of a run."""

    recipe: Recipe
    model: Path
    """The candidate's object."""
    digest: str
    """The candidate's digest."""
    measures: Path
    """The folder of the measures object."""
    verdict: Path
    """The folder of the verdict object."""
    models: Mapping[str, Path]
    """The folders of teacher, student, and perhaps control, with their history.json."""
    steps: Mapping[str, str]
    """The names of the run's steps, by the roles of their results."""
    examples: Path
    """The folder of the examples object."""
    lineage: Mapping[str, str]
    """Tags without their prefix: teacher, examples, records, recipe, revision, version."""
    benchmarks: Path | None = None
    """The folder of the scores on lm-eval's tasks, if the recipe names some."""

    @property
    def measured(self) -> Measures:
        """The content of measures.json."""
        measures: Measures = json.loads((self.measures / "measures.json").read_text())
        return measures

    @property
    def benchmarked(self) -> Benchmarks | None:
        """The content of benchmarks.json."""
        if self.benchmarks is None:
            return None
        benchmarks: Benchmarks = json.loads((self.benchmarks / CONTENTS).read_text())
        return benchmarks

    @property
    def judged(self) -> Verdict:
        """The content of verdict.json."""
        verdict: Verdict = json.loads((self.verdict / "verdict.json").read_text())
        return verdict

    @property
    def verdict_tag(self) -> str:
        """The verdict as a tag: approved or rejected."""
        return "approved" if self.judged["approved"] else "rejected"

    @property
    def lineage_tags(self) -> dict[str, str]:
        """The lineage as tags of runs and versions."""
        return {f"understudy.{key}": value for key, value in self.lineage.items()}
