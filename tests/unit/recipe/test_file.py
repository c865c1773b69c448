import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st

from understudy.errors import InputError
from understudy.recipe import Recipe
from understudy.recipe.file import completed, dump, from_values, load, read, schema
from understudy.recipe.objectives import OBJECTIVES
from understudy.recipe.overrides import split_overrides
from understudy.recipe.sources import SOURCES, serving
from understudy.recipe.tasks import TASKS
from understudy.recipe.yaml import parse

DIGITS = """\
name: digits
task: image-classification
data:
  source: {type: digits}
  image:
    size: 8
    channels: 1
teacher:
  model: {type: vit, config: {hidden_size: 96}}
  train:
    epochs: 20
    batch_size: 64
student:
  model: {type: vit, config: {hidden_size: 24}}
  train:
    epochs: 20
    optimizer: {learning_rate: 1e-3}
"""
fast = settings(deadline=None, max_examples=50)
PYDOC = """\
name: pydoc
task: causal-lm
data:
  source: {type: python-docs}
teacher:
  model: {type: llama}
  train: {steps: 10}
student:
  model: {type: llama}
  train: {steps: 10}
"""


def write(folder: Path, text: str, name: str = "r.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def errors_of(folder: Path, text: str, overrides: Sequence[str] = ()) -> list[str]:
    """The lines of the error that a recipe earns, without the file's folder."""
    with pytest.raises(InputError) as caught:
        load(write(folder, text), overrides)
    return str(caught.value).replace(f"{folder}{os.sep}", "").splitlines()


BAD = {
    "batch_size: 64": {
        "batchsize: 64": "r.yaml:12: teacher.train.batchsize: unknown key; did you mean batch_size?",
        "lr: 0.1": "r.yaml:12: teacher.train.lr: unknown key; did you mean optimizer.learning_rate?",
        "batch_size: '64'": 'r.yaml:12: teacher.train.batch_size: expected a whole number, got "64"',
        "batch_size: true": "r.yaml:12: teacher.train.batch_size: expected a whole number, got true",
        "batch_size: 6.5": "r.yaml:12: teacher.train.batch_size: expected a whole number, got 6.5",
        "batch_size: 0": "r.yaml:12: teacher.train.batch_size: must be greater than 0, got 0",
        "batch_size:": "r.yaml:12: teacher.train.batch_size: expected a whole number, got nothing (null)",
        "steps: 3": "r.yaml:10: teacher.train: give exactly one of steps and epochs; set the other one to null",
        "epochs: 3": "r.yaml:12: teacher.train.epochs: given twice, here and on line 11",
        "max_grad_norm: .inf": "r.yaml:12: teacher.train.max_grad_norm: .inf is not a finite number",
        "strategy: dpd": "r.yaml:12: teacher.train.strategy: expected single, dp, ddp, zero1, zero2, zero3, fsdp, "
        'hsdp, tp, cp, pp, 3d or auto, got "dpd"; did you mean dp?',
        "strategy: {dp_shrad: 2}": "r.yaml:12: teacher.train.strategy.dp_shrad: unknown key; did you mean dp_shard?",
        "strategy: {dp_shard: 2}": "r.yaml:12: teacher.train.strategy: dp_replicate x dp_shard is 2, but "
        "resources.teacher.processes is 1; make them equal",
        "pipeline: {schedule: GPipe}": "r.yaml:12: teacher.train.pipeline: is for a model in stages, and pp is 1; "
        "remove it, or use strategy: pp",
        "pipeline: {schedule: GPipe, stages: 2}": "r.yaml:12: teacher.train.pipeline: GPipe has one stage in each "
        "process; leave stages out, or use Interleaved1F1B",
        "pipeline: {schedule: DualPipeV, stages: 3}": "r.yaml:12: teacher.train.pipeline: DualPipeV has two stages in "
        "each process; leave stages out",
        "strategy: hsdp": "r.yaml:12: teacher.train.strategy: hsdp keeps two sharded replicas: "
        "resources.teacher.processes must be 4, 6, 8, ..., and is 1; or use fsdp",
        "schedule: {warmup: true}": "r.yaml:12: teacher.train.schedule.warmup: expected a whole number, got true",
        "optimizer: [adamw]": 'r.yaml:12: teacher.train.optimizer: expected a section (key: value), got ["adamw"]',
        "compile: maybe": 'r.yaml:12: teacher.train.compile: expected true or false or auto, got "maybe"',
        "compile: 3": "r.yaml:12: teacher.train.compile: expected true or false or auto, got 3",
        "compile: aut": 'r.yaml:12: teacher.train.compile: expected true or false or auto, got "aut"; '
        "did you mean auto?",
        "compile: 'a, got b'": 'r.yaml:12: teacher.train.compile: expected true or false or auto, got "a, got b"',
        "compile: [true, auto]": 'r.yaml:12: teacher.train.compile: expected true or false or auto, got [true, "auto"]',
        "precision: no": 'r.yaml:12: teacher.train.precision: expected auto, fp32, bf16, fp16 or fp8, got "no"',
        "? [a]\n    : 3": "r.yaml:12: teacher.train: a key must be a word",
        "batch_size: !!python/name:os.system ''": "r.yaml:12: teacher.train.batch_size: the tag "
        "tag:yaml.org,2002:python/name:os.system is not understood; leave it out",
        "\tbatch_size: 3": "r.yaml:12: not YAML: found character '\\t' that cannot start any token; indent with spaces",
        "frobnicate: 3": "r.yaml:12: teacher.train.frobnicate: unknown key; known here: steps, epochs, batch_size, "
        "gradient_accumulation_steps, optimizer, schedule, max_grad_norm, precision, strategy, tensor_plan, "
        "pipeline, compression, diloco, lora, label_smoothing, augment, activation_checkpointing, offload, compile, "
        "average, guard, checkpoint_every, resume_resharded, validate_every, keep_best, patience",
    },
    "source: {type: digits}": {
        "source: {type: digts}": "r.yaml:4: data.source.type: expected "
        f'{", ".join(SOURCES)}, got "digts"; did you mean digits?',
        "source: {}": f"r.yaml:4: data.source.type: required, but missing; one of {', '.join(SOURCES)}",
        "source: {type: parquet}": "r.yaml:4: data.source.path: required, but missing",
        "source: {type: parquet, path: 3}": "r.yaml:4: data.source.path: expected text, got 3",
        "source: {type: parquet, path: x, lable: y}": "r.yaml:4: data.source.lable: unknown key; did you mean label?",
        "source: digits": 'r.yaml:4: data.source: expected a section (key: value), got "digits"',
        "source: {type: python-docs}": "r.yaml:4: data.source.type: python-docs holds no records for the task "
        f"image-classification; use {', '.join(serving('image-classification'))}",
    },
    "channels: 1": {
        "channels: 2": "r.yaml:7: data.image.channels: expected 1 or 3, got 2",
        "channels: true": "r.yaml:7: data.image.channels: expected 1 or 3, got true",
    },
    "type: vit, config: {hidden_size: 96}": {
        "typ: vit": "r.yaml:9: teacher.model: a model needs one of the keys type (an architecture), pretrained, or "
        "factory",
        "type: vit, pretrained: x": "r.yaml:9: teacher.model.pretrained: the model has type already; give the "
        "whole section with one of type, pretrained and factory, as in --set teacher.model={pretrained: ...}",
        "pretrained: 3": "r.yaml:9: teacher.model.pretrained: expected text, got 3",
        "pretrained: x/y, revisoin: z": "r.yaml:9: teacher.model.revisoin: unknown key; did you mean revision?",
        "factory: nothing": 'r.yaml:9: teacher.model.factory: expected package.module:function, got "nothing"',
        "type: vit, config: 3": "r.yaml:9: teacher.model.config: expected a section (key: value), got 3",
    },
    "name: digits": {
        "name: Digits": "r.yaml:1: name: expected 2 to 40 lower-case letters, digits and dashes, a letter first and "
        'no dash last, got "Digits"',
        "name: d": "r.yaml:1: name: expected 2 to 40 lower-case letters, digits and dashes, a letter first and "
        'no dash last, got "d"',
        "seed: 3": "r.yaml:1: name: required, but missing",
    },
    "task: image-classification": {
        "task: images": f'r.yaml:2: task: expected {", ".join([*TASKS][:-1])} or {[*TASKS][-1]}, got "images"',
    },
}


@pytest.mark.parametrize(("valid", "invalid"), [(valid, invalid) for valid, table in BAD.items() for invalid in table])
def test_what_is_wrong_is_named_with_line_path_and_fix(tmp_path: Path, valid: str, invalid: str) -> None:
    assert DIGITS.count(valid) == 1
    assert errors_of(tmp_path, DIGITS.replace(valid, invalid)) == [BAD[valid][invalid]]


APPENDED = [
    ("gate: {metric: perplexity}", "r.yaml:18: gate.metric: perplexity does not fit the task image-classification; "
     "use one of accuracy, nll"),
    ("gate: {metric: calibration_error}", "r.yaml:18: gate.metric: no interval of the calibration error is "
     "reliable, because its estimate is biased; use nll, which grows with bad calibration too; "
     "evaluate.metrics may hold calibration_error"),
    ("gate: {minimum: 90}", "r.yaml:18: gate.minimum: 90 is more than 1 (100 %); of accuracy, 90 % is 0.9"),
    ("evaluate:\n  metrics:\n  - nll\n  - bits_per_byte", "r.yaml:21: evaluate.metrics[1]: bits_per_byte does not fit "
     "the task image-classification; use one of accuracy, nll, calibration_error"),
    ("evaluate: {stride: 8}", "r.yaml:18: evaluate.stride: does not apply to the task image-classification; remove it"),
    ("evaluate: {metrics: accuracy}", 'r.yaml:18: evaluate.metrics: expected a list, got "accuracy"'),
    ("resources: {distill: {processes: 2}}", "r.yaml:15: student.train.strategy: single is for one process, but "
     "resources.distill.processes is 2; use ddp, fsdp or hsdp"),
    ("resources: {distill: {nodes: 2}}", "r.yaml:15: student.train.strategy: single is for one process, but "
     "resources.distill.nodes x processes is 2 x 1; use ddp, fsdp or hsdp"),
    ("resources: {distill: {memory: 2 GB}}", 'r.yaml:18: resources.distill.memory: expected a '
     'quantity as Kubernetes writes it, such as 500m or 16Gi, got "2 GB"'),
    ("gate: {margin: 1}", "r.yaml:18: gate.margin: must be less than 1, got 1"),
    ("gate: {margin: 1e-320}", "r.yaml:18: gate.margin: no test set can rule out a loss as small as "
     "9.99989e-321; give 0.000001 or more, or 0"),
    ("gate: {confidence: 0.9999999999999999}", "r.yaml:18: gate.confidence: must be at most 0.9999, got "
     "0.9999999999999999"),
    ("gate: {confidence: 0.5}", "r.yaml:18: gate.confidence: must be greater than 0.5, got 0.5"),
    ("seed: -1", "r.yaml:18: seed: must be at least 0, got -1"),
]  # fmt: skip


@pytest.mark.parametrize(("more", "message"), APPENDED)
def test_sections_that_do_not_fit_the_rest_are_named(tmp_path: Path, more: str, message: str) -> None:
    assert errors_of(tmp_path, DIGITS + more) == [message]


def test_each_problem_has_a_line_in_the_files_order(tmp_path: Path) -> None:
    lines = errors_of(tmp_path, "gate: x\n" + DIGITS.replace("size: 8", "size: big").replace("epochs: 20", "epochs: 0"))
    assert [line.split(":")[1] for line in lines] == ["1", "7", "12", "17"]


LAUGHS = "".join(f"a{at}: &a{at} [{', '.join([f'*a{at - 1}'] * 9)}]\n" for at in range(1, 20))
"""Nine times nine times nine ... values, in twenty lines."""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a recipe is a section with the keys name, task, data, teacher, student, ...; see recipes/"),
        ("- name: x", "a recipe is a section with the keys name, task, data, teacher, student, ...; see recipes/"),
        ("a: 1\n---\nb: 2", "not YAML: but found another document; keep one, without ---"),
        ("a: &x [*x]", "an alias inside the value that it refers to"),
        (f"a0: &a0 [x]\n{LAUGHS}", "has more than 100,000 values"),
        (
            "a: [",
            "not YAML: expected the node content, but found '<stream end>'; check quotes, brackets, colons and "
            "indentation",
        ),
        ("a: *.txt", 'a text that begins with * or & has to be in quotes: "*.txt"'),
        ("a: \x07", "not YAML: special characters are not allowed"),
        ("a: 1e999", "1e999 is not a finite number"),
        ("a: " + "9" * 5000, "is not a number"),
    ],
)
def test_what_is_no_recipe_at_all_is_told_so(tmp_path: Path, text: str, message: str) -> None:
    (line,) = errors_of(tmp_path, text)
    assert line.startswith("r.yaml")
    assert line.endswith(message)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nothing\.yaml: cannot read this recipe \(No such file"):
        load(tmp_path / "nothing.yaml")
    with pytest.raises(InputError, match=r"cannot read this recipe \(Is a directory"):
        load(tmp_path)
    (tmp_path / "latin.yaml").write_bytes(b"name: \xe9")
    with pytest.raises(InputError, match=r"latin\.yaml: not a text file in UTF-8 \(byte 6\)"):
        load(tmp_path / "latin.yaml")


def test_data_has_no_section_of_the_other_task(tmp_path: Path) -> None:
    assert errors_of(tmp_path, PYDOC.replace("data:", "data:\n  image: {size: 8}")) == [
        "r.yaml:4: data.image: does not apply to the task causal-lm; remove it"
    ]
    assert errors_of(tmp_path, DIGITS.replace("data:", "data:\n  text: {}")) == [
        "r.yaml:4: data.text: does not apply to the task image-classification; remove it"
    ]


def test_a_tokenizers_revision_needs_a_pretrained_tokenizer(tmp_path: Path) -> None:
    text = PYDOC.replace("data:", "data:\n  text: {tokenizer: {revision: main}}")
    assert errors_of(tmp_path, text) == [
        "r.yaml:4: data.text.tokenizer.revision: applies to a pretrained tokenizer only; remove it"
    ]


def test_what_is_said_of_a_pretrained_models_images_needs_images(tmp_path: Path) -> None:
    overrides = ["student.model={pretrained: /m, normalization: {mean: [0.5], std: [0.5]}, labels: [a, b]}"]
    assert [line.rpartition("}: ")[2] for line in errors_of(tmp_path, PYDOC, overrides)] == [
        "student.model.labels: does not apply to the task causal-lm; remove it",
        "student.model.normalization: does not apply to the task causal-lm; remove it",
    ]


@pytest.mark.parametrize(
    ("normalization", "messages"),
    [
        (
            "{mean: [0.5, 0.5, 0.5], std: [0.25]}",
            ["mean: has 3 numbers, and data.image.channels is 1; give one for each"],
        ),
        ("{mean: [0.5], std: []}", ["std: has 0 numbers, and data.image.channels is 1; give one for each"]),
        (
            "{mean: [127.5], std: [64]}",
            ["mean: has 127.5, and is of pixels from 0 to 1; divide both mean and std by 255"],
        ),
    ],
)
def test_a_normalization_is_of_the_datas_channels_and_of_pixels_up_to_1(
    tmp_path: Path, normalization: str, messages: list[str]
) -> None:
    errors = errors_of(tmp_path, DIGITS, [f"student.model={{pretrained: /m, normalization: {normalization}}}"])
    assert [line.rpartition("student.model.normalization.")[2] for line in errors] == messages
    fits = "student.model={pretrained: /m, normalization: {mean: [1.0], std: [0.25]}}"
    assert read(write(tmp_path, DIGITS), [fits]).recipe.image.channels == 1


def test_a_model_with_new_outputs_has_no_names_for_them(tmp_path: Path) -> None:
    overrides = ["teacher={model: {pretrained: /m, labels: [a, b]}}", "student.model={pretrained: /m, labels: [a, b]}"]
    assert [line.rpartition("}: ")[2] for line in errors_of(tmp_path, DIGITS, overrides)] == [
        "student.model.labels: the model is trained further, with outputs for the data's labels; remove it"
    ]


def test_models_are_measured_whole_or_in_shards_by_any_number_of_processes(tmp_path: Path) -> None:
    override = "resources.evaluate={nodes: 2, processes: 2}"
    for strategy in ("ddp", "fsdp", "hsdp", "{dp_replicate: 2, dp_shard: 2}"):
        load(write(tmp_path, PYDOC), [override, f"evaluate.strategy={strategy}"])
    for strategy in ("tp", "cp", "pp", "zero1", "zero2"):
        assert errors_of(tmp_path, PYDOC, [override, f"evaluate.strategy={strategy}"]) == [
            f"--set evaluate.strategy={strategy}: evaluate.strategy: models are measured whole or in shards; use ddp, "
            "fsdp, hsdp, or {dp_replicate, dp_shard}"
        ]


@pytest.mark.parametrize(
    ("strategy", "why"),
    [
        ("single", "single is for one process, but resources.evaluate.nodes x processes is 2 x 2"),
        ("auto", "auto is chosen when a run begins"),
        ("{dp_shard: 3}", "dp_replicate x dp_shard is 3, but resources.evaluate.nodes x processes is 2 x 2"),
    ],
)
def test_a_measuring_has_as_many_processes_as_its_strategy(tmp_path: Path, strategy: str, why: str) -> None:
    override = "resources.evaluate={nodes: 2, processes: 2}"
    (line,) = errors_of(tmp_path, PYDOC, [override, f"evaluate.strategy={strategy}"])
    assert f"evaluate.strategy: {why}" in line


def test_a_measuring_waits_for_all_its_nodes(tmp_path: Path) -> None:
    (line,) = errors_of(tmp_path, PYDOC, ["resources.evaluate={nodes: 2, min_nodes: 1}"])
    assert "resources.evaluate.min_nodes: an evaluation that loses a node starts again, with all nodes" in line


def test_windows_that_are_measured_leave_no_gaps(tmp_path: Path) -> None:
    text = PYDOC.replace("data:", "data:\n  text: {sequence_length: 8}")
    assert load(write(tmp_path, text), ["evaluate.stride=8"]).evaluate.stride == 8
    assert errors_of(tmp_path, text, ["evaluate.stride=9"]) == [
        "--set evaluate.stride=9: evaluate.stride: 9 tokens, and data.text.sequence_length is 8: tokens between "
        "windows are not measured; make it 8 or less"
    ]


def test_documents_that_are_apart_go_in_no_ring(tmp_path: Path) -> None:
    text = PYDOC.replace("data:", "data:\n  text: {packing: documents}")
    ring = ["resources.distill.processes=2", "student.train.strategy={cp: 2, cp_comm_type: ring}"]
    load(write(tmp_path, PYDOC), ring)
    load(write(tmp_path, text), [*ring, "student.train.strategy.cp_comm_type=alltoall"])
    (line,) = errors_of(tmp_path, text, ring)
    assert line.endswith(
        "student.train.strategy.cp_comm_type: a ring sees all earlier positions, but packed "
        "documents are kept apart; use alltoall"
    )


def test_something_must_be_left_to_train_on(tmp_path: Path) -> None:
    text = DIGITS.replace("data:", "data:\n  validation: 0.5\n  test: 0.5")
    assert errors_of(tmp_path, text) == [
        "r.yaml:4: data.validation: validation and test together take 1 of the data; leave some to train on"
    ]
    assert errors_of(tmp_path, PYDOC, ["student.train.schedule.warmup=10"]) == [
        "--set student.train.schedule.warmup=10: student.train.schedule.warmup: 10 of 10 steps; leave some to train in"
    ]


@fast
@given(batch=st.integers(1, 300), processes=st.integers(1, 8), accumulate=st.integers(1, 5))
def test_a_batch_is_shared_out_evenly_or_the_nearest_that_can_be_are_named(
    batch: int, processes: int, accumulate: int
) -> None:
    changes = {
        "batch_size": batch,
        "gradient_accumulation_steps": accumulate,
        "strategy": "single" if processes == 1 else "ddp",
    }
    overrides = [f"student.train.{key}={value}" for key, value in changes.items()]
    overrides.append(f"resources.distill.processes={processes}")
    parts = processes * accumulate
    if batch % parts == 0:
        assert from_values(parse(DIGITS).data, overrides, "here").student.train.batch_size == batch
        return
    with pytest.raises(InputError) as caught:
        from_values(parse(DIGITS).data, overrides, "here")
    lower, upper = batch // parts * parts, (batch // parts + 1) * parts
    assert f"({processes} readers x {accumulate} gradient accumulation steps)" in str(caught.value)
    assert str(caught.value).endswith(f"the nearest that can: {lower} or {upper}" if lower else f"can: {upper}")


@pytest.mark.parametrize(
    ("least", "batch", "strategy", "message"),
    [
        (2, 48, "ddp", ""),
        (5, 48, "ddp", "resources.distill.min_nodes: 5 is more than nodes, which is 4; make it 4 or less"),
        (2, 64, "ddp", "with 3 nodes: 64 examples cannot be shared out evenly over 3 parts"),
        (1, 48, "hsdp", "with 1 nodes: hsdp keeps two sharded replicas"),
        (2, 48, "{dp_replicate: 4, dp_shard: 2}", "degrees are for one number of nodes"),
    ],
)
def test_every_number_of_nodes_of_an_elastic_job_has_to_fit(
    least: int, batch: int, strategy: str, message: str
) -> None:
    processes = 1 if strategy == "ddp" else 2
    resources = {"nodes": 4, "min_nodes": least, "processes": processes}
    overrides = [f"resources.distill.{key}={value}" for key, value in resources.items()]
    overrides += [f"student.train.strategy={strategy}", f"student.train.batch_size={batch}"]
    if not message:
        assert from_values(parse(DIGITS).data, overrides, "here").resources.distill.min_nodes == least
        return
    with pytest.raises(InputError, match=re.escape(message)):
        from_values(parse(DIGITS).data, overrides, "here")


@pytest.mark.parametrize(("processes", "fits"), [(1, False), (2, False), (3, False), (4, True), (5, False), (8, True)])
def test_hsdp_on_one_node_needs_two_replicas_of_two_shards(processes: int, fits: bool) -> None:
    batch = f"student.train.batch_size={processes}"
    overrides = ["student.train.strategy=hsdp", f"resources.distill.processes={processes}", batch]
    if fits:
        from_values(parse(DIGITS).data, overrides, "here")
        return
    with pytest.raises(InputError, match="hsdp keeps two sharded replicas"):
        from_values(parse(DIGITS).data, overrides, "here")


# Overrides


def test_an_override_changes_one_value_and_makes_the_sections_it_needs(tmp_path: Path) -> None:
    recipe = load(
        write(tmp_path, DIGITS),
        [
            "seed=7",
            "student.distill.logits.temperature = 2",
            "gate.max_size_ratio=null",
            "evaluate.metrics=[nll, accuracy]",
        ],
    )
    assert (recipe.seed, recipe.student.distill[1].temperature, recipe.gate.max_size_ratio) == (7, 2.0, None)
    assert recipe.evaluate.metrics == ("nll", "accuracy")
    assert recipe.student.train.epochs == 20


def test_the_last_override_of_a_value_counts(tmp_path: Path) -> None:
    path = write(tmp_path, DIGITS)
    assert load(path, ["seed=1", "seed=2"]).seed == 2
    swapped = load(path, ["student.model.config.depth=3", "student.model={factory: 'a.b:c'}"])
    assert swapped.student.model.model_dump() == {"factory": "a.b:c", "kwargs": {}}


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("student.train.batchsize=3", "student.train.batchsize: unknown key; did you mean batch_size?"),
        ("seed=abc", 'seed: expected a whole number, got "abc"'),
        ("seed", "write it as a.b.c=value"),
        ("a..b=3", "write it as a.b.c=value"),
        ("seed=[", "not YAML: expected the node content, but found '<stream end>'; check quotes, brackets, colons and "
         "indentation"),
        ("task.name=3", 'task is "image-classification" and has no name; set all of it: task={...}'),
        ("nope.a=1", "nope: unknown key; known here: name, task, seed, data, data_sets, teacher, teachers, student, "
         "evaluate, gate, register, resources"),
        ("data.source={type: parquet, path: x, n: 3}", "data.source.n: unknown key; known here: type, path, image, "
         "label, columns, format, split, follow_links"),
    ],
)  # fmt: skip
def test_an_overrides_error_names_the_override(tmp_path: Path, override: str, message: str) -> None:
    assert errors_of(tmp_path, DIGITS, [override]) == [f"--set {override}: {message}"]


