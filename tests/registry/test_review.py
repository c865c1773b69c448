from dataclasses import replace
from typing import Any

import pytest

from tests.registry.submitted import RECIPE, Pipeline, connect
from understudy.errors import InputError
from understudy.recipe import Recipe
from understudy.registry.review import review, up_for_review


@pytest.fixture
def reviewed(pipeline: Pipeline) -> Pipeline:
    """A champion, and a challenger of another recipe."""
    first = pipeline.register()
    connect(pipeline.uri).set_registered_model_alias(first.name, "champion", first.version)
    changed = {**RECIPE, "seed": 5, "register": {"model": first.name, "experiment": first.name}}
    pipeline.recipe = Recipe.model_validate(changed)
    pipeline.register(run=pipeline.new_run(), weights=b"better")
    return pipeline


def test_a_review_shows_the_evidence_and_the_differences_from_the_champion(reviewed: Pipeline) -> None:
    name = reviewed.recipe.model_name
    shown = review(reviewed.uri, name)
    assert (shown.version.number, shown.champion and shown.champion.number) == ("2", "1")
    text = shown.text()
    assert f"# {name}, version 2, against version 1, the champion" in text
    assert f"digest {shown.version.tags['understudy.digest']}" in text
    assert "0.975 [0.96, 0.99]" in text, "metrics with their intervals"
    assert "**quality-against-teacher**" in text
    assert "- data: the same" in text
    assert "- teacher: the same" in text
    assert [line for line in shown.recipe if line[0] in "+-"][2:] == ["-seed: 0", "+seed: 5"]
    facts = shown.facts()
    assert (facts["champion"], facts["digest"], facts["lineage"]["data"]) == ("1", shown.digest, 2 * ["e" * 64])


def test_a_first_version_is_against_nobody(pipeline: Pipeline) -> None:
    registration = pipeline.register()
    shown = review(pipeline.uri, registration.name, "1")
    assert "against no champion: it would be the first" in shown.text()
    assert "What is otherwise" not in shown.text()


def test_a_review_of_the_champion_calls_it_the_champion(reviewed: Pipeline) -> None:
    name = reviewed.recipe.model_name
    text = review(reviewed.uri, name, "1").text()
    assert text.startswith(f"# {name}, version 1, the champion\n")
    assert "What is otherwise" not in text


def test_challengers_are_listed_beside_their_champions(reviewed: Pipeline) -> None:
    name = reviewed.recipe.model_name
    [(challenger, champion)] = up_for_review(reviewed.uri, name)
    assert (challenger.number, champion and champion.number) == ("2", "1")
    assert (challenger, champion) in up_for_review(reviewed.uri)
    connect(reviewed.uri).set_registered_model_alias(name, "champion", "2")
    assert up_for_review(reviewed.uri, name) == []


def test_a_version_that_cannot_be_reviewed_is_an_error(reviewed: Pipeline) -> None:
    name = reviewed.recipe.model_name
    with pytest.raises(InputError, match="the registry has no version 9;"):
        review(reviewed.uri, name, "9")
    with pytest.raises(InputError, match=r"the registry has no version up for review \(the alias challenger\)"):
        review(reviewed.uri, "nobody's")
    client = connect(reviewed.uri)
    source = client.get_model_version(name, "1").source
    client.create_model_version(name, source)
    with pytest.raises(InputError, match="version 3: understudy did not make it"):
        review(reviewed.uri, name, "3")


def test_evidence_of_other_files_is_refused(reviewed: Pipeline) -> None:
    name, client = reviewed.recipe.model_name, connect(reviewed.uri)
    first = client.get_model_version(name, "1")
    client.create_model_version(name, first.source, run_id=first.run_id, tags={"understudy.digest": "e" * 64})
    with pytest.raises(
        InputError, match=f"is of other files .* than the version's .{'e' * 64}.; it cannot be reviewed"
    ):
        review(reviewed.uri, name, "3")


@pytest.mark.parametrize(
    "text", ["[]", "{", "{}", "[" * 100_000, '{"approved": true, "rules": [{}]}', '{"approved": true, "rules": 5}']
)
def test_evidence_that_is_none_is_refused_in_words(reviewed: Pipeline, text: str) -> None:
    name, client = reviewed.recipe.model_name, connect(reviewed.uri)
    client.log_text(client.get_model_version(name, "2").run_id, text, "verdict.json")
    with pytest.raises(InputError, match="is none of understudy's"):
        review(reviewed.uri, name)


def test_no_text_of_a_run_speaks_to_the_terminal(reviewed: Pipeline) -> None:
    name, client = reviewed.recipe.model_name, connect(reviewed.uri)
    client.log_text(client.get_model_version(name, "2").run_id, "name: \x1b[2J\n", "recipe.yaml")
    shown = review(reviewed.uri, name)
    assert r"\x1b[2J" in shown.text()
    verdict: Any = {**shown.verdict, "cautions": ["a\nforged line"]}
    named = replace(shown, version=replace(shown.version, name="a\nforged line"), verdict=verdict)
    assert "# a\\nforged line, version 2" in named.text()
    assert "**a\\nforged line**" in named.text()
