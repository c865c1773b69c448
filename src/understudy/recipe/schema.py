"""The recipe as frozen pydantic models. Every error names the line, the path (a.b.c) and the fix."""

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from understudy.recipe.data import Chat, Data, DataSet, Image, Text
from understudy.recipe.evaluation import GENERATED, Evaluate, Gate, Generation
from understudy.recipe.logits import LogitCache
from understudy.recipe.lora import Lora
from understudy.recipe.models import Model, PretrainedModel
from understudy.recipe.objectives import Distill, Objectives, StageObjectives, TeacherObjective, without_teacher
from understudy.recipe.roles import CONTROL, STUDENT, TEACHER, Candidate, learner_of
from understudy.recipe.section import BatchSize, Fraction, Positive, Section, is_none
from understudy.recipe.start import Start
from understudy.recipe.strategy import Compression, Diloco, Offload, Pipeline, Recompute, Strategy
from understudy.recipe.tasks import MetricName, TaskName, default_objectives, load
from understudy.recipe.training import Augment, Guard, Optimizer, Schedule

TeacherPrecision = Literal["fp32", "bf16", "int8", "nf4"]
CONTROL_SUFFIX = "-control"

NAME = r"^[a-z][a-z0-9-]{0,38}[a-z0-9]$"
PART_NAME = r"^[a-z]([a-z0-9-]{0,18}[a-z0-9])?$"
"""It names steps of a run, tasks and jobs."""
QUANTITY = r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$"


def _as_text(value: object) -> object:
    """A number as text: YAML reads 4 as a number, and Kubernetes requires text."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


Quantity = Annotated[str, Field(pattern=QUANTITY), BeforeValidator(_as_text)]


class Train(Section):
    """Training of a model. Exactly one of steps and epochs sets its length."""

    steps: Positive | None = None
    epochs: Positive | None = None
    batch_size: BatchSize = 64
    """Examples per optimiser step, over all processes and accumulated parts together."""
    gradient_accumulation_steps: Positive = 1
    """Micro-batches into which a process splits its share of the batch, to save memory."""
    optimizer: Optimizer = Optimizer()
    schedule: Schedule = Schedule()
    max_grad_norm: Annotated[float, Field(gt=0)] | None = 1.0
    precision: Literal["auto", "fp32", "bf16", "fp16", "fp8"] = "auto"
    """auto: bf16 if the GPU supports it, fp32 otherwise. fp16 scales losses, and skips steps that overflow. fp8 is bf16
    with the products of linear layers in eight bits."""
    strategy: Strategy = "single"
    """hsdp shards inside a node and replicates over nodes; on one node it keeps two replicas. 3d has stages over nodes,
    and split layers and shards in each stage. auto takes the degrees that `understudy plan` ranks first, when a run
    begins."""
    tensor_plan: dict[str, str] = Field(default={})
    """For tp: the split of modules, by their names (* for a number), in transformers' styles (colwise, rowwise, ...).
    It takes precedence over the architecture's plan."""
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
    """Recompute activations of blocks in the backward pass instead of keeping them: all (full), or those that are cheap
    to compute (selective)."""
    offload: Offload = ()
    """Tensors that stay in CPU memory until the GPU needs them: parameters in shards, with their gradients and the
    optimiser's state, or activations, which blocks keep for the backward pass."""
    compile: bool | Literal["auto"] = False
    """Whether torch.compile compiles blocks, the teacher's included. auto: on a GPU with a compiler, if the model and
    the strategy allow it."""
    average: Annotated[float, Field(gt=0, lt=1)] | None = None
    """Decay of an exponential moving average (EMA) of the weights, such as 0.999. The EMA is validated, and becomes the
    finished model."""
    guard: Guard | None = None
    """Skip harmful steps. Without it, a loss or gradient that is not finite ends the training."""
    checkpoint_every: Positive = 100
    """In steps."""
    resume_resharded: bool = False
    """Whether training may resume from a checkpoint of the same training with other degrees, another number of
    processes, or another precision. The result then depends on the steps that each of these took, and is not
    bit-identical."""
    validate_every: Positive | None = None
    """In steps: interval at which loss and accuracy are measured on the validation split, and also after the last
    step."""
    keep_best: bool = False
    """Whether the finished model is the one with the smallest validation loss, instead of the last one."""
    patience: Positive | None = None
    """Validations without a smaller loss after which training stops early."""

    @property
    def mixed(self) -> bool:
        """Whether training examples are mixed from two (mixup)."""
        return self.augment is not None and self.augment.mixup is not None

    @model_validator(mode="after")
    def _one_length(self) -> "Train":
        if (self.steps is None) == (self.epochs is None):
            raise ValueError("give exactly one of steps and epochs; set the other one to null")
        return self

    @model_validator(mode="after")
    def _validated(self) -> "Train":
        if self.validate_every is None and (self.keep_best or self.patience):
            raise ValueError("keep_best and patience follow from validation; give validate_every, or remove them")
        return self


