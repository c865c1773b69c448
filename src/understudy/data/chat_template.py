"""Chat templates: the jinja program of a tokenizer that turns a conversation into one text.

The text is that of transformers' apply_chat_template, so a student sees the same text in training and behind a server.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, NoReturn

import jinja2
from jinja2 import Template

from understudy.data.chat_sandbox import Allowance, ClockRead, bounded_environment, bounded_syntax
from understudy.data.tokenizer import CONFIG, SPECIAL, TEMPLATE, content, json_of, text_of
from understudy.errors import InputError, printable
from understudy.recipe.data import Tokenizer as Settings

Message = Mapping[str, Any]
"""A turn: `role`, `content`, and what else a template reads (reasoning_content, tool_calls)."""
LONGEST = 256 * 2**10
"""Maximum characters of a template."""
GENERATION = re.compile(r"\{%-?\s*generation\s*-?%\}")
"""The mark around an answer, as transformers looks for it."""
PLAIN = {"role", "content"}
"""The keys of a message that is passed on to a template as it is."""
RAISED: tuple[type[Exception], ...] = (
    jinja2.TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    TypeError,
    ValueError,
    AssertionError,
    MemoryError,
    RecursionError,
    NotImplementedError,
    SyntaxError,
    SystemError,
)
"""Exceptions of templates. Python's own compiler raises the last ones, if a template is nested too deep."""


class TemplateRefuses(InputError):
    """The template refuses a conversation with raise_exception, for example since roles do not alternate."""


@dataclass(frozen=True)
class ChatTemplate:
    """A chat template and the special tokens that it may write."""

    text: str
    """The jinja source."""
    special_tokens: Mapping[str, str] = field(default_factory=dict)
    """Texts of tokens by name (bos_token, eos_token, ...)."""

    @classmethod
    def from_folder(cls, folder: Path) -> "ChatTemplate | None":
        """The template beside a tokenizer in a folder; None if it has none.

        Raises:
            InputError: as in of().
        """
        if not folder.is_dir():
            raise InputError(f"{folder} is no folder. Give the folder of a tokenizer.")
        return cls.of(Settings(pretrained=str(folder.absolute())))

    @classmethod
    def of(cls, settings: Settings) -> "ChatTemplate | None":
        """The template of a pretrained tokenizer, from a folder or the hub; None if it has none.

        Raises:
            InputError: a file is damaged or too large, or none of several templates is the default.
        """
        config = json_of(settings, CONFIG)
        text = text_of(settings, TEMPLATE)
        if text is None:
            text = _configured(str(settings.pretrained), config.get("chat_template"))
        if text is None:
            return None
        if len(text) > LONGEST:
            raise InputError(
                f"{settings.pretrained}: the chat template has {len(text):,} characters, more than {LONGEST:,}. "
                "Give a tokenizer with a smaller one."
            )
        return cls(text, _special_tokens(settings, config))

    @property
    def has_marks(self) -> bool:
        """Whether the template marks answers, with {% generation %}."""
        return GENERATION.search(self.text) is not None

    def render(self, messages: Sequence[Message], add_generation_prompt: bool) -> str:
        """The text of a conversation, as transformers' apply_chat_template(tokenize=False) makes it.

        Args:
            messages: the turns.
            add_generation_prompt: whether the text ends with the beginning of an answer.

        Raises:
            TemplateRefuses: the template refuses this conversation.
            InputError: the template is damaged, reads the clock, or computes without end.
        """
        with _Explained(), Allowance():
            text = _compiled(self.text).render(self._variables(messages, add_generation_prompt))
        return _valid(text)

    def marked(self, messages: Sequence[Message]) -> tuple[str, list[tuple[int, int]]]:
        """The text of a conversation, and the spans of characters that {% generation %} marks, in their order.

        Raises:
            InputError: as in render().
        """
        blocks: list[str] = []
        spans: list[tuple[int, int]] = []
        with _Explained(), Allowance():
            template = _compiled(self.text)
            tracked: Any = template.environment
            with tracked.activate_tracker(blocks, spans):
                for block in template.generate(self._variables(messages, add_generation_prompt=False)):
                    blocks.append(block)  # noqa: PERF402 (the tracker reads the blocks so far)
        return _valid("".join(blocks)), spans

    def _variables(self, messages: Sequence[Message], add_generation_prompt: bool) -> dict[str, Any]:
        turns = list(messages)
        if not all(type(turn) is dict and turn.keys() == PLAIN and None not in turn.values() for turn in turns):
            from transformers.utils.chat_template_utils import _alias_reasoning_fields

            turns = [{key: value for key, value in message.items() if value is not None} for message in turns]
            turns = _alias_reasoning_fields(turns)
        return {
            "messages": turns,
            "tools": None,
            "documents": None,
            "add_generation_prompt": add_generation_prompt,
            **self.special_tokens,
        }


