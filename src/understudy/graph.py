"""The graph of a recipe: its nodes with their inputs, and a table of the kinds of node.

data -> ingest -> prepare --+--> teacher --> distill --+--> evaluate -> gate -> register
                            +--> control --------------+

A node is one step of a run. Its name is that of the step's state in the run's folder, of the pipeline's task, and of
the job in a cluster. Its role names its result among other nodes' inputs.
"""

from dataclasses import dataclass

from understudy.recipe import Recipe
from understudy.recipe.roles import CONTROL, STUDENT, TEACHER

RECORDS, EXAMPLES, MEASURES, VERDICT, REGISTERED = "records", "examples", "measures", "verdict", "registration"
"""The roles of other results."""


@dataclass(frozen=True)
class Kind:
    """What all nodes of a kind have in common."""

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


INGEST = Kind("ingest", "understudy.steps.ingest", "understudy.components.ingest.component")
PREPARE = Kind("prepare", "understudy.steps.prepare", "understudy.components.prepare.component")
TRAINING = Kind(
    "train", "understudy.steps.training", "understudy.components.train.component", launches=True, resumes=True
)
EVALUATION = Kind(
    "evaluate", "understudy.steps.evaluate", "understudy.components.evaluate.component", launches=True, reads_code=True
)
GATE = Kind("gate", "understudy.steps.gate", "understudy.components.gate.component")
REGISTRATION = Kind(
    "register", "understudy.steps.register", "understudy.components.register.component", reads_code=True
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
    """Of a training: the section in the recipe of what it trains."""
    resources: str = ""
    """Of a kind that launches a job: the key of the job's section in `resources`."""

    @property
    def has_teacher(self) -> bool:
        """Whether it trains with a teacher's outputs."""
        return self.kind is TRAINING and TEACHER in self.inputs

    @property
    def model(self) -> str:
        """Of a training: the path of the model's section in the recipe."""
        return f"{self.learner}.model"


def nodes(recipe: Recipe) -> tuple[Node, ...]:
    """The nodes of a recipe, each after those whose results are its inputs."""
    learners: tuple[Node, ...] = (
        Node("teacher", TRAINING, TEACHER, (EXAMPLES,), learner="teacher", resources="teacher"),
        Node("control", TRAINING, CONTROL, (EXAMPLES,), learner="student", resources="distill"),
        Node("distill", TRAINING, STUDENT, (EXAMPLES, TEACHER), learner="student", resources="distill"),
    )
    learners = learners if recipe.student.control else tuple(node for node in learners if node.role != CONTROL)
    models = tuple(node.role for node in learners)
    return (
        Node("ingest", INGEST, RECORDS),
        Node("prepare", PREPARE, EXAMPLES, (RECORDS,)),
        *learners,
        Node("evaluate", EVALUATION, MEASURES, (EXAMPLES, *models), resources="evaluate"),
        Node("gate", GATE, VERDICT, (MEASURES, RECORDS, EXAMPLES, *models)),
        Node("register", REGISTRATION, REGISTERED, (MEASURES, VERDICT, RECORDS, EXAMPLES, *models)),
    )


def trainings(recipe: Recipe) -> tuple[Node, ...]:
    """The nodes that train or fetch a model."""
    return tuple(node for node in nodes(recipe) if node.kind is TRAINING)


def node_of(recipe: Recipe, kind: Kind) -> Node:
    """The node of a kind of which every recipe has one."""
    (node,) = (node for node in nodes(recipe) if node.kind is kind)
    return node
