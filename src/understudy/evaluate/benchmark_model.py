"""A model of this run as lm-eval asks models: log-likelihoods of continuations, and greedy answers.

It computes what lm-eval's class HFLM computes for the same weights and tokenizer, with three differences: sequences are
as long as those of the examples, log-softmax is always in fp32, and only the recipe's code builds models.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from lm_eval.api.instance import Instance
from lm_eval.api.model import TemplateLM
from lm_eval.models.utils import handle_stop_sequences, has_bos_prefix, normalize_gen_kwargs, postprocess_generated_text
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window
from torch import Tensor, nn

from understudy.data.prompts import Prompts
from understudy.evaluate.answers import batch_size, full_precision
from understudy.evaluate.generation import generated
from understudy.evaluate.shares import WHOLE
from understudy.models.facts import read_facts

Request = tuple[Any, list[int], list[int]]
"""lm-eval's own name for it, the tokens of the context, and those of the continuation."""


class BenchmarkModel(TemplateLM):  # type: ignore[misc]
    """One model, on its device.

    Attributes:
        is_broken: whether any logit that counted was NaN; the scores then mean nothing.
    """

    def __init__(
        self, module: nn.Module, examples: Path, size: int, device: torch.device, tick: Callable[[], None]
    ) -> None:
        """Read the examples' tokenizer.

        Args:
            module: the model, in evaluation mode.
            examples: the folder of an `examples` object, with the tokenizer's files.
            size: sequences in a batch.
            device: the model's.
            tick: called before each batch.
        """
        from transformers import PreTrainedTokenizerFast

        super().__init__()
        self.tokenizer = PreTrainedTokenizerFast.from_pretrained(examples, local_files_only=True)
        facts = read_facts(examples)
        self.max_length, self._end = facts["sequence_length"], facts["eos_id"]
        special = facts.get("special_ids", {})
        ends = special.get("eos_token_id", self._end)
        self._ends = frozenset({self._end, *(ends if isinstance(ends, list) else [ends])})
        self._first = special.get("bos_token_id", facts.get("bos_id", self._end))
        self._size = batch_size(size, facts)
        self._module, self._device, self._tick = module, device, tick
        self.is_broken = False

    @property
    def eot_token_id(self) -> int:
        """The end-of-text token."""
        return self._end

    @property
    def prefix_token_id(self) -> int:
        """The token before a text without context."""
        return self._first

    @property
    def tokenizer_name(self) -> str:
        """lm-eval's name for its cache of prompts, which is not used."""
        return ""

    def tok_encode(self, string: str, add_special_tokens: bool | None = None, **kwargs: Any) -> list[int]:
        """The tokens of a text, with those that the tokenizer puts before it, unless the text begins with them."""
        del kwargs
        added = add_special_tokens
        if added is None:
            added = not has_bos_prefix(string, self.tokenizer.decode([self.prefix_token_id]))
        ids: list[int] = self.tokenizer.encode(string, add_special_tokens=added)
        return ids

    def apply_chat_template(self, chat_history: list[dict[str, str]], add_generation_prompt: bool = True) -> str:
        """The prompt of a conversation, by the examples' template."""
        text: str = self.tokenizer.apply_chat_template(
            chat_history,
            tokenize=False,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=not add_generation_prompt,
        )
        return text

    def _loglikelihood_tokens(self, requests: Sequence[Request], **kwargs: Any) -> list[tuple[float, bool]]:
        """The log-likelihood of each continuation, and whether it is the greedy one."""
        del kwargs
        answers: list[tuple[float, bool]] = [(0.0, True)] * len(requests)
        order = sorted(range(len(requests)), key=lambda row: -len(requests[row][1]) - len(requests[row][2]))
        for start in range(0, len(order), self._size):
            rows = order[start : start + self._size]
            self._tick()
            for row, answer in zip(rows, self._scored([requests[row] for row in rows]), strict=True):
                answers[row] = answer
        return answers

    def _scored(self, requests: Sequence[Request]) -> list[tuple[float, bool]]:
        """A batch, padded on the right, which no earlier position sees."""
        sequences = [(context + continuation)[-self.max_length - 1 :] for _, context, continuation in requests]
        lengths = [len(sequence) - 1 for sequence in sequences]
        inputs = torch.zeros((len(sequences), max(lengths)), dtype=torch.int64)
        for row, sequence in enumerate(sequences):
            inputs[row, : lengths[row]] = torch.tensor(sequence[:-1])
        with torch.inference_mode(), full_precision():
            logits: Tensor = self._module(inputs.to(self._device)).logits
            return [
                self._continuation(logits[row, max(length - len(continuation), 0) : length], continuation)
                for row, (length, (_, _, continuation)) in enumerate(zip(lengths, requests, strict=True))
            ]

    def _continuation(self, logits: Tensor, continuation: list[int]) -> tuple[float, bool]:
        """The log-likelihood of a continuation's tokens, by the logits (L, vocabulary) before each of them."""
        tokens = torch.tensor(continuation[-len(logits) :], device=self._device)
        logs = logits.float().log_softmax(dim=-1)
        chosen = logs.gather(-1, tokens[:, None])[:, 0]
        total = float(chosen.double().sum())
        self.is_broken |= bool(chosen.isnan().any())
        return total, bool((logs.argmax(dim=-1) == tokens).all())

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:
        """The log-likelihood of whole texts, by windows with a context of one token."""
        del disable_tqdm
        windows: list[Request] = []
        counts: list[int] = []
        for (text,) in (request.args for request in requests):
            rolling = get_rolling_token_windows(self.tok_encode(text), self.prefix_token_id, self.max_length, 1)
            of_text = [(None, *make_disjoint_window(window)) for window in rolling]
            windows += of_text
            counts.append(len(of_text))
        scores = iter(self._loglikelihood_tokens(windows))
        return [sum(next(scores)[0] for _ in range(count)) for count in counts]

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """Greedy answers, up to the first of a task's stop texts; those with the same settings are batched together."""
        del disable_tqdm
        answers = [""] * len(requests)
        by_settings: dict[str, list[int]] = {}
        for row, request in enumerate(requests):
            by_settings.setdefault(repr(sorted(request.args[1].items(), key=repr)), []).append(row)
        for rows in by_settings.values():
            texts = self._answers([requests[row].args[0] for row in rows], requests[rows[0]].args[1])
            for row, text in zip(rows, texts, strict=True):
                answers[row] = text
        return answers

    def _answers(self, contexts: Sequence[str], settings: dict[str, Any]) -> list[str]:
        options = normalize_gen_kwargs(settings, 256)
        most = options["max_gen_toks"]
        eos = self.tokenizer.decode([self._end])
        until = handle_stop_sequences(list(options["until"]), eos=eos)
        inputs = [np.array(self.tok_encode(text)[-(self.max_length - most) :], dtype=np.int64) for text in contexts]
        stops = self._stops(until)
        none = np.zeros(len(inputs), dtype=np.int64)
        prompts = Prompts(np.arange(len(inputs)), none, none, none, none + most, stops)
        with torch.inference_mode(), full_precision():
            tokens = generated(
                self._module, inputs, prompts, self._size, self._device, lambda steps: self._tick(), WHOLE
            )
        self.is_broken |= bool(np.isnan(tokens).any())
        return [self._text(row, stops, until) for row in np.nan_to_num(tokens).astype(np.int64)]

    @cached_property
    def _words(self) -> list[str]:
        """The text of each token."""
        words: list[str] = self.tokenizer.batch_decode([[token] for token in range(len(self.tokenizer))])
        return words

    def _stops(self, until: Sequence[str]) -> frozenset[int]:
        """The tokens after which an answer is over: those that end a text, and those that contain a stop text."""
        with_stop = {token for token, text in enumerate(self._words) if any(stop and stop in text for stop in until)}
        return self._ends | with_stop

    def _text(self, tokens: Any, stops: frozenset[int], until: list[str]) -> str:
        """The text of an answer, without what stops it."""
        last = next((place for place, token in enumerate(tokens) if token in stops), len(tokens) - 1)
        kept = tokens[: last + (int(tokens[last]) not in self._ends)].tolist()
        text: str = postprocess_generated_text(self.tokenizer.decode(kept, skip_special_tokens=True), until, None)
        return text