def test_an_error_in_the_file_names_the_overrides_that_took_part(tmp_path: Path) -> None:
    assert errors_of(tmp_path, DIGITS, ["student.train.epochs=null", "seed=3"]) == [
        "r.yaml:15: student.train: give exactly one of steps and epochs; set the other one to null "
        "(with --set student.train.epochs=null)"
    ]


WORDS = st.from_regex(r"[a-z_]{1,6}", fullmatch=True)
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Cn"])),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("abc019 ~:#-", max_size=4), inner, max_size=3),
    max_leaves=6,
)


@fast
@given(VALUES)
def test_any_value_reaches_a_models_configuration_as_it_was_written(value: Any) -> None:
    (text,) = split_overrides(f"student.model.config.x={json.dumps(value)}")
    recipe = from_values(parse(DIGITS).data, [text], "here")
    assert recipe.student.model.config["x"] == value  # type: ignore[union-attr]


@fast
@given(VALUES)
@example("1e-3")
@example("no")
@example("0o17")
def test_the_complete_recipe_loads_again_to_the_same(value: Any) -> None:
    values = parse(DIGITS).data
    values["student"]["model"]["config"]["x"] = value
    recipe = from_values(values, (), "here")
    document = parse(dump(recipe))
    assert not document.problems
    assert from_values(document.data, (), "here") == recipe


