"""What a run is: the recipe as frozen models. Every error names the line, the path (a.b.c) and the fix."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from understudy.recipe.data import Data, Image, Text
from understudy.recipe.lora import Lora
from understudy.recipe.models import Model, PretrainedModel
from understudy.recipe.objectives import DISTILL, Distill, ObjectiveSection
from understudy.recipe.section import BatchSize, Fraction, Positive, Section
from understudy.recipe.strategy import Compression, Diloco, Offload, Pipeline, Recompute, Strategy
from understudy.recipe.training import Augment, Guard, Optimizer, Schedule

Task = Literal["image-classification", "causal-lm"]
TeacherPrecision = Literal["fp32", "bf16", "int8", "nf4"]
EvaluatePrecision = Literal["fp32", "bf16"]
MetricName = Literal["accuracy", "nll", "calibration_error", "perplexity", "bits_per_byte"]
Candidate = Literal["student", "control"]
"""Whom the gate judges and the registry gets."""
CONTROL_SUFFIX = "-control"

METRICS: dict[Task, tuple[MetricName, ...]] = {
    "image-classification": ("accuracy", "nll", "calibration_error"),
    "causal-lm": ("bits_per_byte", "perplexity", "nll", "accuracy", "calibration_error"),
}

NAME = r"^[a-z][a-z0-9-]{0,38}[a-z0-9]$"
QUANTITY = r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$"


def _as_text(value: object) -> object:
    """YAML reads 4 as a number, and Kubernetes writes it as text."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


Quantity = Annotated[str, Field(pattern=QUANTITY), BeforeValidator(_as_text)]


class Train(Section):
    """How a model is trained. Exactly one of steps and epochs says for how long."""

    steps: Positive | None = None
    epochs: Positive | None = None
    batch_size: BatchSize = 64
    """Examples per optimiser step, over all processes and accumulated parts together."""
    gradient_accumulation_steps: Positive = 1
    """Parts that a process splits its share of the batch into, to save memory."""
    optimizer: Optimizer = Optimizer()
    schedule: Schedule = Schedule()
    max_grad_norm: Annotated[float, Field(gt=0)] | None = 1.0
    precision: Literal["auto", "fp32", "bf16", "fp16", "fp8"] = "auto"
    """auto: bf16 where the GPU computes in it, fp32 otherwise. fp16 scales losses, and skips steps that overflow. fp8
    is bf16 with the products of linear layers in eight bits."""
    strategy: Strategy = "single"
    """hsdp shards inside a node and replicates over nodes; on one node it keeps two replicas. 3d has stages
    over nodes, and in each one split layers and shards. auto is what
    `understudy plan` ranks first, chosen when a run begins."""
    tensor_plan: dict[str, str] = Field(default={})
    """For tp: how modules are split, by their names with * for a number, in transformers' styles (colwise, rowwise,
    ...). It goes before the architecture's own plan."""
    pipeline: Pipeline = Pipeline()
    compression: Compression | None = None
    diloco: Diloco | None = None
    lora: Lora | None = None
    """For pretrained models."""
    label_smoothing: Fraction = 0.0
    """The share of a label's probability that is spread evenly over all labels (Szegedy et al. 2016)."""
    augment: Augment | None = None
    """For images."""
    activation_checkpointing: Recompute = "none"
    """What a block computes is computed again in the backward pass instead of kept: all of it (full), or what costs
    little to compute (selective)."""
    offload: Offload = ()
    """What waits in the CPU's memory for its use on the GPU: parameters in shards, with their gradients and the
    optimiser's state, or what blocks keep for the backward pass (activations)."""
    compile: bool | Literal["auto"] = False
    """Whether blocks are compiled by torch.compile. auto: on a GPU, where a compiler is at hand and the model and the
    strategy allow it; the teacher's blocks, too."""
    average: Annotated[float, Field(gt=0, lt=1)] | None = None
    """The decay of an exponential moving average of the weights (0.999); it is what is validated, and the finished
    model."""
    guard: Guard | None = None
    """Steps that would hurt are skipped. Without it a loss that is not a number ends the training."""
    checkpoint_every: Positive = 100
    """In steps."""
    resume_resharded: bool = False
    """Whether training may go on from a checkpoint that the same training left under other degrees, on another number
    of processes, or in another precision. The result then follows from which did which steps, and is not the same to
    the last bit."""
    validate_every: Positive | None = None
    """In steps: how often loss and accuracy are measured on the validation split, and after the last step."""
    keep_best: bool = False
    """Whether the finished model is the one with the smallest validation loss, and not the last one."""
    patience: Positive | None = None
    """Training ends early after so many validations without a smaller loss."""

    @model_validator(mode="after")
    def _one_length(self) -> "Train":
        if (self.steps is None) == (self.epochs is None):
            raise ValueError("give exactly one of steps and epochs; set the other one to null")
        return self

    @model_validator(mode="after")
    def _validated(self) -> "Train":
        if self.validate_every is None and (self.keep_best or self.patience):
            raise ValueError("keep_best and patience follow from validation; give validate_every")
        return self


