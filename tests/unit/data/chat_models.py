"""Templates of well-known models, and tokenizers with their special tokens."""

from functools import lru_cache
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from understudy.data.chat_mask import chat_tokenizer
from understudy.data.chat_template import ChatTemplate

FOLDER = Path(__file__).parent / "chat_templates"
CHATML = ["<|im_start|>", "<|im_end|>"]
TURNS = ["<start_of_turn>", "<end_of_turn>"]
HEADERS = ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]
PHI = ["<|system|>", "<|user|>", "<|assistant|>", "<|end|>"]
DEEPSEEK = ["<｜User｜>", "<｜Assistant｜>"]
COMMAND = [
    "<|START_OF_TURN_TOKEN|>",
    "<|END_OF_TURN_TOKEN|>",
    "<|SYSTEM_TOKEN|>",
    "<|USER_TOKEN|>",
    "<|CHATBOT_TOKEN|>",
]
MODELS: dict[str, tuple[str, str, list[str]]] = {
    "qwen2.5": ("<|endoftext|>", "<|im_end|>", CHATML),
    "qwen3": ("<|endoftext|>", "<|im_end|>", CHATML),
    "llama2": ("<s>", "</s>", []),
    "llama3": ("<|begin_of_text|>", "<|eot_id|>", HEADERS),
    "llama3.2": ("<|begin_of_text|>", "<|eot_id|>", HEADERS),
    "mistral-v0.1": ("<s>", "</s>", []),
    "mistral-v3": ("<s>", "</s>", ["[INST]", "[/INST]"]),
    "gemma": ("<bos>", "<eos>", TURNS),
    "phi3": ("<s>", "<|endoftext|>", PHI),
    "zephyr": ("<s>", "</s>", []),
    "vicuna": ("<s>", "</s>", []),
    "deepseek-r1": ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", DEEPSEEK),
    "deepseek-r1-0528": ("<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", DEEPSEEK),
    "tulu": ("<s>", "<|endoftext|>", []),
    "command-r": ("<BOS_TOKEN>", "<|END_OF_TURN_TOKEN|>", COMMAND),
    "smollm3": ("<|endoftext|>", "<|im_end|>", CHATML),
    "marked": ("<|endoftext|>", "<|im_end|>", CHATML),
    "alpaca": ("<s>", "</s>", []),
}
"""Beginning, end and other special tokens of a template in FOLDER. `marked` is ChatML with {% generation %}."""
WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""How tokenizers of Llama 3 and Qwen split a text. GPT-2's split two line breaks only if a word follows."""
THOUGHTS = ["<think>", "</think>", "<tool_call>"]
"""Added tokens that are not special, as in Qwen3."""
TEXTS = ["user assistant system model\n\nhello hello to the world: how are you?  I am fine.\n\n\n\n"] * 4


@lru_cache
def template_of(name: str) -> ChatTemplate:
    bos, eos, _ = MODELS[name]
    text = (FOLDER / f"{name}.jinja").read_text(encoding="utf-8")
    return ChatTemplate(text, {"bos_token": bos, "eos_token": eos})


@lru_cache
def plain_tokenizer(name: str) -> Any:
    """A byte-level BPE whose merges cross white space and line breaks, as they do in large vocabularies."""
    bos, eos, special = MODELS[name]
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(WORDS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    rstrip = name == "phi3"
    tokenizer.add_special_tokens([AddedToken(token, rstrip=rstrip) for token in dict.fromkeys([bos, eos, *special])])
    tokenizer.add_tokens([AddedToken(token, special=False) for token in THOUGHTS])
    return tokenizer


@lru_cache
def tokenizer_of(name: str) -> Any:
    return chat_tokenizer(template_of(name), plain_tokenizer(name))


@lru_cache
def transformers_tokenizer(name: str) -> Any:
    """The independent reference."""
    bos, eos, _ = MODELS[name]
    theirs = PreTrainedTokenizerFast(tokenizer_object=plain_tokenizer(name), bos_token=bos, eos_token=eos)
    theirs.chat_template = template_of(name).text
    return theirs