class Stage(Section):
    """One of several trainings of a learner, which starts from the model of the one before."""

    train: Train
    data: str | None = None
    """The name of one of `data_sets`. Default: the training split of `data`."""
    distill: StageObjectives | None = None
    """Weighted objectives, as in a learner with one training. [{type: labels}] trains without a teacher."""


class Learner(Section):
    """A model and its training, or several in a row (stages)."""

    model: Model
    start: Annotated[Start | None, Field(exclude_if=is_none)] = None
    """Layers of a teacher as first weights, instead of random ones. Left out of a dump without it, so that recipes from
    before there was a choice keep their keys."""
    train: Train | None = None
    distill: Distill | None = None
    """Weighted objectives; the loss is their sum."""
    stages: Annotated[tuple[Stage, ...], Field(min_length=1)] | None = None
    """Trainings in a row, each with a `train` and a `distill` of its own, instead of these two keys."""
    teacher_precision: TeacherPrecision = "fp32"
    """Precision of the weights of its teachers beside it. bf16 takes half the memory, and a teacher computes in it. For
    linear layers, int8 takes a quarter, and nf4 a seventh; the other weights stay as they are."""
    teacher_shards: Positive | None = None
    """Processes that hold one copy of a teacher together; with 1, each has a copy. Default: as for the model itself;
    if that is split into stages (pp), all."""

    @model_validator(mode="after")
    def _one_form(self) -> "Learner":
        if self.stages and (self.train or self.distill):
            raise ValueError("give either stages, or one train with its distill; move these into a stage")
        return self

    @property
    def trainings(self) -> dict[str, Stage]:
        """Its trainings in order, by their paths in its section: stages.0, stages.1, ... or "" for a single one."""
        if self.stages:
            return {f"stages.{at}": stage for at, stage in enumerate(self.stages)}
        return {"": Stage(train=self.train, distill=self.distill)} if self.train else {}


class Teacher(Learner):
    """A large model. A pretrained one without a training is used as it is. With `distill` it has teachers itself."""

    logits: Annotated[LogitCache | None, Field(exclude_if=is_none)] = None
    """Its logits on the training split are computed once, cached in the store, and read by every training that learns
    from it, instead of the model beside the student. Default: the model."""

    @model_validator(mode="after")
    def _needs_training(self) -> "Teacher":
        if not self.trainings and not isinstance(self.model, PretrainedModel):
            raise ValueError("a teacher that is not pretrained needs a section train")
        if self.distill and not self.train:
            raise ValueError("distill is of a training; give train, or remove it")
        return self


class Student(Learner):
    """The small model, its training, and whether a control is trained as well.

    The default of `distill` depends on the task.
    """

    @model_validator(mode="after")
    def _is_trained(self) -> "Student":
        if not self.trainings:
            raise ValueError("a student needs a section train, or stages")
        return self

    control: bool = True
    """Train the same student without the teacher too: same budget, same seed."""


class Register(Section):
    """The student in MLflow. Both names default to the recipe's."""

    model: str | None = None
    experiment: str | None = None
    trust_champion: bool = False
    """Whether a champion that understudy did not register may run its code here, on the test split, so that the
    student is compared with its outputs."""
    control: bool = False
    """Judge and register the control instead of the student, where distillation did not pay. Its registered model is
    named MODEL-control, to tell it from a distilled one."""


