"""The recipe's sections `evaluate` and `gate`: what is measured on the test split, and what it takes to be approved."""

from typing import Annotated, Literal

from pydantic import Field

from understudy.recipe.section import BatchSize, Positive, Section, is_none
from understudy.recipe.strategy import Strategy
from understudy.recipe.tasks import MetricName

EvaluatePrecision = Literal["fp32", "bf16"]
GENERATED: frozenset[MetricName] = frozenset({"exact_match", "f1", "rouge_l", "chrf", "agreement"})
"""The metrics of generated answers."""
BENCHMARK = r"^\w[\w.-]{0,99}$"
"""Names of lm-eval's tasks, which become names of metrics in MLflow."""


class Latency(Section):
    """Timing of latency and throughput: all models in turn, in the same process."""

    batch_size: BatchSize = 1
    repeats: Positive = 50


class Generation(Section):
    """Answers that every model generates to test examples, greedily: each token is the likeliest one."""

    examples: Annotated[int, Field(ge=0)] = 256
    """The most examples that are answered, spread evenly over the test split; 0 for none."""
    max_new_tokens: Positive = 128
    """The most tokens of an answer."""


class LmEval(Section):
    """Tasks of lm-eval (EleutherAI's lm-evaluation-harness) on local files, besides the test split."""

    tasks: Annotated[tuple[Annotated[str, Field(pattern=BENCHMARK)], ...], Field(min_length=1)]
    """Their names, as the key `task` of their YAML files says."""
    include: str
    """The folder of the YAML files. A relative path starts at the recipe's folder."""
    num_fewshot: Annotated[int, Field(ge=0)] | None = None
    """Solved examples before each question. Default: as the task says. A task that says 0 keeps it, as in lm-eval."""
    limit: Positive | None = None
    """The most documents of each task. Default: all."""
    batch_size: BatchSize = 16


class Evaluate(Section):
    """Measurements on the test split."""

    metrics: tuple[MetricName, ...] | None = None
    """Default: all that fit the task."""
    batch_size: BatchSize = 64
    stride: Positive | None = None
    """For text, in tokens: step of the sliding window over a document. A token is scored in the first window that
    contains it. A shorter stride gives more context, and takes longer. Default: the sequence length."""
    generation: Annotated[Generation | None, Field(exclude_if=is_none)] = None
    """For chat: limits of the generated answers. Default: those of Generation. Left out of a dump without them: recipes
    from before it keep their keys."""
    lm_eval: Annotated[LmEval | None, Field(exclude_if=is_none)] = None
    """For language models: tasks of lm-eval. Left out as generation is."""
    latency: Latency = Latency()
    precision: EvaluatePrecision = "fp32"
    """Precision of all models when they are measured and timed, and of the registered version when it is loaded."""
    strategy: Strategy = "ddp"
    """Layout of models over the processes of resources.evaluate, which divide the examples: whole on each (ddp), or in
    shards (fsdp, hsdp, degrees)."""


class Gate(Section):
    """Requirements of the student. The gate fails closed: a requirement that was not measured is not met."""

    metric: MetricName | None = None
    """Default: the first metric of the task. calibration_error and agreement are refused."""
    margin: Annotated[float, Field(ge=0, lt=1)] = 0.02
    """Largest loss that is accepted: absolute for accuracy and scores of answers, a share of the other value for
    the rest (0.02 is 2 % in bits per byte)."""
    teacher: str | None = None
    """The name of the teacher that the student is compared with. Default: the best by the metric."""
    minimum: Annotated[float, Field(ge=0)] | None = None
    """The worst value of the student's metric that is accepted, regardless of the teacher: at least this accuracy, at
    most these bits per byte. The worse end of its confidence interval counts."""
    confidence: Annotated[float, Field(gt=0.5, le=0.9999)] = 0.95
    max_size_ratio: Annotated[float, Field(gt=0)] | None = 1.0
    """Largest ratio of the student's bytes on disk to the teacher's."""
    max_latency_ratio: Annotated[float, Field(gt=0)] | None = 1.0
    """Largest ratio of the student's latency to the teacher's: the median of the ratios of all rounds."""
