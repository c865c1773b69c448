import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.data.chat_models import MODELS, plain_tokenizer, template_of, transformers_tokenizer
from understudy.data import chat_sandbox
from understudy.data.chat_sandbox import OF_TEXTS
from understudy.data.chat_template import CHATML, LONGEST, ChatTemplate, Message, TemplateRefuses
from understudy.errors import InputError

CHAT: list[Message] = [
    {"role": "user", "content": "  hello \n"},
    {"role": "assistant", "content": "Ünï \n\n", "reasoning_content": "well"},
    {"role": "user", "content": "</think>", "name": None},
]
SIMPLE = "{{ messages[0].content }}"
LAUGHS = "{% set ns = namespace(s=['ha']) %}{% for i in range(COUNT) %}{% set ns.s = [ns.s, ns.s] %}{% endfor %}"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    plain_tokenizer("zephyr").save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def configure(folder: Path, **config: Any) -> None:
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


@pytest.mark.parametrize("prompted", [False, True])
@pytest.mark.parametrize("name", [name for name in MODELS if name != "llama3.2"])
def test_a_text_is_that_of_transformers(name: str, *, prompted: bool) -> None:
    theirs = transformers_tokenizer(name).apply_chat_template(CHAT, tokenize=False, add_generation_prompt=prompted)
    assert template_of(name).render(CHAT, prompted) == theirs


@pytest.mark.parametrize(
    "text",
    [
        "{{ messages|tojson(indent=2) }}{{ messages|map(attribute='role')|join(', ') }}",
        "{{ 'a\nb'|indent(3, first=true) }}",
        "{% for m in messages if m.role == 'user' %}{{ loop.index }}{{ loop.last }}{{ m }}{% break %}{% endfor %}",
        "{{ 3 ** 2 }}",
        "{% macro f(x) %}<{{ x ~ 1 ~ none }}>{{ caller() }}{% endmacro %}{% call f('y') %}z{% endcall %}{{ 7 % 2 }}",
        "{% set x %}a{{ messages[0].content.strip() }}{% endset %}{{ x * 3 }}",
        "{% set x = 'hat' %}{{ x.replace('h', 'j') }}{{ ','.join(['a', 'b']) }}",
        "  {% if true %}\n  {{- undefined_name }} x\n  {% endif %}\n{{ dict(a=1).items()|list }}{{ [1, 2] + [3] }}",
    ],
)
def test_bounds_do_not_change_a_text(text: str) -> None:
    theirs = transformers_tokenizer("zephyr").apply_chat_template(CHAT, chat_template=text, tokenize=False)
    assert ChatTemplate(text).render(CHAT, add_generation_prompt=False) == theirs


def test_chatml_ends_each_turn() -> None:
    text = CHATML.render([{"role": "user", "content": "x"}], add_generation_prompt=True)
    assert text == "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a\n\n{{ strftime_now('%Y') }}", "line 3: it reads the clock.* Write the date into the template"),
        ("a\n{{ messages[9].role.x }}", "line 2: UndefinedError"),
        ("a\n{{ ''.__class__.__mro__ }}", "line 2: SecurityError"),
        ("{{ messages.append(1) }}", "line 1: SecurityError"),
        ("a\n{% if %}", "line 2: TemplateSyntaxError"),
        ("a\n{{ 1 / 0 }}", "line 2: ZeroDivisionError"),
        ("{% include 'x' %}", "line 1: TypeError"),
        ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "RecursionError"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
        ("{{ '\\ud800' }}", "not valid Unicode"),
        ("{{ [1, 2]|random }}", "No filter named 'random'"),
        ("{{ lipsum() }}", "undefined"),
        ("{{ messages|map('upper') }}", "type generator cannot be written"),
        ("{{ raise_exception }}", "type function cannot be written"),
        *((f"{{{{ raise_exception|{name} }}}}", "type function cannot be written") for name in OF_TEXTS),
        ("x" * (LONGEST + 1), "more than"),
    ],
)
def test_an_error_names_the_line(text: str, reason: str) -> None:
    with pytest.raises(InputError, match=reason):
        ChatTemplate(text).render(CHAT, add_generation_prompt=False)


@pytest.mark.parametrize(
    "text",
    [
        "{{ 'a' * 10 ** 12 }}",
        "{{ [1] * 10 ** 12 }}",
        "{{ 9 ** 9999999 }}",
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% for i in range(99999) %}{% for j in range(99999) %}text{% endfor %}{% endfor %}",
        "{% set x %}{% for i in range(99999) %}{{ 'abc' * 1000 }}{% endfor %}{% endset %}",
        "{% set ns = namespace(s='aa') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
        "{% set ns = namespace(s='aa') %}{% for i in range(60) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
        LAUGHS.replace("COUNT", "60") + "{{ ns.s|string }}",
        LAUGHS.replace("COUNT", "60") + "{{ ns.s ~ 'x' }}",
        LAUGHS.replace("COUNT", "18") + "{{ ns.s|tojson(indent=9) }}",
        LAUGHS.replace("COUNT", "60") + "{{ ns }}",
        LAUGHS.replace("COUNT", "60") + "{{ 'x' if ns.s == [ns.s] }}",
        "{% set ns = namespace(n=3) %}{% for i in range(25) %}{% set ns.n = ns.n * ns.n %}{% endfor %}{{ ns.n // 7 }}",
        "{{ ('a' * 99999).replace('', 'b' * 99999) }}",
        "{{ ('a' * 99999)|replace('', 'b' * 99999) }}",
        "{{ ('a' * 99999)|join('b' * 99999) }}",
        "{{ ('b' * 99999).join('a' * 99999) }}",
        "{{ ('\n' * 99999)|indent(first=true, width=1000000) }}",
        "{{ messages|tojson(separators=['x' * 99, 'y']) }}",
        "{{ 'x'.ljust(10 ** 9) }}",
        "{{ 'x'|center(10 ** 9) }}",
        "{{ '{:>1000000000}'.format(1) }}",
        "{{ '%1000000000d' % 1 }}",
    ],
)
def test_a_template_cannot_use_up_memory_or_time(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_sandbox, "CHARACTERS", 2**22)
    with pytest.raises(InputError, match="the chat template"):
        ChatTemplate(text).render(CHAT, add_generation_prompt=False)