class Teacher(Section):
    """The large model. A pretrained one without `train` is used as it is."""

    model: Model
    train: Train | None = None

    @model_validator(mode="after")
    def _needs_training(self) -> "Teacher":
        if self.train is None and not isinstance(self.model, PretrainedModel):
            raise ValueError("a teacher that is not pretrained needs a section train")
        return self


class Student(Section):
    """The small model, how it is trained, and whether a control is trained beside it."""

    model: Model
    train: Train
    distill: Distill | None = None
    """Weighted objectives; the loss is their sum. Default: by the task."""
    teacher_precision: TeacherPrecision = "fp32"
    """What the teacher's weights are kept in beside the student. bf16 takes half the memory, and is computed in. int8
    takes a quarter of it for the weights of linear layers; the others stay as they are."""
    teacher_shards: Positive | None = None
    """How many processes hold a copy of the teacher together; 1 is one on each. Default: as of the student, and beside
    one in stages all."""
    control: bool = True
    """Train the same student without the teacher too: same budget, same seed."""


class Latency(Section):
    """How latency and throughput are timed; all models in turn, in the same process."""

    batch_size: BatchSize = 1
    repeats: Positive = 50


class Evaluate(Section):
    """What is measured on the test split."""

    metrics: tuple[MetricName, ...] | None = None
    """Default: all that fit the task."""
    batch_size: BatchSize = 64
    stride: Positive | None = None
    """For text, in tokens: how far the window moves in which a model sees a document; a token is counted in the first
    window that has it. A shorter one gives more context, and takes longer. Default: the sequence length."""
    latency: Latency = Latency()
    precision: EvaluatePrecision = "fp32"
    """What all models compute in when they are measured and timed, and the registered version when it is loaded."""
    strategy: Strategy = "ddp"
    """How models are spread over the processes of resources.evaluate, which share out the examples: whole on each
    (ddp), or in shards (fsdp, hsdp, degrees)."""


class Gate(Section):
    """When the student is good enough. The gate fails closed: what was not measured was not passed."""

    metric: MetricName | None = None
    """accuracy for image-classification, bits_per_byte for causal-lm; calibration_error is refused."""
    margin: Annotated[float, Field(ge=0, lt=1)] = 0.02
    """Largest loss that is accepted: absolute for accuracy, a share of the other's value for the rest (0.02 is 2 % in
    bits per byte)."""
    minimum: Annotated[float, Field(ge=0)] | None = None
    """The worst value of the metric that the student may have, whatever the teacher has: at least this accuracy, at
    most these bits per byte. The worse end of its interval counts."""
    confidence: Annotated[float, Field(gt=0.5, le=0.9999)] = 0.95
    max_size_ratio: Annotated[float, Field(gt=0)] | None = 1.0
    """Student's bytes on disk over the teacher's."""
    max_latency_ratio: Annotated[float, Field(gt=0)] | None = 1.0
    """Student's latency over the teacher's: the median of the ratios of all rounds."""


class Register(Section):
    """Where the student goes in MLflow. Both names default to the recipe's."""

    model: str | None = None
    experiment: str | None = None
    trust_champion: bool = False
    """Whether a champion that understudy did not register may run its own code here, on the test split, so that the
    student is compared with its answers."""
    control: bool = False
    """Judge and register the control in the student's place, where distilling did not pay. Its registered model is
    named MODEL-control, so that it is never taken for a distilled one."""


