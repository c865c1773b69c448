"""The turns of a conversation as tokens of a served model, and which of them were learned.

MLflow stores this module with each version of the task chat, so it imports nothing of understudy.
"""

from collections.abc import Callable
from typing import Any

import torch

NEUTRAL = "a"
"""A message that is part of no special token."""


class ServedTurns:
    """Conversations as tokens, by the tokenizer's chat template.

    The prepare step has proved of every conversation that an answer's tokens follow those of its prompt.

    Args:
        tokenizer: one of transformers, with a chat template.
        end: the id of the token that ends an answer.
        loss_on: assistant, last or all.
        train_on_eos: whether that token is learned.
    """

    def __init__(self, tokenizer: Any, end: int, loss_on: str, train_on_eos: bool) -> None:
        self._tokenizer, self._end = tokenizer, end
        self._loss_on, self._train_on_eos = loss_on, train_on_eos

    def prompt(self, messages: list[dict[str, str]]) -> list[int]:
        """The tokens of a conversation, up to where the answer begins.

        Raises:
            ValueError: a message has the text of a special token.
        """
        ids = self._ids(messages, prompt=True)
        if token := self._special_text(messages):
            raise ValueError(f"a message contains {token}, which would end its turn; remove it")
        if self._has_more_special_tokens(messages, ids, prompt=True):
            raise ValueError("the messages together have a special token, which would end a turn; change them")
        return ids

    def decoded(self, ids: list[int]) -> str:
        """The text of an answer."""
        text: str = self._tokenizer.decode(ids, skip_special_tokens=True)
        return text

    def learned(self, messages: list[dict[str, str]], most: int) -> tuple[list[int], list[bool]]:
        """The tokens of the turns that fit into `most` tokens, and which of them are learned."""
        kept = messages
        while kept and (kept[-1]["role"] != "assistant" or len(self._ids(kept)) > most):
            kept = kept[:-1]
        if not kept or self._special_text(kept):
            return [], []
        ids = self._ids(kept)
        if self._has_more_special_tokens(kept, ids):
            return [], []
        if self._loss_on == "all":
            return ids, [index > 0 for index in range(len(ids))]
        answers = [index for index, message in enumerate(kept) if message["role"] == "assistant"]
        learned = [False] * len(ids)
        for index in answers[-1:] if self._loss_on == "last" else answers:
            prompt, end = self._ids(kept[:index], prompt=True), len(self._ids(kept[: index + 1]))
            if ids[: len(prompt)] != prompt or self._end not in ids[len(prompt) : end]:
                return [], []  # a token crosses their boundary
            stop = ids.index(self._end, len(prompt)) + self._train_on_eos
            learned[len(prompt) : stop] = [True] * (stop - len(prompt))
        return ids, learned

    def _special_text(self, messages: list[dict[str, str]]) -> str | None:
        added = self._tokenizer.added_tokens_decoder.items()
        tokens = [token.content for number, token in added if token.special or number == self._end]
        tokens += [text for text in self._tokenizer.special_tokens_map.values() if isinstance(text, str)]
        texts = [text for text in tokens if text.strip()]
        return next((text for text in texts for message in messages if text in message["content"]), None)

    def _has_more_special_tokens(self, messages: list[dict[str, str]], ids: list[int], *, prompt: bool = False) -> bool:
        """Whether there are other special tokens than in the same turns with other words: a template may join texts."""
        neutral = self._ids([{"role": message["role"], "content": NEUTRAL} for message in messages], prompt=prompt)
        special = {number for number, token in self._tokenizer.added_tokens_decoder.items() if token.special}
        return [id_ for id_ in ids if id_ in special] != [id_ for id_ in neutral if id_ in special]

    def _ids(self, messages: list[dict[str, str]], *, prompt: bool = False) -> list[int]:
        text = self._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=prompt)
        ids: list[int] = self._tokenizer.encode(text, add_special_tokens=False)
        return ids


def loss(ids: list[int], learned: list[bool], logits: Callable[[Any], Any]) -> float:
    """The negative log-likelihood of the learned tokens, in nats."""
    if not any(learned):
        return 0.0
    predictions, targets = logits(torch.tensor([ids[:-1]]))[0], torch.tensor(ids[1:])
    losses = torch.nn.functional.cross_entropy(predictions, targets, reduction="none")
    return float(losses[torch.tensor(learned[1:])].double().sum())