CHATML = ChatTemplate(
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}",
    {"eos_token": "<|im_end|>"},
)
"""The template for a tokenizer that has none; both of its markers have to be special tokens of the tokenizer."""


@lru_cache(maxsize=8)
def _compiled(text: str) -> Template:
    if len(text) > LONGEST:
        raise ValueError(f"it has {len(text):,} characters, more than {LONGEST:,}")
    environment = bounded_environment()
    template = environment.from_string(bounded_syntax(environment, text))
    template.globals = dict(template.globals)  # each rendering copies them, a ChainMap three times as slowly
    return template


class _Explained:
    """Turn exceptions of templates into errors that name the line."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, _: object) -> None:
        if isinstance(error, RAISED):
            _explain(error)


def _explain(error: BaseException) -> NoReturn:
    line = _line(error)
    place = "the chat template" if line is None else f"the chat template, line {line}"
    reason = printable(str(error))[:200] or type(error).__name__
    if isinstance(error, ClockRead):
        raise InputError(
            f"{place}: it reads the clock, so that tokens would depend on the day. Write the date into the template."
        ) from error
    if type(error) is jinja2.TemplateError:  # only raise_exception raises the class itself
        raise TemplateRefuses(
            f"{place}: it refuses the conversation ({reason}). Change the conversation, or give another template."
        ) from error
    raise InputError(
        f"{place}: {type(error).__name__} ({reason}). Correct it, or give a tokenizer with another template."
    ) from error


def _line(error: BaseException) -> int | None:
    """The template's line in which an error happened; jinja puts the template's lines into the traceback."""
    if isinstance(error, jinja2.TemplateSyntaxError):
        return error.lineno
    line, entry = None, error.__traceback__
    while entry is not None:
        if entry.tb_frame.f_code.co_filename == "<template>":
            line = entry.tb_lineno
        entry = entry.tb_next
    return line


def _valid(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"the chat template made a text that is not valid Unicode ({error.reason}). Remove lone "
            "surrogates from the messages or the template."
        ) from error
    return text


def _configured(name: str, value: Any) -> str | None:
    """The template of tokenizer_config.json: a text, or a list of named ones with one for chats, the default."""
    if value is None or isinstance(value, str):
        return value
    templates = value
    if isinstance(value, list) and all(isinstance(item, dict) for item in value):
        templates = {str(item.get("name")): item.get("template") for item in value}
    if not isinstance(templates, dict):
        raise InputError(f"{name}/{CONFIG}: chat_template is no text. Correct it, or remove it.")
    default = templates.get("default")
    if not isinstance(default, str):
        present = ", ".join(printable(str(key)) for key in sorted(templates, key=str)) or "none"
        raise InputError(
            f"{name}/{CONFIG}: chat_template has no template named default (it has {present}). "
            "Name the one for chats default."
        )
    return default


def _special_tokens(settings: Settings, config: Mapping[str, Any]) -> dict[str, str]:
    """Texts of special tokens by name, those that a model's authors have named included."""
    if "added_tokens_decoder" not in config:
        config = {**config, **json_of(settings, SPECIAL)}
    values = {name: value for name, value in config.items() if name.endswith("_token")}
    for group in (config.get("extra_special_tokens"), config.get("model_specific_special_tokens")):
        values |= {name: group[name] for name in group if name.endswith("_token")} if isinstance(group, dict) else {}
    texts = {name: content(value) for name, value in values.items()}
    return {name: text for name, text in texts.items() if text is not None}
