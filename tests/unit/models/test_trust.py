import json
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from tests.unit.models.sections import section
from understudy.errors import UnderstudyError
from understudy.models.build import build_model
from understudy.models.describe import describe
from understudy.models.facts import DESCRIPTION, TOKENIZER_FILES, WEIGHTS, Description
from understudy.models.files import load_model, save_model
from understudy.models.trust import check_delivered, trusted_champion, trusted_description, trusted_descriptions
from understudy.recipe import PretrainedModel, Train
from understudy.store import Store

FACTS: Any = {
    "task": "image-classification",
    "labels": ["cat", "dog"],
    "image": {"size": 8, "channels": 1},
    "mean": [0.5],
    "std": [0.25],
}
VIT: dict[str, Any] = {
    "type": "vit",
    "config": {
        "hidden_size": 8,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "intermediate_size": 8,
        "patch_size": 4,
    },
}
WHERE = "teacher.model"
TRAIN = Train(steps=1)
PLANTED = """
from pathlib import Path
from torch import nn

Path(__file__).with_name("ran").touch()

def net(**known):
    return nn.Linear(1, 1)
"""


@pytest.fixture
def examples(tmp_path: Path) -> Path:
    folder = tmp_path / "examples"
    folder.mkdir()
    (folder / "examples.json").write_text(json.dumps(FACTS))
    return folder


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A saved model as a training leaves it."""
    folder = tmp_path / "model"
    folder.mkdir()
    description = describe(section(VIT), FACTS, WHERE)
    save_model(folder, build_model(description).state_dict(), description)
    (folder / "history.json").write_text("[]")
    return folder


@pytest.fixture
def ran(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], bool]:
    """Whether a module that somebody planted was run; it can be imported."""
    (tmp_path / "planted.py").write_text(PLANTED)
    monkeypatch.syspath_prepend(tmp_path)
    return (tmp_path / "ran").exists


def say(folder: Path, **changes: Any) -> None:
    """Change a model's description."""
    description = json.loads((folder / DESCRIPTION).read_text())
    (folder / DESCRIPTION).write_text(json.dumps({**description, **changes}, indent=1, sort_keys=True) + "\n")


def load(folder: Path, examples: Path, model_section: Any = VIT) -> Description:
    """Load a model as who measures it does."""
    description = trusted_description(folder, section(model_section), examples, WHERE)
    load_model(folder, description, torch.device("cpu"))
    return description


def test_a_model_as_the_recipe_describes_it_is_loaded(model: Path, examples: Path) -> None:
    assert load(model, examples)["image"] == {"size": 8, "channels": 1}  # type: ignore[typeddict-item]


def test_a_model_in_the_store_has_a_manifest_beside_its_files(tmp_path: Path, model: Path, examples: Path) -> None:
    store = Store(tmp_path / "store")
    assert load(store.objects.path(store.objects.publish(model, "model")), examples)


CODE = {"configuration_planted.py": PLANTED, "modeling_planted.py": PLANTED}