@pytest.mark.parametrize(
    "text",
    [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% set ns = namespace(s='a') %}{% for i in range(99999) %}{% set ns.s = ns.s + 'a' %}{% endfor %}",
        "{% macro f() %}{% endmacro %}{% for i in range(99999) %}{{ f() }}{% endfor %}",
    ],
)
def test_a_template_cannot_use_up_processor_time(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_sandbox, "SECONDS", 0.01)
    monkeypatch.setattr(chat_sandbox, "CHARACTERS", 2**60)
    with pytest.raises(InputError, match="the template computes for more than"):
        ChatTemplate(text).render(CHAT, add_generation_prompt=False)


@pytest.mark.parametrize(
    "text", ["x", "{{ '' }}x", "x{{ '' }}", "{{ '' }}{{ '' }}x", "{{ 1 }}x", "{% raw %}x{% endraw %}x"]
)
def test_the_constants_of_a_template_are_charged(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_sandbox, "CHARACTERS", 1000)
    ChatTemplate(text).render(CHAT, add_generation_prompt=False)
    with pytest.raises(InputError, match="reads and writes more than"):
        ChatTemplate(text.replace("x", "x" * 1000)).render(CHAT, add_generation_prompt=False)


@pytest.mark.parametrize("constants", ["-999", "'nan'|float", "true", "'9'"])
def test_a_template_cannot_extend_its_allowance(constants: str) -> None:
    text = f"{{{{ ['a']|map({chat_sandbox.WRITTEN!r}, {constants})|list }}}}"
    with pytest.raises(InputError, match="cannot extend its allowance"):
        ChatTemplate(text).render(CHAT, add_generation_prompt=False)


def test_the_clock_is_read_every_few_charges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_sandbox, "SECONDS", -1.0)
    for text in ("{% for i in range(16) %}{% endfor %}", "{{ 'a' * 4096 }}", "{{ 'a' + 'b' * 4096 }}"):
        with pytest.raises(InputError, match="the template computes for more than"):
            ChatTemplate(text).render(CHAT, add_generation_prompt=False)


def test_a_refusal_of_the_template_has_its_own_error() -> None:
    with pytest.raises(TemplateRefuses, match=r"line 2: it refuses the conversation \(no systems\)"):
        ChatTemplate("a\n{{ raise_exception('no systems') }}").render(CHAT, add_generation_prompt=False)


def test_a_template_is_read_from_its_file_before_the_configuration(folder: Path) -> None:
    assert ChatTemplate.from_folder(folder) is None
    configure(folder, chat_template=SIMPLE, bos_token="<s>", eos_token={"content": "</s>"}, add_bos_token=True)
    expected = ChatTemplate(SIMPLE, {"bos_token": "<s>", "eos_token": "</s>"})
    assert ChatTemplate.from_folder(folder) == expected
    (folder / "chat_template.jinja").write_text("{{ eos_token }}")
    template = ChatTemplate.from_folder(folder)
    assert template is not None
    assert template.render(CHAT, add_generation_prompt=False) == "</s>"


def test_special_tokens_are_read_from_an_older_file_too(folder: Path) -> None:
    configure(folder, chat_template=SIMPLE, extra_special_tokens={"image_token": "<image>", "messages": "x"})
    (folder / "special_tokens_map.json").write_text(json.dumps({"eos_token": {"content": "</s>"}}))
    template = ChatTemplate.from_folder(folder)
    assert template == ChatTemplate(SIMPLE, {"eos_token": "</s>", "image_token": "<image>"})


def test_the_default_of_several_templates_is_taken(folder: Path) -> None:
    templates = [{"name": "tool_use", "template": "t"}, {"name": "default", "template": SIMPLE}]
    configure(folder, chat_template=templates)
    assert ChatTemplate.from_folder(folder) == ChatTemplate(SIMPLE)
    configure(folder, chat_template=[{"name": "tool_use", "template": "t"}, {"name": "rag", "template": "r"}])
    with pytest.raises(InputError, match="it has rag, tool_use"):
        ChatTemplate.from_folder(folder)


@pytest.mark.parametrize("value", [5, ["x"], {"default": 3}, [{"name": "default"}]])
def test_a_damaged_configuration_is_an_error(folder: Path, value: Any) -> None:
    configure(folder, chat_template=value)
    with pytest.raises(InputError, match="chat_template"):
        ChatTemplate.from_folder(folder)


def test_a_template_that_is_too_large_is_an_error(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("x" * (LONGEST + 1))
    with pytest.raises(InputError, match="more than"):
        ChatTemplate.from_folder(folder)
    with pytest.raises(InputError, match="is no folder"):
        ChatTemplate.from_folder(folder / "absent")
