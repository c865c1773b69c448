"""AutoTokenizer and GenerationConfig read the same from a saved model's folder as from its tokenizer's folder."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, GenerationConfig, PreTrainedTokenizerFast

from tests.unit.data.conftest import Ingested
from tests.unit.models.sections import section
from understudy.data import tokenizer_files
from understudy.data.prepare import prepare
from understudy.data.tokenizer import READ, files, pretrained, vocabulary_size
from understudy.errors import InputError
from understudy.models.build import build_model, tied_weights
from understudy.models.describe import describe
from understudy.models.facts import TOKENIZER_FILES, read_facts
from understudy.models.files import check_files, save_model
from understudy.models.pretrained import fetch
from understudy.recipe import PretrainedModel
from understudy.recipe.data import Data
from understudy.recipe.data import Tokenizer as Settings

LLAMA = {
    "type": "llama",
    "config": {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16},
}
GPT2 = {"type": "gpt2", "config": {"n_embd": 16, "n_layer": 1, "n_head": 2}}
OPT = {
    "type": "opt",
    "config": {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "ffn_dim": 16,
        "word_embed_proj_dim": 16,
    },
}
QWEN3 = {"type": "qwen3", "config": {**LLAMA["config"], "num_key_value_heads": 1, "head_dim": 8}}  # type: ignore[dict-item]
STUDENTS = {"llama": LLAMA, "gpt2": GPT2, "opt": OPT, "qwen3": QWEN3}

TEXTS = [
    "document number 7 says hello hello to the world",
    "  Ünïcode <|im_end|> and </s> <s>\n\n  spaces",
    "<|endoftext|>",
    "",
]
CHAT = [{"role": "user", "content": "hello <|im_end|>"}, {"role": "assistant", "content": "to the world"}]
SIMPLE = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
BEGUN = "{{ bos_token }}{% for m in messages %}[{{ m['role'] }}] {{ m['content'] }} {{ eos_token }}{% endfor %}"
SECRET = "/home/somebody/models/secret"


def train_tokenizer(tokenizer: Any, special: list[Any], **options: Any) -> Any:
    trainer = trainers.BpeTrainer(vocab_size=320, special_tokens=special, show_progress=False, **options)
    tokenizer.train_from_iterator([f"document number {n} says hello hello to the world" for n in range(9)] * 3, trainer)
    return tokenizer


def bytes_like(special: list[Any]) -> Any:
    """As GPT-2's."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return train_tokenizer(tokenizer, special, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())


def pieces_like(special: list[Any]) -> Any:
    """As Llama 2's: a BPE over pieces, other characters as bytes, and a BOS before each text."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer = train_tokenizer(tokenizer, [*special, *(f"<0x{byte:02X}>" for byte in range(256))])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))]
    )
    return tokenizer


def write_source(folder: Path, tokenizer: Any, config: dict[str, Any], model: dict[str, Any], **files: Any) -> Path:
    """A folder in the hub's format, without weights."""
    folder.mkdir()
    tokenizer.save(str(folder / "tokenizer.json"))
    written = {"tokenizer_config": config, "config": {**model, "vocab_size": vocabulary_size(tokenizer)}, **files}
    for name, values in written.items():
        (folder / f"{name}.json").write_text(json.dumps(values))
    return folder


def gpt(folder: Path) -> Path:
    config = {"tokenizer_class": "GPT2Tokenizer", "model_max_length": 64, "bos_token": "<|endoftext|>"}
    config |= {"eos_token": "<|endoftext|>", "unk_token": "<|endoftext|>", "name_or_path": SECRET}
    model = {"model_type": "gpt2", "bos_token_id": 0, "eos_token_id": 0}
    write_source(folder, bytes_like(["<|endoftext|>"]), config, model)
    (folder / "chat_template.jinja").write_text(BEGUN)
    return folder