class Resources(Section):
    """What a training job gets."""

    nodes: Annotated[int, Field(gt=0, le=2**16)] = 1
    min_nodes: Positive | None = None
    """In a cluster: the fewest nodes that the job goes on with when it cannot have all. Default: it waits for all. The
    result then follows from how many there were at which step, and is not the same to the last bit."""
    processes: Annotated[int, Field(gt=0, le=2**10)] = 1
    """Per node."""
    threads: Positive | None = None
    """CPU threads per process. Default: all cores, in a cluster those of `cpu`, for a single process; otherwise one."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    hardware: str | None = None
    """What each process has, by its name in the plan's table, such as H100: what `understudy plan` and strategy: auto
    plan for. Nothing else follows from it."""
    pool: str | None = None
    """In a cluster: the node pool, one of those in the cluster's settings. Default: any node without taints."""
    cpu: Quantity | None = None
    """In a cluster: per node, such as 4 or 500m; requested, not limited."""
    memory: Quantity | None = None
    """In a cluster: per node, such as 16Gi; requested, and the limit."""
    shared_memory: Quantity = "1Gi"
    """In a cluster: of /dev/shm, per node; it counts as memory. NCCL and data loading need it."""
    queue: str | None = None
    """In a cluster: Kueue's LocalQueue. Default: the one in the cluster's settings."""
    priority: str | None = None
    """In a cluster: the PriorityClass of the job's pods."""
    termination_grace_period: Positive = 60
    """In a cluster: seconds that a pod gets to take a checkpoint when it has to go."""
    hang_timeout: Positive = 600
    """In a cluster: seconds without a new heartbeat after which a job counts as hung and restarts at its checkpoint.
    Longer than the slowest step, and than loading and saving."""
    max_restarts: Annotated[int, Field(ge=0)] = 3
    """In a cluster: how often a job starts again after a killed rank. Preemption, lost nodes and hangs do not count."""


class JobResources(Section):
    """Resources by job; the control gets what distill gets."""

    teacher: Resources = Resources()
    distill: Resources = Resources()
    evaluate: Resources | None = None
    """Default: those of distill, with one process."""

    @property
    def by_job(self) -> dict[str, Resources]:
        """What each job gets, by its name here."""
        alone = self.distill.model_copy(update={"nodes": 1, "min_nodes": None, "processes": 1})
        return {"teacher": self.teacher, "distill": self.distill, "evaluate": self.evaluate or alone}


class Recipe(Section):
    """One run, completely."""

    name: Annotated[str, Field(pattern=NAME)]
    task: Task
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    data: Data
    teacher: Teacher
    student: Student
    evaluate: Evaluate = Evaluate()
    gate: Gate = Gate()
    register_: Annotated[Register, Field(alias="register")] = Register()
    resources: JobResources = JobResources()

    @property
    def models(self) -> dict[str, Model]:
        """Teacher's and student's model by their place in the recipe."""
        return {"teacher.model": self.teacher.model, "student.model": self.student.model}

    @property
    def undecided(self) -> tuple[Literal["teacher", "student"], ...]:
        """The sections whose training leaves its degrees to the plan."""
        trained: dict[Literal["teacher", "student"], Train | None]
        trained = {"teacher": self.teacher.train, "student": self.student.train}
        return tuple(section for section, train in trained.items() if train and train.strategy == "auto")

    @property
    def objectives(self) -> tuple[ObjectiveSection, ...]:
        """What the student learns from."""
        return self.student.distill or DISTILL[self.task]

    @property
    def metrics(self) -> tuple[MetricName, ...]:
        """What is measured, the gate's metric included."""
        chosen = self.evaluate.metrics or METRICS[self.task]
        return chosen if self.gate_metric in chosen else (self.gate_metric, *chosen)

    @property
    def gate_metric(self) -> MetricName:
        """The metric that the gate compares."""
        return self.gate.metric or METRICS[self.task][0]

    @property
    def model_name(self) -> str:
        """The registered model's name; a control's says that it is one."""
        name = self.register_.model or self.name
        return f"{name.removesuffix(CONTROL_SUFFIX)}{CONTROL_SUFFIX}" if self.candidate == "control" else name

    @property
    def candidate(self) -> Candidate:
        """Whom the gate judges and the registry gets."""
        return "control" if self.register_.control else "student"

    @property
    def experiment(self) -> str:
        """The MLflow experiment's name."""
        return self.register_.experiment or self.name

    @property
    def image(self) -> Image:
        """The shape of every image."""
        return self.data.image or Image()

    @property
    def text(self) -> Text:
        """The shape of every sequence."""
        return self.data.text or Text()
