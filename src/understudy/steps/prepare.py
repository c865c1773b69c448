"""Records -> examples, the arrays that training maps into memory."""

from collections.abc import Mapping

from understudy.launch.platform import platform
from understudy.recipe import Recipe
from understudy.steps.step import Step, Work
from understudy.store import Store


def _section(recipe: Recipe, store: Store) -> Mapping[str, object]:
    if recipe.task == "image-classification":
        return {"task": recipe.task, "image": recipe.image.model_dump(mode="json")}
    from understudy.data.tokenizer import files

    text = recipe.text
    content = [store.fingerprints.file(path) for path in files(text.tokenizer)] if text.tokenizer.pretrained else []
    return {"task": recipe.task, "text": text.model_dump(mode="json"), "content": content}


def _prepare(work: Work) -> None:
    from understudy.data.prepare import prepare

    platform().prepare(work.run, work.recipe.resources)
    prepare(work.recipe.data, work.recipe.task, work.input("records"), work.staged, work.progress)


PREPARE = Step(
    name="prepare",
    kind="examples",
    work=_prepare,
    functions=(_prepare,),
    modules=("understudy.data.prepare",),
    section=_section,
    inputs=("records",),
)