@fast
@given(st.lists(st.tuples(st.lists(WORDS, min_size=1, max_size=3), st.integers()), max_size=4), st.sampled_from("\n;"))
def test_overrides_in_one_text_are_told_apart(pairs: list[tuple[list[str], int]], separator: str) -> None:
    texts = [f"{'.'.join(words)}={value}" for words, value in pairs]
    assert split_overrides(f" {separator} ".join(texts)) == texts


def test_a_semicolon_inside_of_a_value_stays_there() -> None:
    assert split_overrides("data.source.glob='a;b'\n\nseed=3;\n") == ["data.source.glob='a;b'", "seed=3"]


def test_values_that_were_read_before_are_not_changed() -> None:
    values = parse(DIGITS).data
    from_values(values, ["student.model.config.hidden_size=3"], "here")
    assert values == parse(DIGITS).data
    with pytest.raises(InputError, match=r"^overrides seed=x: seed: expected a whole number"):
        from_values(values, ["seed=x"], "here")
    with pytest.raises(InputError, match=r"^the recipe: sed: unknown key; did you mean seed\?"):
        from_values({**values, "sed": 3}, (), "the recipe")


# Values


@pytest.mark.parametrize(
    ("text", "value"),
    [("1e-3", 0.001), (".5", 0.5), ("-3", -3), ("010", 10), ("0x10", "0x10"), ("no", "no"), ("on", "on"), ("~", None),
     ("", None), ("true", True), ("2024-01-01", "2024-01-01"), ("1:30", "1:30"), ("1_000", "1_000"), ("'3'", "3"),
     ("!!str 3", "3"), ("<<", "<<"), ("1.", 1.0), ("+1E5", 1e5)],
)  # fmt: skip
def test_yaml_means_what_it_looks_like(text: str, value: object) -> None:
    data = parse(f"a: {text}").data["a"]
    assert data == value
    assert type(data) is type(value)


