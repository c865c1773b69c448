import pytest

from tests import ROOT
from understudy.recipe.file import from_values, load
from understudy.recipe.hub import hub_ids

RECIPES = ROOT / "recipes"


@pytest.mark.parametrize(
    ("recipe", "changes", "named"),
    [
        ("digits", [], {}),
        ("digits", ["teacher.model={pretrained: org/vit}"], {"teacher.model": "org/vit"}),
        ("digits", ["student.model={pretrained: org/small, revision: main}"], {"student.model": "org/small"}),
        ("digits", ["teacher.model={pretrained: /models/vit}"], {}),
        ("digits", ["teacher.model={pretrained: ./vit}"], {}),
        ("pydoc", ["data.text.tokenizer={pretrained: org/words}"], {"data.text.tokenizer": "org/words"}),
        ("pydoc", ["data.text.tokenizer={pretrained: ../words}"], {}),
        ("pydoc", ["data.source={type: datasets, path: org/texts}"], {"data.source": "org/texts"}),
        ("pydoc", ["data.source={type: datasets, path: /data/texts}"], {}),
        ("pydoc", ["data.source={type: jsonl, path: org/texts}"], {}),
    ],
)
def test_a_hub_is_asked_for_ids_and_not_for_folders(recipe: str, changes: list[str], named: dict[str, str]) -> None:
    values = load(RECIPES / f"{recipe}.yaml").model_dump(mode="json", by_alias=True)
    assert hub_ids(from_values(values, changes, "test")) == named
