"""transformers' jinja environment for chat templates, with bounds on memory and time.

A chat template is a program that somebody downloaded. The sandbox of jinja2 keeps it from files and from Python, but
not from nested loops or from texts that double. Here everything that a template computes is charged to an allowance,
and results that differ from run to run (the clock, random choices, addresses of objects) are refused.
"""

import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from functools import wraps
from typing import Any, NoReturn

from jinja2 import TemplateRuntimeError, Undefined, nodes, pass_context
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

CHARACTERS, SECONDS = 2**27, 20.0
"""Maximum of characters that a template may read and write for one conversation, and of processor time."""
ITEM = 64
"""Characters that an item of a list, a call and a round of a loop count as."""
CLOCK_EVERY = 4096
"""Characters between two readings of the processor's clock, which is a call of the kernel; 256 more for each charge."""
DEPTH = 20
"""Maximum nesting of lists and mappings that a template writes."""
MOST_BITS = 4096
"""Maximum size of numbers that a template computes with."""
SHORT = 16
"""Maximum length of an indentation or separator in JSON."""
FILTERS = ("center", "wordwrap", "format", "xmlattr", "urlize", "pprint", "batch", "slice", "random")
OF_TEXTS = ("string", "upper", "lower", "title", "capitalize", "trim", "escape", "e", "urlencode", "forceescape")
"""Filters that take any value's text."""
METHODS = ("center", "ljust", "rjust", "zfill", "expandtabs", "format", "format_map", "translate", "encode", "to_bytes")
"""Unavailable filters, and unavailable methods of texts and numbers: a few characters make gigabytes of them."""
COLLECTIONS: Any = (list, tuple, Mapping, type({}.keys()), type({}.values()), type({}.items()))


class ClockRead(TemplateRuntimeError):
    """The template asked for today's date."""


class Allowance:
    """What the templates that are compiled and rendered inside may read and write, and the time that they may take."""

    def __init__(self) -> None:
        self.characters, self.deadline, self.until_clock = CHARACTERS, time.thread_time() + SECONDS, CLOCK_EVERY

    def __enter__(self) -> None:
        self.token = _allowance.set(self)

    def __exit__(self, *_: object) -> None:
        _allowance.reset(self.token)

    def charge(self, characters: int) -> None:
        """Take characters from the allowance.

        Raises:
            TemplateRuntimeError: the allowance or the time is used up.
        """
        self.characters -= characters
        if self.characters < 0:
            raise TemplateRuntimeError(f"the template reads and writes more than {CHARACTERS:,} characters")
        self.until_clock -= characters + 256
        if self.until_clock < 0:
            self.until_clock = CLOCK_EVERY
            if time.thread_time() > self.deadline:
                raise TemplateRuntimeError(f"the template computes for more than {SECONDS:.0f} seconds")


_allowance: ContextVar[Allowance] = ContextVar("allowance")


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """An environment whose operators and calls are charged to the allowance."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Compute left OPERATOR right, unless the result would be too large."""
        if operator == "+" and type(left) is type(right) is str:  # most operations of templates
            text = left + right
            _allowance.get().charge(len(text))
            return text
        if operator == "%" and isinstance(left, str):
            raise TemplateRuntimeError("formatting with % is not available in chat templates here; use ~")
        if operator == "**" and not all(isinstance(n, float) or abs(n) <= 1000 for n in (left, right)):
            raise TemplateRuntimeError("a power of such numbers is too large")
        if isinstance(left, int) and isinstance(right, int) and left.bit_length() + right.bit_length() > MOST_BITS:
            raise TemplateRuntimeError("a number is too large")
        if operator == "*":
            _charge_product(left, right)
        result = super().call_binop(context, operator, left, right)
        _charge_result(result)
        return result

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: N805
        """Call a function, a macro or a method of a value."""
        name, owner = getattr(__obj, "__name__", ""), getattr(__obj, "__self__", None)
        if name in METHODS and not isinstance(owner, Mapping):
            raise TemplateRuntimeError(f"the method {name} is not available in chat templates here")
        _measure_arguments((*args, *kwargs.values()))
        if isinstance(owner, str) and name == "replace":
            _charge_replacement(owner, *args[:2])
        if isinstance(owner, str) and name == "join" and args:
            args = (_joined_items(owner, args[0]), *args[1:])
        result = super().call(__context, __obj, *args, **kwargs)
        _charge_result(result)
        return result


def bounded_environment() -> BoundedEnvironment:
    """The environment in which transformers renders chat templates, with bounds."""
    from transformers.utils.chat_template_utils import _cached_compile_jinja_template

    theirs = _cached_compile_jinja_template("").environment
    extensions = [type(extension) for extension in theirs.extensions.values()]
    environment = BoundedEnvironment(trim_blocks=True, lstrip_blocks=True, optimized=False, extensions=extensions)
    environment.globals = {name: value for name, value in theirs.globals.items() if name != "lipsum"}
    environment.globals["strftime_now"] = _refuse_clock
    environment.filters = {name: _bounded(name, f) for name, f in theirs.filters.items() if name not in FILTERS}
    environment.filters[WRITTEN] = _written
    return environment


def bounded_syntax(environment: BoundedEnvironment, text: str) -> nodes.Template:
    """Parse a template, and charge its output, its comparisons and each round of its loops.

    Raises:
        jinja2.TemplateSyntaxError: the text is no template.
    """
    template = environment.parse(text)
    for concatenation in [*template.find_all(nodes.Concat)]:
        concatenation.nodes = [_charged(node) for node in concatenation.nodes]
    for output in [*template.find_all(nodes.Output)]:
        output.nodes = _charged_output(output.nodes)
    for comparison in [*template.find_all(nodes.Compare)]:
        comparison.expr = _charged(comparison.expr)
        for operand in comparison.ops:
            operand.expr = _charged(operand.expr)
    for loop in [*template.find_all(nodes.For)]:
        round_ = nodes.ExprStmt(_charged(nodes.Const(None, lineno=loop.lineno)), lineno=loop.lineno)
        loop.body.insert(0, round_)
    template.set_environment(environment)
    return template