def test_an_anchor_may_be_used_twice(tmp_path: Path) -> None:
    text = PYDOC.replace("train: {steps: 10}", "train: &t {steps: 9}", 1).replace("train: {steps: 10}", "train: *t")
    recipe = load(write(tmp_path, text), ["student.train.steps=8"])
    assert recipe.teacher.train is not None
    assert (recipe.teacher.train.steps, recipe.student.train.steps) == (9, 8)


def test_a_whole_number_is_a_number_and_text_is_not(tmp_path: Path) -> None:
    assert load(write(tmp_path, DIGITS), ["student.distill.logits.temperature=3"]).student.distill[1].temperature == 3.0
    assert errors_of(tmp_path, DIGITS, ["student.distill.logits.temperature='3'"]) == [
        "--set student.distill.logits.temperature='3': student.distill[1].temperature: expected a number, got \"3\""
    ]


# Paths


def test_the_datas_path_is_meant_from_the_recipes_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "recipes").mkdir()
    monkeypatch.chdir(tmp_path)
    write(Path("recipes"), DIGITS.replace("type: digits", "type: image-folder, path: ../images"))
    recipe = load(Path("recipes/r.yaml"))
    assert recipe.data.source.path == str(tmp_path / "images")  # type: ignore[union-attr]


def test_an_overrides_path_is_meant_from_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "recipes").mkdir()
    monkeypatch.chdir(tmp_path)
    path = write(tmp_path / "recipes", DIGITS)
    for override in ("data.source={type: image-folder, path: images}", "data.source.path=images"):
        recipe = load(path, ["data.source.type=image-folder", override])
        assert recipe.data.source.path == str(tmp_path / "images")  # type: ignore[union-attr]


