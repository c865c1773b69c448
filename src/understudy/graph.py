"""The graph of a recipe: its nodes with their inputs, and a table of the kinds of node.

data -> ingest -> prepare --+--> teacher --> distill --+--> evaluate -> gate -> register
                            +--> control --------------+

A recipe may have several teachers, a learner several trainings in a row (stages), and these may read further data. A
teacher's logits may be cached, by a node between it and the trainings that read them.

A node is one step of a run. Its name is that of the step's state in the run's folder, of the pipeline's task, and of
the job in a cluster. Its role names its result among other nodes' inputs.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from understudy.recipe import Recipe
from understudy.recipe.learners import in_order, job_of, paths_of, start_of
from understudy.recipe.roles import CONTROL, STUDENT, TEACHER, learner_of

RECORDS, EXAMPLES, MEASURES, VERDICT, REGISTERED = "records", "examples", "measures", "verdict", "registration"
"""The roles of other results."""


class Page(NamedTuple):
    """The file of a result that a person opens, as `understudy run` names it."""

    title: str
    file: str
    is_recorded: bool = False
    """Whether the registration puts it into the run's record in MLflow."""


@dataclass(frozen=True)
class Kind:
    """The facts shared by all nodes of a kind."""

    name: str
    """Also that of its KFP component."""
    step: str
    """The module whose function `step` declares a node's step."""
    component: str
    """The module of its KFP component."""
    launches: bool = False
    """Whether its task launches a job, and the job has the resources."""
    resumes: bool = False
    """Whether it saves checkpoints, and resumes from them after it was stopped."""
    reads_code: bool = False
    """Whether its task reads the custom code of the recipe's models, for its key or to register it."""
    labelled_component: str = ""
    """The module of its KFP component for tasks whose examples have one label; empty if it is the same."""
    decides: bool = False
    """Whether its result is the verdict. Its task's output is then the decision, which is rejected or approved."""
    needs_approval: bool = False
    """Whether its task runs only if the student is approved."""
    contents: str = ""
    """The JSON file of its result that the run's summary has."""
    page: Page | None = None


INGEST = Kind("ingest", "understudy.steps.ingest", "understudy.components.ingest.component", contents="records.json")
PREPARE = Kind("prepare", "understudy.steps.prepare", "understudy.components.prepare.component")
TRAINING = Kind(
    "train", "understudy.steps.training", "understudy.components.train.component", launches=True, resumes=True
)
LOGITS = Kind(
    "logits",
    "understudy.steps.logits",
    "understudy.components.logits.component",
    launches=True,
    resumes=True,
    reads_code=True,
)
EVALUATION = Kind(
    "evaluate",
    "understudy.steps.evaluate",
    "understudy.components.evaluate.component",
    launches=True,
    reads_code=True,
    labelled_component="understudy.components.evaluate.classifier",
    contents="measures.json",
)
GATE = Kind(
    "gate",
    "understudy.steps.gate",
    "understudy.components.gate.component",
    decides=True,
    contents="verdict.json",
    page=Page("report", "report.html", is_recorded=True),
)
REGISTRATION = Kind(
    "register",
    "understudy.steps.register",
    "understudy.components.register.component",
    reads_code=True,
    needs_approval=True,
    contents="registration.json",
)


@dataclass(frozen=True)
class Node:
    """One node."""

    name: str
    kind: Kind
    role: str
    """The role of its result among other nodes' inputs."""
    inputs: tuple[str, ...] = ()
    """The roles of its inputs; the champion's is set where it is looked up."""
    learner: str = ""
    """Of a training: the path in the recipe of what it trains."""
    training: str = ""
    """Of a training: its path in the recipe; empty for a model that is used as it is."""
    examples: str = ""
    """Of a training, or of logits: the role of its examples."""
    data: str = ""
    """Of data: the name of its data set; empty for that of the section `data`."""
    start: str = ""
    """Of a training: the role of the model that it starts from: of an earlier stage, or of the teacher that gives its
    layers. Empty for random or pretrained weights."""
    teachers: tuple[str, ...] = ()
    """Of a training: the roles of its teachers. Of logits: their teacher's."""
    logits: tuple[str, ...] = ()
    """Of a training: the roles of its teachers' cached logits, in the teachers' order; "" for a model in memory."""
    resources: str = ""
    """Of a kind that launches a job: the key of the job's section in `resources`."""

    @property
    def model(self) -> str:
        """Of a training: the path of the model's section in the recipe."""
        return f"{self.learner}.model"

    @property
    def is_control(self) -> bool:
        """Whether it trains the control."""
        return self.is_student and self.role.startswith(CONTROL)

    @property
    def is_student(self) -> bool:
        """Whether it trains the student, or its control."""
        return self.learner == STUDENT


