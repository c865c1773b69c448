from typing import Annotated, Literal

import pytest
from pydantic import BaseModel, Discriminator, Field, Tag, ValidationError, model_validator

from understudy.recipe.key_path import KeyPath, find


class Left(BaseModel, extra="forbid"):
    side: Literal["left"]
    depth: int = 0


class Right(BaseModel, extra="forbid"):
    side: Literal["right"]
    again: "Tree | None" = None


class Tree(BaseModel, extra="forbid"):
    branch: Annotated[Left | Right, Field(discriminator="side")]
    leaves: tuple[Annotated[Left | Right, Field(discriminator="side")], ...] = ()
    fruit: dict[str, Left] = {}
    height: Annotated[
        Annotated[int, Tag("number")] | Annotated[Left, Tag("part")],
        Discriminator(lambda value: "part" if isinstance(value, dict) else "number"),
    ] = 0
    other: Annotated[Left | None, Field(alias="or")] = None
    either: int | Literal["x"] = 0

    @model_validator(mode="after")
    def _nothing(self) -> "Tree":
        return self


LEFT = {"side": "left"}
PATHS: list[tuple[dict[str, object], KeyPath, tuple[str, ...]]] = [
    ({"branch": {**LEFT, "x": 1}}, ("branch", "x"), ("side", "depth")),
    ({"branch": {"side": "right", "again": {"branch": {**LEFT, "x": 1}}}}, ("branch", "again", "branch", "x"),
     ("side", "depth")),
    ({"leaves": [LEFT, {"side": "right", "x": 1}]}, ("leaves", 1, "x"), ("side", "again")),
    ({"fruit": {"apple": {**LEFT, "x": 1}}}, ("fruit", "apple", "x"), ("side", "depth")),
    ({"height": {**LEFT, "x": 1}}, ("height", "x"), ("side", "depth")),
    ({"or": {**LEFT, "x": 1}}, ("or", "x"), ("side", "depth")),
    ({"x": 1}, ("x",), ("branch", "leaves", "fruit", "height", "or", "either")),
    ({"either": "y"}, ("either",), ("branch", "leaves", "fruit", "height", "or", "either")),
]  # fmt: skip


@pytest.mark.parametrize(("values", "path", "allowed_keys"), PATHS)
def test_a_place_is_the_one_that_the_user_wrote_and_its_section_is_known(
    values: dict[str, object], path: KeyPath, allowed_keys: tuple[str, ...]
) -> None:
    with pytest.raises(ValidationError) as caught:
        Tree.model_validate({"branch": LEFT, **values})
    for error in caught.value.errors():
        location = find(Tree, error["loc"])
        assert (location.path, location.allowed_keys) == (path, allowed_keys)


@pytest.mark.parametrize("values", [{"branch": {}}, {"branch": {"side": "up"}}])
def test_a_union_by_name_tells_its_members(values: dict[str, object]) -> None:
    with pytest.raises(ValidationError) as caught:
        Tree.model_validate(values)
    (error,) = caught.value.errors()
    assert find(Tree, error["loc"]).members == ("left", "right")


def test_a_place_that_the_schema_does_not_have_is_taken_as_it_is() -> None:
    assert find(Tree, ("branch", "up", "x", 3)).path == ("branch", "x", 3)