def test_a_path_may_begin_at_the_home_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "ann"))
    text = DIGITS.replace("type: digits", "type: image-folder, path: ~/images")
    text = text.replace("type: vit, config: {hidden_size: 96}", "pretrained: ~/teacher")
    recipe = load(write(tmp_path, text))
    assert recipe.data.source.path == str(tmp_path / "ann" / "images")  # type: ignore[union-attr]
    assert recipe.teacher.model.pretrained == str(tmp_path / "ann" / "teacher")  # type: ignore[union-attr]


def test_a_pretrained_model_is_a_folder_when_it_looks_or_is_like_one(tmp_path: Path) -> None:
    path = write(tmp_path, DIGITS)
    (tmp_path / "org" / "there").mkdir(parents=True)
    names = {"org/model": "org/model", "./model": str(tmp_path / "model"), "../model": str(tmp_path.parent / "model")}
    for name, expected in {**names, "org/there": str(tmp_path / "org" / "there"), "/x": "/x"}.items():
        path.write_text(DIGITS.replace("type: vit, config: {hidden_size: 96}", f"pretrained: {name}"))
        assert load(path).teacher.model.pretrained == expected  # type: ignore[union-attr]


def test_so_is_a_data_set_of_a_source_that_takes_hub_ids(tmp_path: Path) -> None:
    (tmp_path / "org" / "there").mkdir(parents=True)
    for name, expected in {"org/data": "org/data", "org/there": str(tmp_path / "org" / "there")}.items():
        path = write(tmp_path, DIGITS.replace("type: digits", f"type: datasets, path: {name}"))
        assert load(path).data.source.path == expected  # type: ignore[union-attr]


