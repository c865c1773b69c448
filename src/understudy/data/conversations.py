"""Conversations: their canonical bytes, and the check of one that a source has read.

A conversation is a list of turns, {"role": ..., "content": ...}: a system prompt or none, then turns of a user and an
assistant that alternate.
"""

import json
from collections.abc import Iterable
from itertools import pairwise

from understudy.data.raw import EMPTY, Broken, Checked, Raw
from understudy.data.records import identity

ROLES = ("system", "user", "assistant")

Turn = dict[str, str]
"""The keys role and content, in this order."""


def canonical(turns: Iterable[Turn]) -> bytes:
    """The bytes of a conversation: JSON in UTF-8 without spaces."""
    return json.dumps([*turns], ensure_ascii=False, separators=(",", ":")).encode()


def messages(content: bytes) -> list[Turn]:
    """The turns of a conversation from its canonical bytes."""
    turns: list[Turn] = json.loads(content)
    return turns


def check_conversation(record: Raw) -> Checked | Broken:
    """Check the turns of a conversation, whose canonical bytes are the record's content.

    Its key is that of the same turns without byte order marks and with line feeds as line ends.
    """
    turns = messages(record.content)
    if not turns:
        return Broken(record.name, EMPTY)
    reason = _fault_of_turns(turns) or _fault_of_order([turn["role"] for turn in turns])
    if reason:
        return Broken(record.name, reason)
    plain = canonical({"role": turn["role"], "content": _plain(turn["content"])} for turn in turns)
    return Checked(record, identity(plain, record.others))


def _fault_of_turns(turns: list[Turn]) -> str | None:
    for number, turn in enumerate(turns, 1):
        if turn["role"] not in ROLES:
            return f"turn {number} has the role {turn['role']!a}: only system, user and assistant are supported"
        if not turn["content"].removeprefix("\ufeff").strip():
            return f"turn {number} ({turn['role']}) is empty"
        if "\0" in turn["content"]:
            return f"turn {number} ({turn['role']}) has the character zero, which is no text"
    return None


def _fault_of_order(roles: list[str]) -> str | None:
    if "system" in roles[1:]:
        return f"turn {roles.index('system', 1) + 1} is a system prompt, which may only be the first turn, and once"
    if "assistant" not in roles:
        return "has no assistant's turn: nothing to learn"
    start = roles[0] == "system"
    if roles[start] == "assistant":
        return f"turn {start + 1} is the assistant's: the first turn after the system prompt has to be a user's"
    for number, (role, following) in enumerate(pairwise(roles), 1):
        if role == following:
            return f"turns {number} and {number + 1} are both of the {role}: user and assistant have to alternate"
    if roles[-1] == "user":
        return f"ends with a user's turn, turn {len(roles)}: nothing to learn"
    return None


def _plain(text: str) -> str:
    return text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