WRITTEN = "written out"
"""The filter around each written expression; a template cannot spell a name with a space."""


def _charged(node: nodes.Expr, constants: int = 0) -> nodes.Expr:
    """An expression that is charged when it is written, with the characters of constants beside it."""
    arguments: list[nodes.Expr] = [nodes.Const(constants, lineno=node.lineno)] if constants else []
    return nodes.Filter(node, WRITTEN, arguments, [], None, None, lineno=node.lineno)


def _charged_output(parts: list[nodes.Expr]) -> list[nodes.Expr]:
    """The parts of an output; its constants are charged together with the first expression, or the first of them."""
    expressions = [part for part in parts if not isinstance(part, nodes.TemplateData)]
    first = (expressions or parts)[0]
    constants = sum(1 + len(part.data) for part in parts if isinstance(part, nodes.TemplateData) and part is not first)
    return [
        part
        if isinstance(part, nodes.TemplateData) and part is not first
        else _charged(part, constants if part is first else 0)
        for part in parts
    ]


@pass_context
def _written(context: Context, value: Any, constants: int = 0) -> Any:
    if type(constants) is not int or constants < 0:  # map() takes a filter's name as a text, and any arguments
        raise TemplateRuntimeError("a template cannot extend its allowance")
    if type(value) is str:
        _allowance.get().charge(1 + len(value) + constants)
    else:
        _allowance.get().charge(constants)
        _measure(value)
    return value


def _refuse_clock(*arguments: object) -> NoReturn:
    raise ClockRead("the template reads the clock")


def _measure(value: Any, depth: int = 0) -> None:
    """Charge the length of a value's text, without making it: a list of lists may be short, and its text endless."""
    charge = _allowance.get().charge
    if isinstance(value, str):
        charge(1 + len(value))
    elif isinstance(value, COLLECTIONS):
        if depth == DEPTH:
            raise TemplateRuntimeError(f"lists nested more than {DEPTH} deep cannot be written")
        parts = (part for item in value.items() for part in item) if isinstance(value, Mapping) else value
        for part in parts:
            charge(ITEM)
            _measure(part, depth + 1)
    elif value is None or isinstance(value, int | float | Undefined):
        charge(ITEM)
    else:
        raise TemplateRuntimeError(f"a value of type {type(value).__name__} cannot be written")


def _measure_arguments(values: tuple[Any, ...]) -> None:
    _allowance.get().charge(ITEM)
    for value in values:
        if isinstance(value, (str, *COLLECTIONS)):
            _measure(value)


def _charge_result(value: Any) -> None:
    if isinstance(value, str):
        _allowance.get().charge(len(value))
    elif isinstance(value, int):
        _allowance.get().charge(ITEM + value.bit_length())
    elif isinstance(value, list | tuple | dict):
        _allowance.get().charge(ITEM * len(value))


def _charge_product(left: Any, right: Any) -> None:
    for value, times in ((left, right), (right, left)):
        if isinstance(value, str | list | tuple) and isinstance(times, int):
            _allowance.get().charge(max(times, 0) * (len(value) if isinstance(value, str) else ITEM * len(value)))


def _charge_replacement(text: str, old: object = "", new: object = "") -> None:
    _allowance.get().charge(text.count(str(old)) * len(str(new)))


def _joined_items(separator: object, items: Any) -> list[Any]:
    listed = list(items)
    _allowance.get().charge(len(str(separator)) * len(listed))
    _measure(listed)
    return listed


def _bounded(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter that is charged to the allowance; jinja's marks of the function are kept."""
    first = 1 if getattr(function, "jinja_pass_arg", None) is not None else 0

    @wraps(function)
    def charged(*args: Any, **kwargs: Any) -> Any:
        value, others = args[first], (*args[first + 1 :], *kwargs.values())
        if isinstance(value, Namespace):
            raise TemplateRuntimeError(f"the filter {name} does not take a namespace")
        if name in OF_TEXTS and name != WRITTEN:
            _measure(value)  # the text of another value is its address, which differs from run to run
        _measure_arguments((value, *others))
        if name == "tojson":
            _charge_json(value, others)
        elif name == "indent":
            width = kwargs.get("width", args[first + 1] if len(args) > first + 1 else 4)
            _charge_replacement(f"{value}\n", "\n", width if isinstance(width, str) else " " * min(width, 10**6))
        elif name == "replace":
            named = {**dict(zip(("old", "new"), args[first + 1 :], strict=False)), **kwargs}
            _charge_replacement(str(value), named.get("old"), named.get("new"))
        elif name == "join":
            separator = kwargs.get("d", args[first + 1] if len(args) > first + 1 else "")
            args = (*args[:first], _joined_items(separator, value), *args[first + 1 :])
        result = function(*args, **kwargs)
        _charge_result(result)
        return result

    return charged


def _charge_json(value: Any, others: tuple[Any, ...]) -> None:
    """Charge JSON with indentation and separators, which every item repeats."""
    parts = [part for other in others for part in (other if isinstance(other, list | tuple) else [other])]
    if any((len(part) if isinstance(part, str) else part or 0) > SHORT for part in parts):
        raise TemplateRuntimeError(f"an indentation or separator of JSON has more than {SHORT} characters")
    for _ in range(DEPTH if parts else 0):
        _measure(value)