# Errors of later steps


def test_what_a_step_says_of_a_place_gets_the_recipes_line(tmp_path: Path) -> None:
    source = read(write(tmp_path, DIGITS), ["gate.margin=0.1"]).source
    messages = "data.image.size: too small\nteacher.model: no\ngate.margin: too much\nnothing: of ours\nno place at all"
    assert source.located(messages).replace(f"{tmp_path}/", "").splitlines() == [
        "r.yaml:6: data.image.size: too small",
        "r.yaml:9: teacher.model: no",
        "--set gate.margin=0.1: gate.margin: too much",
        "nothing: of ours",
        "no place at all",
    ]


# Output


def test_the_complete_recipe_leaves_nothing_open(tmp_path: Path) -> None:
    shown = yaml.safe_load(dump(load(write(tmp_path, DIGITS.replace("size: 8", "size: 16")))))
    assert list(shown)[:4] == ["name", "task", "seed", "data"]
    assert shown["gate"]["metric"] == "accuracy"
    assert shown["evaluate"]["metrics"] == ["accuracy", "nll", "calibration_error"]
    assert shown["register"] == {"model": "digits", "experiment": "digits", "trust_champion": False, "control": False}
    assert shown["data"]["image"] == {"size": 16, "channels": 1, "background": "white"}
    pydoc = yaml.safe_load(dump(load(write(tmp_path, PYDOC))))
    assert pydoc["data"]["text"]["tokenizer"]["vocab_size"] == 4096


def test_completing_twice_changes_nothing(tmp_path: Path) -> None:
    recipe = load(write(tmp_path, PYDOC))
    assert completed(recipe) == recipe
    assert recipe == load(write(tmp_path, dump(recipe)))


def test_the_definitionknows_every_key_and_refuses_others() -> None:
    definition = schema()
    assert set(definition["properties"]) == {field.alias or name for name, field in Recipe.model_fields.items()}
    assert definition["additionalProperties"] is False
    assert "Examples per optimiser step" in definition["$defs"]["Train"]["properties"]["batch_size"]["description"]
    json.dumps(definition)


@pytest.mark.parametrize(
    ("section", "old", "new"),
    [
        ("student.train", "accumulate", "gradient_accumulation_steps"),
        ("student.train", "clip_norm", "max_grad_norm"),
        ("resources.teacher", "failures", "max_restarts"),
        ("resources.distill", "grace", "termination_grace_period"),
        ("resources.distill", "hang", "hang_timeout"),
    ],
)
def test_an_old_key_is_refused_with_the_new_ones_name(section: str, old: str, new: str) -> None:
    with pytest.raises(InputError, match=rf"{section}\.{old}: unknown key; it is called {new} now"):
        load(Path("recipes/digits.yaml"), [f"{section}.{old}=2"])


OLD = "is a list of weighted objectives now: [{type: labels, weight: 0.3}, {type: logits, weight: 0.7, temperature: 2}]"


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("student.distill={temperature: 2, alpha: 0.7}", f"student.distill: {OLD}"),
        (
            "student.distill=[{type: labels}]",
            f"nothing in it is learned from the teacher; give {' or '.join(list(OBJECTIVES)[1:])} a weight above 0",
        ),
        ("student.distill=[{type: logit}]", f'student.distill[0].type: expected {", ".join(OBJECTIVES)}, got "logit"'),
        ("student.distill=[{type: logits, tempreature: 2}]", "did you mean temperature?"),
        ("student.distill.hidden.weight=1", "student.distill is [{"),
        (
            "student.distill.2.weight=1",
            "and has no 2.weight; name an entry: student.distill.labels, student.distill.logits",
        ),
    ],
)
def test_a_list_of_objectives_that_is_wrong_is_told(override: str, message: str) -> None:
    with pytest.raises(InputError) as raised:
        load(Path("recipes/digits.yaml"), [override])
    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["student.distill=[1]", "student.distill.logits.weight=1"], "student.distill is [1] and has no logits.weight"),
        (["student.distill.\u00b2.weight=1"], "name an entry: student.distill.labels, student.distill.logits"),
        (
            ["student.distill=[{type: logits}, {type: logits}]", "student.distill.logits.weight=1"],
            "name an entry: student.distill.0, student.distill.1",
        ),
    ],
)
def test_an_entry_that_a_list_does_not_have_is_told(overrides: list[str], message: str) -> None:
    with pytest.raises(InputError) as raised:
        load(Path("recipes/digits.yaml"), overrides)
    assert message in str(raised.value)


@pytest.mark.parametrize("name", ["logits", "1"])
def test_an_objective_is_named_by_its_type_or_its_place(tmp_path: Path, name: str) -> None:
    for recipe in (Path("recipes/digits.yaml"), write(tmp_path, DIGITS)):
        labels, logits = load(recipe, [f"student.distill.{name}.temperature=5"]).student.distill or ()
        assert (labels.weight, logits.weight, logits.temperature) == (0.3, 0.7, 5.0)


