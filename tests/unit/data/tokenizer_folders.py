"""Small pretrained tokenizers, and examples that are encoded with them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from understudy.data.chat_template import CHATML
from understudy.data.ingest import ingest
from understudy.data.prepare import prepare
from understudy.recipe.data import Data

TEXTS = [f"grass {number} is green and snow is white, coal is black" for number in range(40)]
OTHERS = [f"zebras, lions and tigers of the zoo, quite different, {number}" for number in range(40)]
END, BEGIN_TURN, END_TURN = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
Change = Callable[[Tokenizer], object]


def saved(folder: Path, texts: list[str] = TEXTS, change: Change = lambda tokenizer: None, **names: Any) -> Path:
    """A byte-level BPE of 320 tokens with ChatML's tokens and template, as transformers saves it.

    Args:
        folder: the output folder.
        texts: those it is trained on.
        change: changes the tokenizer before it is saved.
        names: of special tokens (eos_token), and `chat_template`.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=318, special_tokens=[END], initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    tokenizer.add_special_tokens([BEGIN_TURN, END_TURN])
    change(tokenizer)
    settings = {"eos_token": END_TURN, "pad_token": END, "chat_template": CHATML.text, **names}
    given = {name: value for name, value in settings.items() if value is not None}
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **given).save_pretrained(folder)
    return folder


def examples(folder: Path, tokenizer: Path, task: str, template: Path | None = None) -> Path:
    """Examples of a task that are encoded with a pretrained tokenizer."""
    rows: list[dict[str, Any]] = [{"text": text} for text in TEXTS]
    if task == "chat":
        turns = [[{"role": "user", "content": f"{text}?"}, {"role": "assistant", "content": "yes"}] for text in TEXTS]
        rows = [{"messages": conversation} for conversation in turns]
    if task == "text-classification":
        rows = [{"text": text, "label": "ab"[number % 2]} for number, text in enumerate(TEXTS)]
    for name in ("records", "examples"):
        (folder / name).mkdir(parents=True)
    (folder / "all.jsonl").write_text("\n".join(map(json.dumps, rows)))
    values: dict[str, Any] = {
        "source": {"type": "jsonl", "path": str(folder / "all.jsonl")},
        "text": {"sequence_length": 128, "tokenizer": {"pretrained": str(tokenizer)}},
        "test": 0.4,
    }
    if template:
        values["chat"] = {"template": str(template)}
    data = Data.model_validate(values)
    ingest(data, task, folder / "records", lambda done, total: None)
    prepare(data, task, folder / "records", folder / "examples", lambda done, total: None)
    return folder / "examples"
