"""What measures.json, verdict.json and results hold, for those who write them and those who read them.

Types and names only: the command line and the registry read these files and must not wait for torch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from typing_extensions import TypedDict

from understudy.recipe import Candidate, MetricName

RESULTS, CONFUSION, COMPLETIONS = "results.npz", "confusion", "completions"
MOST_LABELS = 100  # of a classifier whose answers are counted by label; with more of them nobody reads the matrix


def results_file(role: str) -> str:
    """What a job calls the file of the results of a model that it measured."""
    return f"{role}.{RESULTS}"


class Latency(TypedDict):
    """How fast a model answers."""

    batch_size: int
    median_ms: float
    min_ms: float
    p95_ms: float
    throughput_per_s: float
    """Inputs a second, at the median."""
    ratio_to_teacher: float
    """The median over the rounds of its time over the teacher's in the same round."""


class Bin(TypedDict):
    """A point of the calibration plot; one that no prediction fell into has weight 0 and nothing else."""

    confidence: float | None
    accuracy: float | None
    weight: float
    """The share of all predictions."""


class Quality(TypedDict):
    """How good a model is. What was not measured is None; its calibration then has no bins."""

    metrics: dict[MetricName, float | None]
    intervals: dict[MetricName, Sequence[float] | None]
    """Low and high."""
    calibration: list[Bin]


class ModelMeasures(Quality):
    """All that was measured of a model."""

    digest: str
    parameters: int
    flops: int
    """Of one example."""
    bytes: int
    latency: Latency


class Hardware(TypedDict):
    """What the numbers were measured on."""

    device: str
    cpu: str
    cores: int | None
    threads: int
    processes: int
    """That each model was on, in shards, and that answered together; 1 where it was whole."""
    torch: str
    precision: str
    """What models computed in: fp32 or bf16."""


class Confusion(TypedDict):
    """What a classifier took for what."""

    labels: list[str]
    counts: list[list[int]]
    """Of the test examples, a row by label and a column by answer."""


class Measures(TypedDict):
    """The content of measures.json."""

    task: str
    split: str
    examples: int
    data: Mapping[str, object]
    """What examples.json says of its counts, and of what was left out."""
    gate_metric: MetricName
    confidence: float
    hardware: Hardware
    models: dict[str, ModelMeasures]
    slices: Sequence[Mapping[str, str | float | None]]
    """`slice`, `examples`, and for each role the gate's metric there."""
    confusion: Confusion | None
    """The student's; None where it is no classifier, or one with more labels than a page shows."""


class RuleOutcome(TypedDict):
    """How one rule of the gate ended; fields as of quality.Rule."""

    rule: str
    passed: bool
    detail: str
    observed: float | None
    interval: Sequence[float] | None
    threshold: float | None


class Worth(TypedDict):
    """What the teacher was worth: the student minus the control."""

    observed: float
    interval: Sequence[float]
    meaning: str
    detail: str


class Recovered(TypedDict):
    """The share of the gap between control and teacher that the student closed."""

    share: float | None
    """None where there was no gap to recover."""
    interval: Sequence[float] | None
    detail: str


class Verdict(TypedDict):
    """The content of verdict.json."""

    approved: bool
    candidate: Candidate
    """Whom it is about."""
    headline: str
    """What was decided, with the margin and with whom the candidate was compared, in a line."""
    cautions: list[str]
    advice: list[str]
    """What to change, where the control is better than the student; in the order in which to try it."""
    judged: str
    """How many students were judged on this test split, in a sentence; empty where nobody counts."""
    control: Worth | None
    recovered: Recovered | None
    """None where there is no control."""
    metric: MetricName
    confidence: float
    margin: float
    smallest_detectable: float | None
    """The smallest true loss against the teacher that this test set could have seen, at this confidence with a power of
    80 %; None when the comparison could not be made."""
    rules: list[RuleOutcome]


@dataclass(frozen=True)
class Origin:
    """Where a report comes from, in words; what is not known is empty."""

    judged: str = ""
    """When: 2026-11-28 06:40 UTC."""
    run: str = ""
    tool: str = ""
    """Name, version and commit."""
    data: Mapping[str, str] = field(default_factory=dict)
    """Source, licence and the like, by what it is called."""