def test_a_frame_is_narrower_than_the_image() -> None:
    with pytest.raises(InputError, match=r"student\.train\.augment\.crop: 8 pixels, and images have 8; some would be"):
        from_values(parse(DIGITS).data, ["student.train.augment.crop=8", "data.image.size=8"], "here")


@pytest.mark.parametrize("setting", ["keep_best=true", "patience=3"])
def test_what_follows_from_validation_needs_it(setting: str) -> None:
    with pytest.raises(InputError, match=r"keep_best and patience follow from validation; give validate_every"):
        from_values(parse(DIGITS).data, [f"student.train.{setting}"], "here")


def test_texts_are_not_augmented() -> None:
    changes = ["task=causal-lm", "data.source.type=python-docs", "data.image=null", "student.train.augment.flip=true"]
    with pytest.raises(InputError, match=r"student\.train\.augment: does not apply to the task causal-lm; remove it"):
        from_values(parse(DIGITS).data, changes, "here")


@pytest.mark.parametrize(
    ("schedule", "parts", "least"), [("GPipe", 1, 1), ("1F1B", 3, 4), ("ZBVZeroBubble", 4, 4), ("DualPipeV", 4, 8)]
)
def test_a_pipeline_needs_micro_batches_enough_for_its_stages(schedule: str, parts: int, least: int) -> None:
    overrides = ["student.train.strategy=pp", "resources.distill.processes=4", "student.train.batch_size=48"]
    overrides += [f"student.train.pipeline.schedule={schedule}", f"student.train.gradient_accumulation_steps={parts}"]
    if parts >= least:
        train = from_values(parse(DIGITS).data, overrides, "here").student.train
        assert (train.pipeline.schedule, train.gradient_accumulation_steps) == (schedule, parts)
        return
    with pytest.raises(InputError, match=f"{schedule} over 4 processes needs {least} or more"):
        from_values(parse(DIGITS).data, overrides, "here")


@pytest.mark.parametrize("strategy", ["single", "fsdp", "tp", "pp", "hsdp"])
def test_only_whole_models_send_gradients_in_fewer_bytes(strategy: str) -> None:
    overrides = [f"student.train.strategy={strategy}", "student.train.compression.type=bf16"]
    overrides += ["student.train.gradient_accumulation_steps=4"] if strategy == "pp" else []
    overrides += ["resources.distill.processes=4"] if strategy != "single" else []
    with pytest.raises(InputError, match=r"student\.train\.compression: is for whole models on several proc"):
        from_values(parse(DIGITS).data, overrides, "here")
    overrides = ["student.train.strategy=ddp", "student.train.compression.type=bf16", "resources.distill.processes=4"]
    assert from_values(parse(DIGITS).data, overrides, "here").student.train.compression is not None


def test_powersgd_has_a_rank_and_keeps_the_number_of_processes() -> None:
    overrides = ["student.train.strategy=ddp", "student.train.compression.type=powersgd", "resources.distill.nodes=2"]
    with pytest.raises(InputError, match=r"student\.train\.compression: rank belongs to powersgd, which needs one"):
        from_values(parse(DIGITS).data, overrides, "here")
    overrides += ["student.train.compression.rank=2"]
    assert from_values(parse(DIGITS).data, overrides, "here").student.train.compression is not None
    with pytest.raises(InputError, match=r"compression: each process has error feedback of powersgd"):
        from_values(parse(DIGITS).data, [*overrides, "resources.distill.min_nodes=1"], "here")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("strategy=fsdp", r"diloco: is for several replicas, whose layers and sequences are not split; remove it"),
        ("strategy={dp_replicate: 2, tp: 2}", r"diloco: is for several replicas, whose layers and sequences are not"),
        ("validate_every=6", r"validate_every: replicas are one model after every 4 steps; make it a multiple of that"),
        ("average=0.9", r"average: is of one model, and replicas train apart; leave it out, or diloco"),
        ("compression.type=bf16", r"compression: replicas that train apart send no gradients; leave it out"),
    ],
)
def test_replicas_that_train_apart_share_nothing_in_between(change: str, message: str) -> None:
    overrides = ["student.train.strategy=ddp", "student.train.diloco.every=4", "resources.distill.processes=4"]
    assert from_values(parse(DIGITS).data, overrides, "here").student.train.diloco is not None
    with pytest.raises(InputError, match=message):
        from_values(parse(DIGITS).data, [*overrides, f"student.train.{change}"], "here")


def test_replicas_that_train_apart_keep_their_number() -> None:
    overrides = ["student.train.strategy=ddp", "student.train.diloco.every=4", "resources.distill.nodes=2"]
    with pytest.raises(InputError, match=r"diloco: each replica has its own optimiser state"):
        from_values(parse(DIGITS).data, [*overrides, "resources.distill.min_nodes=1"], "here")


LORA = "student.train.lora={modules: [q_proj]}"
PRETRAINED = "student.model={pretrained: models/vit}"


@pytest.mark.parametrize("strategy", ["tp", "{dp_shard: 2, tp: 2}"])
def test_adapters_are_of_pretrained_models_whose_layers_are_whole(strategy: str) -> None:
    assert from_values(parse(DIGITS).data, [PRETRAINED, LORA], "here").student.train.lora is not None
    with pytest.raises(InputError, match=r"student\.train\.lora: the model is not pretrained, and its frozen weights"):
        from_values(parse(DIGITS).data, [LORA], "here")
    overrides = [PRETRAINED, LORA, f"student.train.strategy={strategy}", "resources.distill.processes=4"]
    with pytest.raises(InputError, match=r"student\.train\.lora: layers are not split beside adapters"):
        from_values(parse(DIGITS).data, overrides, "here")