class Resources(Section):
    """Resources of a job."""

    nodes: Annotated[int, Field(gt=0, le=2**16)] = 1
    min_nodes: Positive | None = None
    """In a cluster: the fewest nodes on which the job continues if it cannot have all. The result then depends on the
    number of nodes at each step, and is not bit-identical. Default: the job waits for all."""
    processes: Annotated[int, Field(gt=0, le=2**10)] = 1
    """Per node."""
    threads: Positive | None = None
    """CPU threads per process. Default: for a single process all cores, in a cluster those of `cpu`; otherwise one."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    hardware: str | None = None
    """Hardware of each process, by its name in the plan's table, such as H100. `understudy plan` and strategy: auto
    plan for it; it has no other effect."""
    pool: str | None = None
    """In a cluster: a node pool of the cluster's settings. Default: their `pool`, or else any node without taints."""
    cpu: Quantity | None = None
    """In a cluster: per node, such as 4 or 500m; requested, not limited."""
    memory: Quantity | None = None
    """In a cluster: per node, such as 16Gi; requested, and the limit."""
    shared_memory: Quantity = "1Gi"
    """In a cluster: size of /dev/shm, per node; it counts as memory. NCCL and data loading need it."""
    queue: str | None = None
    """In a cluster: Kueue's LocalQueue. Default: the one in the cluster's settings."""
    priority: str | None = None
    """In a cluster: the PriorityClass of the job's pods."""
    termination_grace_period: Positive = 60
    """In a cluster: seconds that a pod has for a checkpoint when it is terminated."""
    hang_timeout: Positive = 600
    """In a cluster: seconds without a new heartbeat after which a job counts as hung and restarts from its checkpoint.
    Must be longer than the slowest step, and than loading and saving."""
    max_restarts: Annotated[int, Field(ge=0)] = 3
    """In a cluster: restarts of a job after a killed rank. Preemption, lost nodes and hangs do not count."""


class JobResources(Section):
    """Resources by job; the control gets what distill gets."""

    teacher: Resources = Resources()
    """For the training of each teacher that `teachers` does not name."""
    teachers: dict[str, Resources] = Field(default={})
    """For a teacher's training, by its name in the recipe's `teachers`."""
    distill: Resources = Resources()
    evaluate: Resources | None = None
    """Default: those of distill, with one process."""

    @property
    def by_job(self) -> dict[str, Resources]:
        """Resources by the job's key in this section."""
        named = {f"teachers.{name}": resources for name, resources in self.teachers.items()}
        return {"teacher": self.teacher, **named, "distill": self.distill, "evaluate": self.evaluation}

    @property
    def written(self) -> dict[str, Resources]:
        """Resources by key, without defaults that follow from others: a recipe has no line to correct for these."""
        return {key: resources for key, resources in self.by_job.items() if key != "evaluate" or self.evaluate}

    @property
    def evaluation(self) -> Resources:
        """Resources of the evaluation."""
        return self.evaluate or self.distill.model_copy(update={"nodes": 1, "min_nodes": None, "processes": 1})


