"""Conversations to tokens, masks and packed sequences, against datasets.map with the same tokenizer and template.

python -m benchmarks.conversations [--conversations 5000] [--rounds 5]

datasets.map calls transformers' apply_chat_template, which renders and encodes a conversation and masks what the
template marks. Ours also proves each mask by the prompt that a student is asked with, cuts long conversations, and
packs them into sequences. All take turns in each round; tokens and masks have to be the same.
"""

import argparse
import hashlib
import importlib.util
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from understudy.data import chat_tokenizer, conversation_arrays
from understudy.data.ingest import ingest
from understudy.data.raw import SPLITS
from understudy.data.records import read
from understudy.recipe.data import Chat, Data, Tokenizer

LENGTH, VOCABULARY = 2048, 8192
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}"
    "{% else %}{{ m.content }}<|im_end|>{% endif %}{{ '\n' }}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
WORDS = Path(__file__).parent.parent / "docs" / "using" / "recipes.md"
Work = Callable[[], None]


def write_conversations(path: Path, count: int) -> None:
    """Conversations of one to three rounds, with random words: 300 tokens each."""
    generator, words = np.random.default_rng(0), WORDS.read_text(encoding="utf-8").split()

    def turn(role: str, least: int, most: int) -> dict[str, str]:
        return {"role": role, "content": " ".join(generator.choice(words, generator.integers(least, most)))}

    with path.open("w", encoding="utf-8") as file:
        for _ in range(count):
            rounds = range(generator.integers(1, 4))
            messages = [message for _ in rounds for message in (turn("user", 5, 40), turn("assistant", 20, 120))]
            file.write(json.dumps({"messages": messages}) + "\n")


def ours(folder: Path, data: Path) -> Work:
    """The part of the prepare step after the tokenizer is there; it needs the records of the ingest step."""
    (folder / "records").mkdir()
    section = Data.model_validate({"source": {"type": "jsonl", "path": str(data)}, "validation": 0.05, "test": 0.05})
    ingest(section, "chat", folder / "records", lambda done, total: None)
    (folder / "template.jinja").write_text(TEMPLATE)
    chat = Chat(template=str(folder / "template.jinja"))
    tokenizer, _ = chat_tokenizer.write(Tokenizer(vocab_size=VOCABULARY), chat, folder / "records", folder)
    template = chat_tokenizer.template_of(folder)

    def work() -> None:
        settings = conversation_arrays.ChatTokenizer(tokenizer, template, chat, LENGTH)
        conversation_arrays.write(read(folder / "records"), settings, folder)

    return work


def theirs(folder: Path, data: Path) -> Callable[..., Any]:
    """datasets.map, which writes an Arrow file; further arguments are its own."""
    import datasets
    from transformers import PreTrainedTokenizerFast

    datasets.disable_progress_bars()
    datasets.disable_caching()
    tokenizer = PreTrainedTokenizerFast.from_pretrained(folder)
    rows = datasets.load_dataset("json", data_files=str(data), split="train", cache_dir=str(folder / "cache"))

    def encode(row: dict[str, Any]) -> dict[str, Any]:
        encoded = tokenizer.apply_chat_template(
            row["messages"], tokenize=True, return_dict=True, return_assistant_tokens_mask=True
        )
        return {name: encoded[name] for name in ("input_ids", "assistant_masks")}

    def work(**how: Any) -> Any:
        return rows.map(encode, remove_columns=rows.column_names, **how)

    return work


def digests(rows: Iterator[tuple[Any, Any]]) -> list[str]:
    """Digests of conversations' tokens and masks, in ascending order: records are in another order than a file's."""
    return sorted(hashlib.sha256(np.array([ids, mask], np.int64).tobytes()).hexdigest() for ids, mask in rows)


def our_rows(folder: Path) -> Iterator[tuple[Any, Any]]:
    """The tokens and the mask of each conversation in our arrays."""
    for split in SPLITS:
        tokens, learned, offsets = (
            np.load(folder / f"{split}.{name}.npy") for name in ("tokens", "learned", "offsets")
        )
        yield from zip(np.split(tokens, offsets[1:-1]), np.split(learned, offsets[1:-1]), strict=True)


def measured(works: dict[str, Work], rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Seconds and processor seconds of each, processes that it started included, in each round."""
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            os.environ["TOKENIZERS_PARALLELISM"] = "true"  # with processes, datasets leaves it as false
            wall, times = time.perf_counter(), os.times()
            work()
            busy = sum(after - before for before, after in zip(times[:4], os.times()[:4], strict=True))
            seconds[name].append((time.perf_counter() - wall, busy))
    return seconds


def report(seconds: dict[str, list[tuple[float, float]]]) -> None:
    """Print a row for each: its seconds, and how many times those of ours they are."""
    print("| | seconds, min / median | processor seconds, min | times ours, by minimum / median of rounds |")
    print("|---|---|---|---|")
    first = next(iter(seconds.values()))
    for name, rows in seconds.items():
        wall, busy = zip(*rows, strict=True)
        ratio = statistics.median(row[0] / own[0] for row, own in zip(rows, first, strict=True))
        times = f"{min(wall) / min(own for own, _ in first):.2f} / {ratio:.2f}"
        print(f"| {name} | {min(wall):.2f} / {statistics.median(wall):.2f} | {min(busy):.2f} | {times} |")


def main() -> None:
    """Measure all in turns."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--conversations", type=int, default=5000)
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    if importlib.util.find_spec("datasets") is None:
        print("skipped: datasets is not installed; pip install 'understudy[datasets]'")
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_conversations(folder / "all.jsonl", arguments.conversations)
        work, peer = ours(folder, folder / "all.jsonl"), theirs(folder, folder / "all.jsonl")
        work()
        by_peer = peer()
        same = digests(our_rows(folder)) == digests(zip(by_peer["input_ids"], by_peer["assistant_masks"], strict=True))
        assert same, "tokens or masks differ"
        works: dict[str, Work] = {
            "ours, one process": work,
            "datasets.map, one process": peer,
            "datasets.map, one process, in batches": lambda: peer(batched=True, batch_size=256),
            "datasets.map, two processes": lambda: peer(num_proc=2),
            "datasets.map, two processes, in batches": lambda: peer(num_proc=2, batched=True, batch_size=256),
        }
        before = os.getloadavg()[0]
        report(measured(works, arguments.rounds))
        print(f"{os.cpu_count()} cores, load {before:.1f} before and {os.getloadavg()[0]:.1f} after")


if __name__ == "__main__":
    main()