@pytest.mark.parametrize(
    "planted",
    [
        {"kind": "factory", "factory": "planted:net", "kwargs": {}},
        {"kind": "factory", "factory": "os:system", "kwargs": {"command": "touch ran"}},
        {"kind": "transformers", "code": CODE},
        {"config": {"model_type": "planted", "auto_map": {"AutoConfig": "modeling_planted.Config"}}, "code": CODE},
        {"kind": "pickle"},
        {"kind": ["factory"]},
        {"kind": "transformers", "config": None},
    ],
)
@pytest.mark.parametrize("model_section", [VIT, {"pretrained": "somebody/model"}, {"factory": "ours:net"}])
def test_code_that_a_folder_names_is_not_run(
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    model: Path,
    examples: Path,
    ran: Callable[[], bool],
    model_section: Any,
    planted: dict[str, Any],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ours.py").write_text("from torch import nn\ndef net(num_labels):\n    return nn.Linear(1, 1)\n")
    say(model, **planted)
    with pytest.raises(UnderstudyError, match=r"understudy\.json: .*move (its|the) folder away, and run again"):
        load(model, examples, model_section)
    assert not ran()


@pytest.mark.parametrize(
    "planted",
    [
        {"kind": "factory", "factory": "planted:net", "kwargs": {}},
        {"kind": "factory", "factory": "planted:net](https://example.com", "kwargs": {}},
        {"code": CODE},
        {"config": {"model_type": "vit", "auto_map": {"AutoModel": "planted.Model"}}},
        {"config": {"model_type": "bert"}},
        {"labels": ["dog", "cat"]},
        {"more": 1},
        {"kind": "pickle"},
    ],
)
def test_who_takes_a_model_over_sees_without_loading_it_that_it_names_other_code(
    model: Path, examples: Path, planted: dict[str, Any]
) -> None:
    check_delivered(model, section(VIT), TRAIN, examples, WHERE)
    say(model, **planted)
    with pytest.raises(UnderstudyError, match=r"understudy\.json: .*so none of its code runs"):
        check_delivered(model, section(VIT), TRAIN, examples, WHERE)


def test_who_takes_a_model_over_looks_into_what_peft_would_read(model: Path, examples: Path) -> None:
    (model / "lora.json").write_text('{"peft_type": "LORA", "megatron_core": "planted"}')
    with pytest.raises(
        UnderstudyError, match=r"is not beside the adapters of teacher\.model of this recipe \(lora\.json,"
    ):
        check_delivered(model, section(VIT), TRAIN, examples, WHERE)


def test_who_takes_a_model_over_sees_code_that_its_configuration_for_transformers_names(
    model: Path, examples: Path
) -> None:
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(
        json.dumps({**config, "auto_map": {"AutoModel": "somebody/model--planted.Model"}})
    )
    with pytest.raises(UnderstudyError, match="has another config than"):
        check_delivered(model, section(VIT), TRAIN, examples, WHERE)


OURS = {"factory": "ours:net", "kwargs": {"width": 3}}


@pytest.mark.parametrize(
    ("kwargs", "fits"),
    [
        ({"width": 3}, True),
        ({"width": 3, "num_labels": 2, "image_size": 8}, True),
        ({"width": 4}, False),
        ({}, False),
        ({"width": 3, "num_labels": 3}, False),
        ({"width": 3, "path": None}, False),
        (None, False),
    ],
)
def test_a_factorys_arguments_are_compared_without_importing_it(
    model: Path, examples: Path, kwargs: object, fits: bool
) -> None:
    say(model, kind="factory", factory="ours:net", kwargs=kwargs)
    description = json.loads((model / DESCRIPTION).read_text())
    (model / DESCRIPTION).write_text(json.dumps({key: description[key] for key in description if key != "config"}))
    (model / "config.json").unlink()
    with nullcontext() if fits else pytest.raises(UnderstudyError, match="has another kwargs than"):
        check_delivered(model, section(OURS), TRAIN, examples, WHERE)
    (model / "config.json").write_text("{}")
    with pytest.raises(UnderstudyError, match="has another kwargs than"):
        check_delivered(model, section(OURS), TRAIN, examples, WHERE)


@pytest.mark.parametrize(
    "changes",
    [{"mean": [0.4]}, {"labels": ["dog", "cat"]}, {"config": {"model_type": "vit"}}, {"more": 1}, {"more": None}],
)
def test_a_model_that_is_not_the_recipes_is_named_with_the_difference(
    model: Path, examples: Path, changes: dict[str, Any]
) -> None:
    say(model, **changes)
    with pytest.raises(UnderstudyError, match=rf"is no teacher\.model of this recipe \({next(iter(changes))}: "):
        load(model, examples)


def test_a_configuration_that_names_code_of_a_hub_asks_nobody(
    monkeypatch: pytest.MonkeyPatch, model: Path, examples: Path
) -> None:
    """transformers would ask at the terminal whether to run it."""
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("somebody was asked"))
    planted = {"model_type": "bert", "auto_map": {"AutoModelForImageClassification": "somebody/model--planted.Net"}}
    say(model, config=planted)
    (model / "config.json").unlink()
    description = trusted_description(model, PretrainedModel(pretrained="somebody/model"), examples, WHERE)
    with pytest.raises(ValueError, match=r"Unrecognized configuration class|custom code"):
        build_model(description)


def test_a_description_that_cannot_be_read_is_refused(model: Path, examples: Path) -> None:
    (model / DESCRIPTION).write_text("{")
    with pytest.raises(UnderstudyError, match="does not describe a model"):
        load(model, examples)
    (model / DESCRIPTION).unlink()
    with pytest.raises(UnderstudyError, match=r"understudy\.json: does not exist"):
        load(model, examples)


def test_a_pretrained_models_own_code_runs_only_where_the_recipe_trusts_it(model: Path, examples: Path) -> None:
    say(model, code=CODE)
    trusting = PretrainedModel(pretrained="somebody/model", trust_remote_code=True)
    assert "code" in trusted_description(model, trusting, examples, WHERE)
    with pytest.raises(UnderstudyError, match=r"teacher\.model does not set trust_remote_code: true"):
        trusted_description(model, PretrainedModel(pretrained="somebody/model"), examples, WHERE)