def llama(folder: Path) -> Path:
    """The model has its BOS at 1 as a rule of its class, the tokenizer has it at 0."""
    flags = dict.fromkeys(("lstrip", "normalized", "rstrip", "single_word"), False)
    named = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    tokens = {name: {"__type": "AddedToken", "content": token, **flags} for name, token in named.items()}
    config: dict[str, Any] = {
        **tokens,
        "add_bos_token": True,
        "add_eos_token": False,
        "pad_token": None,
        "legacy": False,
    }
    config |= {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": BEGUN, "sp_model_kwargs": {"x": SECRET}}
    config |= {"tokenizer_file": f"{SECRET}/tokenizer.json", "model_max_length": 1000000000000000019884624838656}
    model = {"model_type": "llama", "bos_token_id": 0, "eos_token_id": 1}
    generation = {"bos_token_id": 0, "eos_token_id": 1, "do_sample": True, "temperature": 0.6, "top_p": 0.9}
    return write_source(folder, pieces_like(["<s>", "</s>", "<unk>"]), config, model, generation_config=generation)


def chat(folder: Path) -> Path:
    """As Qwen's: no BOS, the end of a turn ends a text, several ends for generation."""
    special: list[Any] = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokenizer = bytes_like(special)
    tokenizer.add_tokens([AddedToken("<tool_call>", special=False, normalized=False)])
    decoder = {str(n): {"content": token, "special": True} for n, token in enumerate(special)}
    config: dict[str, Any] = {"added_tokens_decoder": decoder, "bos_token": None, "add_prefix_space": False}
    config |= {"eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "chat_template": SIMPLE, "errors": "replace"}
    config |= {"additional_special_tokens": ["<|im_start|>", "<|im_end|>"], "clean_up_tokenization_spaces": False}
    config |= {"tokenizer_class": "PreTrainedTokenizerFast", "split_special_tokens": False, "padding_side": "left"}
    model = {"model_type": "qwen3", "bos_token_id": 0, "eos_token_id": 2}
    generation = {"bos_token_id": 0, "pad_token_id": 0, "eos_token_id": [2, 0], "do_sample": True, "top_k": 20}
    generation |= {"suppress_tokens": [1], "begin_suppress_tokens": [2], "bad_words_ids": [[1, 2]]}
    generation |= {"stop_strings": ["END"], "transformers_version": "4.51.0"}
    return write_source(folder, tokenizer, config, model, generation_config=generation)


def old(folder: Path) -> Path:
    """Special tokens in a file of their own, templates by name, and no settings of generation."""
    named = [{"name": "default", "template": SIMPLE}, {"name": "tool_use", "template": f"{SIMPLE}tools"}]
    special = {"bos_token": "<s>", "eos_token": {"content": "</s>", "lstrip": False}, "pad_token": "</s>"}
    model = {"model_type": "llama", "bos_token_id": 0, "eos_token_id": [1, 2], "pad_token_id": 1}
    config = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": named}
    tokenizer = bytes_like(["<s>", "</s>", "<|im_start|>", "<|im_end|>"])
    return write_source(folder, tokenizer, config, model, special_tokens_map=special)


def saved(folder: Path) -> Path:
    """As transformers 5 writes it, with templates in files."""
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bytes_like(["<s>", "</s>", "<pad>"]),
        bos_token="<s>", eos_token="</s>", pad_token="<pad>", model_max_length=99, extra_special_tokens=["<tool>"],
    )  # fmt: skip
    tokenizer.chat_template = {"default": BEGUN, "rag": f"{BEGUN}rag"}
    tokenizer.save_pretrained(folder)
    config = AutoConfig.for_model("llama", vocab_size=len(tokenizer), bos_token_id=0, eos_token_id=1, pad_token_id=2)
    config.save_pretrained(folder)
    GenerationConfig(bos_token_id=0, eos_token_id=1, pad_token_id=2, repetition_penalty=1.1).save_pretrained(folder)
    return folder


KINDS = {"gpt": gpt, "llama": llama, "chat": chat, "old": old, "saved": saved}


def examples(data: dict[str, Any], text_folder: Path, ingested: Ingested, folder: Path) -> Path:
    source = {"type": "text-files", "path": str(text_folder)}
    folder.mkdir()
    text = {"sequence_length": 8, "tokenizer": data}
    records = ingested(source, "causal-lm")
    prepare(
        Data.model_validate({"source": source, "text": text}), "causal-lm", records, folder, lambda done, total: None
    )
    return folder


def student(examples_folder: Path, spec: dict[str, Any], folder: Path) -> Path:
    """A model as a training saves it."""
    description = describe(section(spec), read_facts(examples_folder), "student.model")
    net = build_model(description)
    folder.mkdir()
    state = {name: value for name, value in net.state_dict().items() if name not in tied_weights(net)}
    save_model(folder, state, description, examples_folder / "tokenizer.json")
    check_files(folder, description)
    return folder


def same_ids(first: Any, second: Any) -> None:
    for text in TEXTS:
        for added in (False, True):
            assert first(text, add_special_tokens=added).input_ids == second(text, add_special_tokens=added).input_ids
            ids = first(text, add_special_tokens=added, split_special_tokens=True).input_ids
            assert ids == second(text, add_special_tokens=added, split_special_tokens=True).input_ids
            assert first.decode(ids) == second.decode(ids)


def fields(folder: Path) -> dict[str, Any]:
    """Settings of generation, as a model from there has them."""
    if (folder / "generation_config.json").exists():
        config = GenerationConfig.from_pretrained(folder)
    else:
        config = GenerationConfig.from_model_config(AutoConfig.from_pretrained(folder))
    excluded = ("transformers_version", "_from_model_config", "use_cache", "output_attentions", "output_hidden_states")
    return {key: value for key, value in config.to_dict().items() if key not in excluded}


@pytest.mark.parametrize("spec", STUDENTS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_student_has_its_tokenizers_special_tokens_templates_and_settings(
    tmp_path: Path, text_folder: Path, ingested: Ingested, kind: str, spec: str
) -> None:
    source = KINDS[kind](tmp_path / "source")
    examples_folder = examples({"pretrained": str(source)}, text_folder, ingested, tmp_path / "examples")
    model = student(examples_folder, STUDENTS[spec], tmp_path / "model")
    theirs, ours = (AutoTokenizer.from_pretrained(folder, local_files_only=True) for folder in (source, model))
    same_ids(theirs, ours)
    assert ours.special_tokens_map == theirs.special_tokens_map
    assert ours.all_special_ids == theirs.all_special_ids
    for name in ("bos", "eos", "pad", "unk"):
        assert getattr(ours, f"{name}_token_id") == getattr(theirs, f"{name}_token_id")
    assert (ours.model_max_length, ours.padding_side) == (theirs.model_max_length, theirs.padding_side)
    assert ours.chat_template == theirs.chat_template
    names: list[Any] = list(theirs.chat_template) if isinstance(theirs.chat_template, dict) else [None]
    for name in names:
        for tokenize in (False, True):
            our_text, their_text = (
                t.apply_chat_template(CHAT, chat_template=name, tokenize=tokenize) for t in (ours, theirs)
            )
            assert our_text == their_text
    assert fields(model) == fields(source)
    served, source_config = AutoConfig.from_pretrained(model), AutoConfig.from_pretrained(source)
    assert (served.bos_token_id, served.eos_token_id) == (source_config.bos_token_id, source_config.eos_token_id)
    default_pad = AutoConfig.for_model(STUDENTS[spec]["type"]).pad_token_id
    expected = source_config.pad_token_id if source_config.pad_token_id is not None else theirs.pad_token_id
    assert served.pad_token_id == (expected if default_pad is None else default_pad)
    written = "".join(path.read_text() for path in model.glob("*.json"))
    assert SECRET not in written
    assert str(tmp_path) not in written


def test_a_pretrained_model_keeps_its_own_and_has_the_files_too(
    tmp_path: Path, text_folder: Path, ingested: Ingested
) -> None:
    source = chat(tmp_path / "source")
    examples_folder = examples({"pretrained": str(source)}, text_folder, ingested, tmp_path / "examples")
    description = describe(section(QWEN3), read_facts(examples_folder), "teacher.model")
    config = AutoConfig.for_model(**{**description["config"], "pad_token_id": None})  # type: ignore[typeddict-item]
    AutoModelForCausalLM.from_config(config).save_pretrained(source)
    (tmp_path / "model").mkdir()
    fetch(PretrainedModel(pretrained=str(source)), examples_folder, tmp_path / "model", "teacher.model")
    original, saved = (AutoConfig.from_pretrained(folder) for folder in (source, tmp_path / "model"))
    for name in ("bos_token_id", "eos_token_id", "pad_token_id"):
        assert getattr(saved, name) == getattr(original, name)
    for name in TOKENIZER_FILES:
        assert (tmp_path / "model" / name).read_bytes() == (examples_folder / name).read_bytes()
    AutoModelForCausalLM.from_pretrained(tmp_path / "model", local_files_only=True)


@pytest.mark.parametrize("spec", STUDENTS)
def test_a_tokenizer_of_the_recipe_brings_its_end_of_text(
    tmp_path: Path, text_folder: Path, ingested: Ingested, spec: str
) -> None:
    examples_folder = examples({"vocab_size": 300}, text_folder, ingested, tmp_path / "examples")
    model = student(examples_folder, STUDENTS[spec], tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(model, local_files_only=True)
    raw = Tokenizer.from_file(str(examples_folder / "tokenizer.json"))
    raw.encode_special_tokens = True
    for text in TEXTS:
        ids = raw.encode(text).ids
        assert tokenizer(text, split_special_tokens=True).input_ids == ids
        assert tokenizer.decode(ids) == text
    assert (tokenizer.bos_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id) == (0, 0, 0)
    config, generation = AutoConfig.from_pretrained(model), GenerationConfig.from_pretrained(model)
    assert (config.bos_token_id, config.eos_token_id) == (0, 0)
    assert (generation.bos_token_id, generation.eos_token_id, generation.pad_token_id) == (0, 0, 0)


@pytest.mark.parametrize("name", [*READ[:-1], "additional_chat_templates/rag.jinja"])
def test_what_is_read_is_in_the_steps_key(tmp_path: Path, name: str) -> None:
    path = chat(tmp_path / "folder") / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(path.read_text() if path.exists() else "{}")
    assert path in files(Settings(pretrained=str(tmp_path / "folder")))


def files_after(folder: Path, **changes: Any) -> dict[str, dict[str, Any]]:
    """The files written for the chat tokenizer after changes of its files' values."""
    chat(folder)
    for name, values in changes.items():
        path = folder / f"{name}.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), **values}))
    settings = Settings(pretrained=str(folder))
    tokenizer, end, _ = pretrained(settings)
    files, _ = tokenizer_files.of_pretrained(settings, tokenizer, end)
    return {name: json.loads(text) for name, text in files.items() if name.endswith(".json")}


@given(
    st.dictionaries(
        st.sampled_from(
            ["auto_map", "name_or_path", "tokenizer_file", "vocab_file", "processor_class", "init_inputs", "custom"]
        )
        | st.text(),
        st.recursive(st.just(SECRET), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)),
    )
)
def test_what_is_not_named_stays_behind(tmp_path_factory: pytest.TempPathFactory, values: dict[str, Any]) -> None:
    try:
        written = files_after(
            tmp_path_factory.mktemp("x") / "folder", tokenizer_config=values, generation_config=values
        )
    except InputError:  # a setting of another type or range
        return
    assert SECRET not in json.dumps(
        {name: {k: v for k, v in config.items() if k != "chat_template"} for name, config in written.items()}
    )
    assert "auto_map" not in json.dumps(written)


ids = st.integers(-5, 700) | st.none() | st.booleans()


@given(st.lists(ids), ids, ids, st.lists(st.lists(ids)), st.sampled_from(["<pad>", "<|im_end|>", ""]))
def test_every_id_is_of_a_token_that_the_model_has(
    tmp_path_factory: pytest.TempPathFactory, several: list[Any], bos: Any, pad: Any, words: list[Any], padding: str
) -> None:
    generation = {"eos_token_id": several, "bos_token_id": bos, "pad_token_id": pad, "suppress_tokens": several}
    generation |= {"bad_words_ids": words, "sequence_bias": [[word, 1.5] for word in words]}
    model = {"eos_token_id": several, "bos_token_id": bos, "pad_token_id": pad}
    folder = tmp_path_factory.mktemp("x") / "folder"
    written = files_after(folder, generation_config=generation, config=model, tokenizer_config={"pad_token": padding})
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    generation_config = written["generation_config.json"]
    GenerationConfig(**generation_config).validate(strict=False)
    flat = [
        generation_config.get("bos_token_id"),
        generation_config.get("pad_token_id"),
        *generation_config.get("suppress_tokens", ()),
    ]
    end = generation_config["eos_token_id"]
    flat += end if isinstance(end, list) else [end]
    flat += [id_ for word in generation_config.get("bad_words_ids", ()) for id_ in word]
    flat += [id_ for word, _ in generation_config.get("sequence_bias", ()) for id_ in word]
    assert all(tokenizer.id_to_token(id_) is not None for id_ in flat if id_ is not None)
    assert not any(isinstance(id_, bool) for id_ in flat)
    assert generation_config["eos_token_id"] not in (None, [])
    assert written["tokenizer_config.json"].get("pad_token") in (None, "<|im_end|>")


@pytest.mark.parametrize(
    ("name", "values", "message"),
    [
        ("tokenizer_config", {"chat_template": 7}, r"tokenizer_config\.json has chat_template: '7'"),
        ("tokenizer_config", {"chat_template": [{"name": "x"}]}, r"has chat_template"),
        ("tokenizer_config", {"chat_template": "x" * 300_000}, r"have 300,000 bytes, more than the maximum of 262,144"),
        ("tokenizer_config", {"model_max_length": "long"}, r"has model_max_length: 'long'"),
        ("tokenizer_config", {"model_max_length": float("inf")}, r"has model_max_length: 'inf'"),
        ("generation_config", {"temperature": "hot"}, r"generation_config\.json has temperature: 'hot'"),
        ("generation_config", {"top_p": float("nan")}, r"has top_p: 'nan'"),
        ("generation_config", {"do_sample": 1}, r"has do_sample"),
        ("generation_config", {"max_new_tokens": 0}, r"has max_new_tokens"),
        ("generation_config", {"num_beams": -3}, r"has num_beams: '-3'"),
        ("generation_config", {"num_beams": 1.5}, r"has num_beams"),
        ("generation_config", {"top_k": -1}, r"has top_k"),
        ("generation_config", {"top_p": 1.2}, r"has top_p"),
        ("generation_config", {"temperature": -0.1}, r"has temperature"),
        ("generation_config", {"repetition_penalty": 0}, r"has repetition_penalty"),
    ],
)
def test_a_value_that_cannot_be_is_named(tmp_path: Path, name: str, values: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=rf"^data\.text\.tokenizer\.pretrained: .*{message}"):
        files_after(tmp_path / "folder", **{name: values})


def damaged_text(folder: Path) -> None:
    (folder / "chat_template.jinja").write_bytes(b"\xff\xfe\x00")


def damaged_json(folder: Path) -> None:
    (folder / "generation_config.json").write_text("{")


def deep_json(folder: Path) -> None:
    (folder / "generation_config.json").write_text("[" * 100_000)


def huge(folder: Path) -> None:
    (folder / "tokenizer_config.json").write_text(" " * (2**24 + 1))


def long_number(folder: Path) -> None:
    (folder / "generation_config.json").write_text('{"top_k": ' + "1" * 5000 + "}")


def half_a_character(folder: Path) -> None:
    """JSON can write what UTF-8 cannot."""
    (folder / "tokenizer_config.json").write_text('{"chat_template": "\\ud800"}')


def a_list_as_name(folder: Path) -> None:
    (folder / "chat_template.jinja").unlink(missing_ok=True)
    (folder / "tokenizer_config.json").write_text('{"chat_template": [{"name": [], "template": "x"}]}')


DAMAGES = [damaged_text, damaged_json, deep_json, huge, long_number, half_a_character, a_list_as_name]


@pytest.mark.parametrize("harm", DAMAGES)
def test_a_damaged_file_is_named(tmp_path: Path, harm: Callable[[Path], None]) -> None:
    harm(chat(tmp_path / "folder"))
    settings = Settings(pretrained=str(tmp_path / "folder"))
    tokenizer = Tokenizer.from_file(str(tmp_path / "folder" / "tokenizer.json"))
    with pytest.raises(InputError, match=r"^data\.text\.tokenizer\.pretrained: "):
        tokenizer_files.of_pretrained(settings, tokenizer, 2)


@pytest.mark.parametrize("end", [-1, 2**32, 10**30, True])
def test_an_id_that_none_can_have_is_no_end_of_text(tmp_path: Path, end: int) -> None:
    folder = chat(tmp_path / "folder")
    (folder / "tokenizer_config.json").write_text("{}")
    (folder / "special_tokens_map.json").unlink(missing_ok=True)
    (folder / "config.json").write_text(json.dumps({"eos_token_id": end}))
    with pytest.raises(InputError, match=r"names no end-of-text token"):
        pretrained(Settings(pretrained=str(folder)))


def test_a_folder_among_the_templates_is_none(tmp_path: Path) -> None:
    folder = chat(tmp_path / "folder")
    (folder / "additional_chat_templates" / "a.jinja").mkdir(parents=True)
    assert folder / "additional_chat_templates" / "a.jinja" not in files(Settings(pretrained=str(folder)))


def test_named_tokens_take_no_settings_place(tmp_path: Path) -> None:
    config = {"add_bos_token": True, "extra_special_tokens": {"add_bos_token": "</s>"}}
    assert files_after(tmp_path / "folder", tokenizer_config=config)["tokenizer_config.json"]["add_bos_token"] is True


def test_what_are_no_texts_are_no_stop_strings(tmp_path: Path) -> None:
    written = files_after(tmp_path / "folder", generation_config={"stop_strings": ["a", float("nan")]})
    assert "stop_strings" not in written["generation_config.json"]


def test_a_template_is_never_rendered_here(tmp_path: Path) -> None:
    """It would end in an error, or never."""
    endless = "{{ 1 / 0 }}{% for a in range(10**9) %}{{ a }}{% endfor %}{% invalid"
    assert (
        files_after(tmp_path / "folder", tokenizer_config={"chat_template": endless})["tokenizer_config.json"][
            "chat_template"
        ]
        == endless
    )
