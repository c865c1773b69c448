"""The types of measures.json, verdict.json and results, for their writers and readers.

Types and names only: the command line and the registry import them and must not wait for torch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from typing_extensions import TypedDict

from understudy.recipe import Candidate, MetricName

RESULTS, CONFUSION, COMPLETIONS = "results.npz", "confusion", "completions"
MOST_LABELS = 100  # of a classifier with a confusion matrix; a larger matrix is unreadable


def results_file(role: str) -> str:
    """The name of the file that a job writes a model's results to."""
    return f"{role}.{RESULTS}"


class Latency(TypedDict):
    """A model's inference latency."""

    batch_size: int
    median_ms: float
    min_ms: float
    p95_ms: float
    throughput_per_s: float
    """Inputs per second at the median."""
    ratio_to_teacher: float
    """The median over the rounds of the model's time divided by the teacher's in the same round."""


class Bin(TypedDict):
    """A point of the calibration plot; an empty bin has weight 0, and neither confidence nor accuracy."""

    confidence: float | None
    accuracy: float | None
    weight: float
    """The share of all predictions."""


class Quality(TypedDict):
    """The quality of a model. Values that were not measured are None; calibration is then empty."""

    metrics: dict[MetricName, float | None]
    intervals: dict[MetricName, Sequence[float] | None]
    """Low and high."""
    calibration: list[Bin]


class ModelMeasures(Quality):
    """All measurements of a model."""

    digest: str
    parameters: int
    flops: int
    """FLOP of one example."""
    bytes: int
    latency: Latency


class Hardware(TypedDict):
    """The machine and settings of the measurement."""

    device: str
    cpu: str
    cores: int | None
    threads: int
    processes: int
    """The number of ranks that each model was sharded over; 1 for whole models."""
    torch: str
    precision: str
    """Compute precision of the models: fp32 or bf16."""


class Confusion(TypedDict):
    """A classifier's confusion matrix."""

    labels: list[str]
    counts: list[list[int]]
    """Numbers of test examples, a row by label and a column by prediction."""


class Measures(TypedDict):
    """The content of measures.json."""

    task: str
    split: str
    examples: int
    data: Mapping[str, object]
    """The counts of examples.json, and the number of skipped records."""
    gate_metric: MetricName
    reference: str
    """The role of the teacher that the student is compared with; ratios of latency are to it."""
    confidence: float
    hardware: Hardware
    models: dict[str, ModelMeasures]
    slices: Sequence[Mapping[str, str | float | None]]
    """`slice`, `examples`, and the gate's metric on the slice for each role; accuracy if that compares labels."""
    confusion: Confusion | None
    """The student's; None if it is not a classifier, or has more than MOST_LABELS labels."""


class RuleOutcome(TypedDict):
    """The outcome of one rule of the gate; fields as in quality.Rule."""

    rule: str
    passed: bool
    detail: str
    observed: float | None
    interval: Sequence[float] | None
    threshold: float | None


class Worth(TypedDict):
    """The worth of the teacher: student minus control."""

    observed: float
    interval: Sequence[float]
    meaning: str
    detail: str


class Recovered(TypedDict):
    """The share of the gap between control and teacher that the student closed."""

    share: float | None
    """None if there was no gap to recover."""
    interval: Sequence[float] | None
    detail: str


class Verdict(TypedDict):
    """The content of verdict.json."""

    approved: bool
    candidate: Candidate
    """The role of the judged model."""
    reference: str
    """The name of the teacher that it was compared with."""
    headline: str
    """The decision in one line, with the margin and the models that the candidate was compared with."""
    cautions: list[str]
    advice: list[str]
    """Changes to try, in this order, if the control is better than the student, or the student too far behind its
    teacher."""
    judged: str
    """The number of candidates judged on this test split, in a sentence; empty if they are not counted."""
    control: Worth | None
    recovered: Recovered | None
    """None without a control."""
    metric: MetricName
    confidence: float
    margin: float
    smallest_detectable: float | None
    """The smallest true loss against the teacher that this test set could have shown, at this confidence and a power
    of 80 %; None if the two could not be compared."""
    rules: list[RuleOutcome]


@dataclass(frozen=True)
class Origin:
    """The origin of a report, in words; unknown parts are empty."""

    judged: str = ""
    """Time of the verdict, such as 2026-11-28 06:40 UTC."""
    run: str = ""
    tool: str = ""
    """Name, version and commit."""
    data: Mapping[str, str] = field(default_factory=dict)
    """Source, licence and the like, by title."""