def test_a_pretrained_model_brings_its_own_normalization_and_no_other_labels(model: Path, examples: Path) -> None:
    pretrained = PretrainedModel(pretrained="somebody/model")
    say(model, mean=[0.1])
    assert trusted_description(model, pretrained, examples, WHERE)
    say(model, labels=["a", "b"])
    with pytest.raises(UnderstudyError, match="is a model of other examples"):
        trusted_description(model, pretrained, examples, WHERE)


@pytest.mark.parametrize("name", TOKENIZER_FILES)
@pytest.mark.parametrize("exists", [True, False])
def test_another_tokenizer_is_refused(model: Path, examples: Path, name: str, exists: bool) -> None:
    if exists:
        (examples / name).write_text("{ }")
    (model / name).write_text("{}")
    with pytest.raises(UnderstudyError, match="differs from the examples' file"):
        load(model, examples)


@pytest.mark.parametrize("name", ["modeling_planted.py", "pytorch_model.bin", "adapter_config.json", ".hidden"])
def test_a_file_that_is_no_part_of_a_model_is_refused(model: Path, examples: Path, name: str) -> None:
    (model / name).write_text("")
    with pytest.raises(UnderstudyError, match="is not a file of a saved model"):
        load(model, examples)


def test_a_configuration_for_others_that_says_something_else_is_refused(model: Path, examples: Path) -> None:
    """Whoever serves the model with transformers alone reads config.json."""
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps({**config, "auto_map": {"AutoModel": "planted.Net"}}))
    with pytest.raises(UnderstudyError, match=r"config\.json: does not fit understudy\.json"):
        load(model, examples)


@pytest.mark.parametrize("case", ["a pickle", "another shape", "another type", "nothing"])
def test_weights_are_compared_by_name_shape_and_type(model: Path, examples: Path, case: str) -> None:
    if case == "a pickle":
        torch.save({}, model / WEIGHTS)
    elif case == "nothing":
        (model / WEIGHTS).unlink()
    else:
        from safetensors.torch import load_file

        state = load_file(model / WEIGHTS)
        name = "classifier.bias"
        state[name] = torch.zeros(3) if case == "another shape" else state[name].half()
        save_file(state, model / WEIGHTS)
    with pytest.raises(UnderstudyError, match=r"model\.safetensors: is not|its weights (do not fit|are neither in)"):
        load(model, examples)


# The champion


def strange(model: Path, ours: list[Any], *sections: Any) -> Description:
    return trusted_champion(model, {str(number): section(values) for number, values in enumerate(sections)}, ours)


def test_a_champion_without_code_may_come_from_any_recipe(model: Path) -> None:
    say(model, labels=["x"])
    assert strange(model, [], {"factory": "ours:net"})["labels"] == ["x"]  # type: ignore[typeddict-item]


def test_a_champions_factory_has_to_be_one_of_this_recipes(model: Path) -> None:
    say(model, kind="factory", factory="ours:net", kwargs={"width": 3})
    assert strange(model, [], VIT, {"factory": "ours:net"})["kind"] == "factory"
    with pytest.raises(UnderstudyError, match="the champion runs ours:net, which this recipe does not name"):
        strange(model, [], VIT, {"factory": "ours:other"})


@pytest.mark.parametrize("beside", [{"code": {}}, {}])
@pytest.mark.parametrize("inner", [False, True])
def test_a_champion_without_code_names_none_that_lies_elsewhere(
    model: Path, beside: dict[str, Any], inner: bool
) -> None:
    named = {"auto_map": {"AutoConfig": "/an/object/of/the/store--evil.Config"}}
    config = json.loads((model / DESCRIPTION).read_text())["config"]
    say(model, config={**config, **({"text_config": named} if inner else named)}, **beside)
    with pytest.raises(UnderstudyError, match="the champion runs code of its own"):
        strange(model, [], VIT)


def test_a_champions_own_code_has_to_be_that_of_a_model_of_this_run(model: Path) -> None:
    say(model, code=CODE)
    assert "code" in strange(model, [{"kind": "transformers", "config": {}, "code": CODE}], VIT)
    for changes in ({"code": {"modeling_planted.py": ""}}, {"code": CODE, "config": {"auto_map": {}}}):
        with pytest.raises(UnderstudyError, match="the champion runs code of its own"):
            strange(model, [{"kind": "transformers", "config": {}, **changes}], VIT)


def test_each_role_is_compared_with_its_own_section(model: Path, examples: Path) -> None:
    smaller = {**VIT, "config": {**VIT["config"], "hidden_size": 4}}
    sections = {"teacher.model": section(VIT), "student.model": section(smaller)}
    descriptions = trusted_descriptions({"champion": model, "teacher": model}, sections, examples)
    assert list(descriptions) == ["champion", "teacher"]
    with pytest.raises(UnderstudyError, match=r"is no student\.model of this recipe \(config: "):
        trusted_descriptions({"control": model}, sections, examples)