class Recipe(Section):
    """The complete definition of a run."""

    name: Annotated[str, Field(pattern=NAME)]
    task: TaskName
    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    data: Data
    data_sets: dict[Annotated[str, Field(pattern=PART_NAME)], DataSet] = Field(default={})
    """Further data by name, which stages of a training can read."""
    teacher: Teacher | None = None
    teachers: dict[Annotated[str, Field(pattern=PART_NAME)], Teacher] = Field(default={})
    """Several teachers by name. An objective without `teacher` learns from the mean of all."""
    student: Student
    evaluate: Evaluate = Evaluate()
    gate: Gate = Gate()
    register_: Annotated[Register, Field(alias="register")] = Register()
    resources: JobResources = JobResources()

    @model_validator(mode="after")
    def _has_a_teacher(self) -> "Recipe":
        if not self.all_teachers:
            raise ValueError("give a teacher, or several in teachers")
        if self.teacher and self.teachers:
            raise ValueError("give either teacher, or several in teachers; move it there under a name")
        return self

    @property
    def all_teachers(self) -> dict[str, Teacher]:
        """All teachers by name; that of the section `teacher` is called teacher."""
        return {**({TEACHER: self.teacher} if self.teacher else {}), **self.teachers}

    @property
    def learners(self) -> dict[str, Learner]:
        """Teachers and student by their path in the recipe."""
        teachers = {learner_of(name): learner for name, learner in self.all_teachers.items()}
        return {**teachers, STUDENT: self.student}

    @property
    def models(self) -> dict[str, Model]:
        """The learners' models by their path in the recipe."""
        return {f"{section}.model": learner.model for section, learner in self.learners.items()}

    @property
    def trainings(self) -> dict[str, Stage]:
        """All trainings by their path in the recipe: teacher, teachers.NAME, student, student.stages.0, ..."""
        return {
            f"{section}.{path}".removesuffix("."): stage
            for section, learner in self.learners.items()
            for path, stage in learner.trainings.items()
        }

    @property
    def undecided(self) -> tuple[str, ...]:
        """The paths of trainings with strategy: auto."""
        return tuple(path for path, stage in self.trainings.items() if stage.train.strategy == "auto")

    def data_of(self, name: str) -> DataSet:
        """A data set by its name; "" is that of the section `data`."""
        return self.data_sets[name] if name else self.data

    def objectives_of(self, training: str) -> Objectives:
        """The objectives of a training by its path in the recipe."""
        default = default_objectives(self.task) if training.partition(".")[0] == STUDENT else without_teacher()
        return self.trainings[training].distill or default

    def teachers_of(self, training: str) -> tuple[str, ...]:
        """The names of a training's teachers, in the recipe's order."""
        names = tuple(self.all_teachers)
        sections = [section for section in self.objectives_of(training) if isinstance(section, TeacherObjective)]
        named = {name for objective in sections for name in objective.names(names)}
        return tuple(name for name in names if name in named)

    def logit_cache(self, name: str) -> LogitCache | None:
        """How much is cached of a teacher's logits; None if its model is beside the student."""
        return self.all_teachers[name].logits

    @property
    def objectives(self) -> Objectives:
        """The objectives of the student's last training."""
        return self.objectives_of(list(self.trainings)[-1])

    @property
    def metrics(self) -> tuple[MetricName, ...]:
        """All metrics to measure, the gate's included."""
        chosen = self.evaluate.metrics or self._possible_metrics
        return chosen if self.gate_metric in chosen else (self.gate_metric, *chosen)

    @property
    def _possible_metrics(self) -> tuple[MetricName, ...]:
        """The task's metrics, without those of generated answers if none are."""
        names: tuple[MetricName, ...] = load(self.task).METRICS
        return tuple(name for name in names if name not in GENERATED or self.generation.examples)

    @property
    def gate_metric(self) -> MetricName:
        """The metric that the gate compares."""
        return self.gate.metric or load(self.task).METRICS[0]

    @property
    def model_name(self) -> str:
        """The registered model's name; a control's ends in -control."""
        name = self.register_.model or self.name
        return f"{name.removesuffix(CONTROL_SUFFIX)}{CONTROL_SUFFIX}" if self.candidate == CONTROL else name

    @property
    def candidate(self) -> Candidate:
        """The model that the gate judges and the registry gets."""
        return CONTROL if self.register_.control else STUDENT

    @property
    def experiment(self) -> str:
        """The MLflow experiment's name."""
        return self.register_.experiment or self.name

    def takes(self, setting: str) -> bool:
        """Whether a setting that not every task has applies to this one."""
        return setting in load(self.task).SETTINGS

    @property
    def image(self) -> Image:
        """The shape of every image."""
        return self.data.image or Image()

    @property
    def text(self) -> Text:
        """The shape of every sequence."""
        return self.data.text or Text()

    @property
    def generation(self) -> Generation:
        """The limits of generated answers."""
        return self.evaluate.generation or Generation()

    @property
    def chat(self) -> Chat:
        """How conversations become sequences."""
        return self.data.chat or Chat()

    @property
    def packed(self) -> bool:
        """Whether a training sequence holds several whole examples, which do not attend to each other."""
        by_setting = self.takes("data.text.packing") and self.text.packing == "documents"
        return by_setting or load(self.task).PACKED