@pytest.mark.parametrize("kind", ["int8", "nf4"])
@pytest.mark.parametrize("strategy", ["tp", "3d", "{dp_shard: 4, tp: 2}"])
def test_a_teacher_in_fewer_bits_is_not_split(kind: str, strategy: str) -> None:
    overrides = [f"student.teacher_precision={kind}", "resources.distill.processes=8"]
    overrides += ["student.train.gradient_accumulation_steps=8"]
    for unsplit in ("fsdp", "ddp", "pp"):
        from_values(parse(DIGITS).data, [*overrides, f"student.train.strategy={unsplit}"], "here")
    with pytest.raises(InputError, match=rf"student\.teacher_precision: .* splits layers, and those in {kind} are not"):
        from_values(parse(DIGITS).data, [*overrides, f"student.train.strategy={strategy}"], "here")


@pytest.mark.parametrize(
    ("strategy", "shards", "nodes", "words"),
    [
        ("ddp", 3, 1, "8 processes do not divide into copies of 3 shards; take a divisor of 8"),
        (
            "{dp_shard: 4, tp: 2}",
            8,
            1,
            "4 processes for each part of a sequence or layer do not divide into copies of 8",
        ),
        ("fsdp", 16, 2, "8 processes do not divide into copies of 16 shards"),
    ],
)
def test_processes_divide_into_copies_of_the_teacher(strategy: str, shards: int, nodes: int, words: str) -> None:
    overrides = [
        "resources.distill.processes=8",
        f"resources.distill.nodes={nodes}",
        f"student.train.strategy={strategy}",
    ]
    overrides += ["resources.distill.min_nodes=1", "student.train.batch_size=128"]
    recipe = from_values(parse(DIGITS).data, [*overrides, "student.teacher_shards=4"], "here")
    assert recipe.student.teacher_shards == 4
    with pytest.raises(InputError, match=rf"student\.teacher_shards: {words}"):
        from_values(parse(DIGITS).data, [*overrides, f"student.teacher_shards={shards}"], "here")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ("student.train.strategy={dp_shard: 2, tp: 2}", "rounds blocks of whole rows, which dp_shard 2 x tp 2 splits"),
        (
            "student.train.offload=[parameters]",
            "computes on the GPU, where its state is; use adamw, or",
        ),
    ],
)
def test_an_optimiser_in_eight_bits_has_whole_rows_where_it_computes(settings: str, words: str) -> None:
    overrides = ["student.train.optimizer.name=adamw8bit", "resources.distill.processes=4"]
    overrides += ["student.train.strategy=fsdp"]
    assert from_values(parse(DIGITS).data, overrides, "here").student.train.optimizer.name == "adamw8bit"
    with pytest.raises(InputError, match=rf"student\.train\.optimizer\.name: adamw8bit {words}"):
        from_values(parse(DIGITS).data, [*overrides, settings], "here")


@pytest.mark.parametrize("settings", ["diloco.every=2", "compression.type=bf16", "compile=true"])
def test_what_is_for_some_degrees_leaves_auto_those(settings: str) -> None:
    overrides = ["student.train.strategy=auto", "resources.distill.hardware=CPU", f"student.train.{settings}"]
    recipe = from_values(parse(DIGITS).data, [*overrides, "resources.distill.processes=2"], "here")
    assert recipe.student.train.strategy == "auto"


@pytest.mark.parametrize("modules", ["[]", "null"])
def test_adapters_need_layers(modules: str) -> None:
    with pytest.raises(InputError, match=r"student\.train\.lora\.modules: "):
        from_values(parse(DIGITS).data, [PRETRAINED, f"student.train.lora={{modules: {modules}}}"], "here")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (("guard.rollback_after=2", "diloco.every=2", "strategy=ddp"), "train.guard: skips steps of all replicas"),
        (
            ("guard.rollback_after=2", "compression={type: powersgd, rank: 1}", "strategy=ddp"),
            "train.guard: powersgd's error feedback",
        ),
        (
            ("strategy=auto", "diloco.every=2", "validate_every=3"),
            "train.validate_every: replicas are one model after every 2 steps",
        ),
        (
            ("resume_resharded=true", "diloco.every=2", "strategy=ddp"),
            "train.resume_resharded: each replica of diloco has its own optimiser state",
        ),
        (
            ("resume_resharded=true", "compression={type: powersgd, rank: 1}", "strategy=ddp"),
            "train.resume_resharded: each process has error feedback of powersgd",
        ),
        (("precision=fp16", "diloco.every=2", "strategy=ddp"), "train.precision: skips steps of all replicas at once"),
        (
            ("precision=fp16", "compression={type: powersgd, rank: 1}", "strategy=ddp"),
            "train.precision: powersgd's error feedback would keep",
        ),
        (("precision=fp8", "strategy=tp"), "train.precision: fp8 scales whole weights, which tp 2 splits; use bf16"),
        (
            ("precision=fp8", "strategy=ddp", "lora={rank: 2, alpha: 4, modules: [query]}"),
            "train.precision: frozen layers and their adapters are computed in bf16",
        ),
        (("offload=[parameters]", "strategy=ddp"), "train.offload: parameters wait elsewhere where they are in shards"),
        (("offload=[activations]", "strategy=tp"), "train.offload: activations of layers that are split do not wait"),
        (
            ("offload=[activations]", "strategy=auto"),
            "train.strategy: auto takes the plan's degrees, and the plan does",
        ),
        (
            ("compile=true", "strategy=pp", "gradient_accumulation_steps=4", "pipeline.schedule=ZBVZeroBubble"),
            "train.compile: layers, sequences and stages that are split are not compiled",
        ),
    ],
)
def test_ways_of_training_that_do_not_go_together_are_refused(settings: tuple[str, ...], words: str) -> None:
    overrides = [f"student.train.{setting}" for setting in settings]
    with pytest.raises(InputError, match=words):
        from_values(parse(DIGITS).data, [*overrides, "resources.distill.processes=2"], "here")


@pytest.mark.parametrize("setting", ["compile=true", "activation_checkpointing=full", "offload=[activations]"])
def test_what_is_bound_to_blocks_is_refused_where_they_are_copied(setting: str) -> None:
    name = setting.partition("=")[0]
    with pytest.raises(InputError, match=rf"train.{name}: is not for the copies that strategy: dp makes"):
        from_values(parse(DIGITS).data, [f"student.train.{setting}", "student.train.strategy=dp"], "here")