def nodes(recipe: Recipe) -> tuple[Node, ...]:
    """The nodes of a recipe, each after those whose results are its inputs."""
    roles = (*recipe.all_teachers, *((CONTROL,) if recipe.student.control else ()), STUDENT)
    every = (
        Node("ingest", INGEST, RECORDS),
        Node("prepare", PREPARE, EXAMPLES, (RECORDS,)),
        *_of_data_sets(recipe),
        *_of_teachers(recipe),
        *(_stages(recipe, CONTROL, CONTROL) if recipe.student.control else ()),
        *_stages(recipe, STUDENT, "distill"),
        Node("evaluate", EVALUATION, MEASURES, (EXAMPLES, *roles), resources="evaluate"),
        Node("gate", GATE, VERDICT, (MEASURES, RECORDS, EXAMPLES, *roles)),
        Node("register", REGISTRATION, REGISTERED, (MEASURES, VERDICT, RECORDS, EXAMPLES, *roles)),
    )
    return tuple(dict.fromkeys(every))  # several trainings may read the same logits


def _of_data_sets(recipe: Recipe) -> Iterator[Node]:
    """The nodes of further data, whose records are compared with those that `data` sets aside."""
    for name in recipe.data_sets:
        records = f"{RECORDS}-{name}"
        yield Node(f"ingest-{name}", INGEST, records, (RECORDS,), data=name)
        yield Node(f"prepare-{name}", PREPARE, f"{EXAMPLES}-{name}", (records, EXAMPLES), data=name)


def _of_teachers(recipe: Recipe) -> Iterator[Node]:
    """The trainings of all teachers, each after those of its own teachers."""
    for name in in_order(recipe):
        yield from _stages(recipe, name, name)


def _stages(recipe: Recipe, role: str, name: str) -> Iterator[Node]:
    """The trainings of a learner, one for each stage; all but the last have a number in their name and role."""
    learner = learner_of(role)
    paths = paths_of(recipe, learner)
    layers = start_of(recipe, learner)
    start = (layers.teacher if layers else None) or ""
    for number, path in enumerate(paths or [""], 1):
        suffix = f"-{number}" if number < len(paths) else ""
        teachers = recipe.teachers_of(path) if path and role != CONTROL else ()
        data = recipe.trainings[path].data if path else None
        examples = f"{EXAMPLES}-{data}" if data else EXAMPLES
        cached = [_logits(recipe, name, data or "", examples) for name in teachers]
        yield from (node for node in cached if node)
        logits = tuple(node.role if node else "" for node in cached)
        signals = [role or name for name, role in zip(teachers, logits, strict=True)]
        inputs = tuple(dict.fromkeys((examples, *((start,) if start else ()), *signals)))
        yield Node(
            f"{name}{suffix}",
            TRAINING,
            f"{role}{suffix}",
            inputs,
            learner=learner,
            training=path,
            examples=examples,
            start=start,
            teachers=teachers,
            logits=logits if any(logits) else (),
            resources=job_of(recipe, learner),
        )
        start = f"{role}{suffix}"


def _logits(recipe: Recipe, teacher: str, data: str, examples: str) -> Node | None:
    """The node that caches a teacher's logits on the examples of a data set; None if its model is in memory."""
    if not recipe.logit_cache(teacher):
        return None
    parts = ("logits", "" if teacher == TEACHER else teacher, data)
    name = "-".join(part for part in parts if part)
    return Node(
        name,
        LOGITS,
        name,
        (examples, teacher),
        learner=learner_of(teacher),
        examples=examples,
        teachers=(teacher,),
        resources="evaluate",
    )


def trainings(recipe: Recipe) -> tuple[Node, ...]:
    """The nodes that train or fetch a model."""
    return tuple(node for node in nodes(recipe) if node.kind is TRAINING)


def node_of(recipe: Recipe, kind: Kind) -> Node:
    """The node of a kind of which every recipe has one; of data, that of the section `data`."""
    (node,) = (node for node in nodes(recipe) if node.kind is kind and not node.data)
    return node
