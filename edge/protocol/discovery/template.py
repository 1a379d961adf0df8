"""Home Assistant templates without a template engine (spec/device-conventions.md §1.6).

A closed set is read into a small tree: `value`, a path into `value_json`, a chain of known filters, one arithmetic
constant, one `'A' if … else 'B'`, one `split`. Everything else raises `Unsupported`; the raw value is then kept.
Nothing that came by the network is ever evaluated.
"""

from __future__ import annotations

import math
import re
from enum import Enum
from typing import Final, Literal, Protocol

import msgspec

from edge.contract.wire import SAFE_INTEGER


class NoSample(Enum):
    """Says that a message carries no value for a reader."""

    NO_SAMPLE = 0


NO_SAMPLE: Final = NoSample.NO_SAMPLE


class Unsupported(ValueError):
    """A template outside the set; the text says what of it."""


class Source(Protocol):
    """A payload that is decoded when asked."""

    def text(self) -> str | None:
        """As text, None when it is none."""
        ...

    def json(self) -> object:
        """As JSON, `NO_SAMPLE` when it is none."""
        ...


Literal_ = str | int | float | bool | None


class Filter(msgspec.Struct, frozen=True, omit_defaults=True):
    """One known filter; `args` holds its only argument, if it has one."""

    name: str
    args: tuple[Literal_, ...] = ()


class Path(msgspec.Struct, frozen=True, omit_defaults=True):
    """`value` or a way into `value_json`; then `split` at a separator, taking one piece."""

    of: Literal["value", "json"] = "json"
    steps: tuple[str | int, ...] = ()
    split: tuple[str, int] | None = None


class Template(msgspec.Struct, frozen=True, omit_defaults=True):
    """A value template: path, filters, then perhaps `op constant` and further filters, or a conditional.

    constant_first: `10 - x` instead of `x - 10`. equals: () tests for truth, else holds the literal compared to.
    """

    path: Path
    filters: tuple[Filter, ...] = ()
    op: str = ""
    constant: float = 0
    constant_first: bool = False
    after: tuple[Filter, ...] = ()
    choice: tuple[Literal_, Literal_] | None = None
    equals: tuple[Literal_, ...] = ()

    def render(self, source: Source) -> object:
        """The value, or `NO_SAMPLE`: a missing key leaves the state as it is."""
        try:
            value = _chain(_walk(self.path, source), self.filters)
            if self.op:
                value = _calculate(self.op, value, self.constant, self.constant_first)
            value = _chain(value, self.after)
        except (ArithmeticError, TypeError, ValueError):
            return NO_SAMPLE
        if value is NO_SAMPLE:
            return NO_SAMPLE
        if isinstance(value, float) and not math.isfinite(value):
            return NO_SAMPLE
        if isinstance(value, int | float) and abs(value) > SAFE_INTEGER:
            return NO_SAMPLE
        if self.choice is not None:
            holds = _same(value, self.equals[0]) if self.equals else bool(value)
            return self.choice[0] if holds else self.choice[1]
        return value


class Phrase(msgspec.Struct, frozen=True, omit_defaults=True):
    """A command template: literal text around one `{{ value }}`, with filters."""

    before: str = ""
    after: str = ""
    filters: tuple[Filter, ...] = ()

    def render(self, text: str) -> str:
        """The payload. Raises `Unsupported` for a value that would break out of a quoted or JSON context."""
        value = _chain(text, self.filters)
        if value is NO_SAMPLE:
            raise Unsupported("the command template has no word for this value")
        said = str(value)
        if _QUOTING.search(self.before) and _BREAKING.search(said):
            raise Unsupported("the value has characters that the command template cannot carry")
        return self.before + said + self.after


def parse(text: str, longest: int) -> Template | None:
    """Read a value template; None for the identity. Raises `Unsupported`."""
    if len(text) > longest:
        raise Unsupported(f"over {longest} characters")
    body = _MUSTACHE.fullmatch(text.strip())
    if body is None or "{{" in body[1] or "}}" in body[1]:
        raise Unsupported("not one {{ … }} expression")
    template = _Parser(body[1]).template()
    return None if template == Template(Path("value")) else template


def parse_phrase(text: str, longest: int) -> Phrase | None:
    """Read a command template; None for the identity. Raises `Unsupported`."""
    if len(text) > longest:
        raise Unsupported(f"over {longest} characters")
    pieces = _HOLE.split(text.strip())
    if len(pieces) != 3 or any(mark in pieces[0] + pieces[2] for mark in ("{{", "{%", "{#", "}}", "%}")):
        raise Unsupported("not text around one {{ value }}")
    template = _Parser(pieces[1]).template()
    if template.path != Path("value") or template.op or template.choice is not None:
        raise Unsupported("only `value` and filters in a command template")
    phrase = Phrase(pieces[0], pieces[2], template.filters)
    return None if phrase == Phrase() else phrase


_MUSTACHE = re.compile(r"\{\{-?(.*?)-?\}\}", re.DOTALL)
_HOLE = re.compile(r"\{\{-?(.*?)-?\}\}", re.DOTALL)
_QUOTING = re.compile(r"[\"'{\[]")
_BREAKING = re.compile(r"[\x00-\x1f\"'\\{}]")
_TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+(?:\.\d+)?)|(?P<name>[A-Za-z_]\w*)|'(?P<single>[^'\\]*)'|\"(?P<double>[^\"\\]*)\""
    r"|(?P<sign>==|[-+*/|.()\[\],]))",
    re.ASCII,
)
_MISSING_FILTERS = frozenset({"default", "float", "int"})
_NO_ARGUMENT = frozenset({"is_defined", "lower", "upper", "bool"})
_WORDS: dict[str, Literal_] = {"true": True, "True": True, "false": False, "False": False, "none": None, "None": None}


class _Parser:
    """Recursive descent without recursion: the set has one level of brackets."""

    def __init__(self, text: str) -> None:
        self._tokens: list[tuple[str, str]] = []
        text, at = text.rstrip(), 0
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise Unsupported(f"unexpected {text[at:].strip()[:12]!r}")
            kind = found.lastgroup or ""
            self._tokens.append(("text" if kind in ("single", "double") else kind, found[kind]))
            at = found.end()
        self._at = 0

    def template(self) -> Template:
        first = self._peek()
        if first[0] == "text" or (first[0] == "number" and self._peek(1) == ("name", "if")):
            made = self._conditional()
        else:
            made = self._arithmetic()
        if self._peek() != ("", ""):
            raise Unsupported(f"unexpected {self._peek()[1]!r}")
        return made

    def _peek(self, ahead: int = 0) -> tuple[str, str]:
        place = self._at + ahead
        return self._tokens[place] if place < len(self._tokens) else ("", "")

    def _take(self, *wanted: tuple[str, str]) -> tuple[str, str]:
        token = self._peek()
        if wanted and token not in wanted:
            raise Unsupported(f"unexpected {token[1]!r}" if token[1] else "unexpected end")
        self._at += 1
        return token

    def _met(self, sign: str) -> bool:
        if self._peek() == ("sign", sign):
            self._at += 1
            return True
        return False

    def _conditional(self) -> Template:
        yes = self._literal()
        self._take(("name", "if"))
        path, filters = self._operand()
        equals: tuple[Literal_, ...] = ()
        if self._met("=="):
            equals = (self._literal(),)
        self._take(("name", "else"))
        return Template(path, filters, choice=(yes, self._literal()), equals=equals)

    def _arithmetic(self) -> Template:
        """`operand [op constant]` or `(operand op constant)`, then filters only after the brackets."""
        bracket = self._met("(")
        made = self._term()
        if not bracket:
            return made
        self._take(("sign", ")"))
        if made.op:
            return msgspec.structs.replace(made, after=self._filters())
        made = msgspec.structs.replace(made, filters=made.filters + self._filters())
        if self._peek()[1] in ("+", "-", "*", "/") and self._peek()[0] == "sign":
            sign = self._take()[1]
            return msgspec.structs.replace(made, op=sign, constant=self._constant())
        return made

    def _term(self) -> Template:
        if self._peek()[0] == "number" or self._peek() == ("sign", "-"):
            constant = self._constant()
            sign = self._operator()
            path, filters = self._operand()
            return Template(path, filters, sign, constant, constant_first=True)
        path, filters = self._operand()
        if self._peek()[0] == "sign" and self._peek()[1] in ("+", "-", "*", "/"):
            sign = self._operator()
            return Template(path, filters, sign, self._constant())
        return Template(path, filters)

    def _operator(self) -> str:
        kind, text = self._take()
        if kind != "sign" or text not in ("+", "-", "*", "/"):
            raise Unsupported(f"unexpected {text!r}")
        return text

    def _constant(self) -> float:
        value = self._literal()
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise Unsupported("arithmetic with something that is no number")
        return value

    def _operand(self) -> tuple[Path, tuple[Filter, ...]]:
        inner = self._met("(")
        kind, name = self._take()
        if (kind, name) not in (("name", "value"), ("name", "value_json")):
            raise Unsupported(f"unexpected {name!r}" if name else "unexpected end")
        path = Path("value" if name == "value" else "json")
        steps: list[str | int] = []
        split: tuple[str, int] | None = None
        while self._peek() in (("sign", "."), ("sign", "[")):
            if split is not None:
                raise Unsupported("a path after split")
            if self._met("."):
                kind, step = self._take()
                if kind not in ("name", "number"):
                    raise Unsupported(f"unexpected {step!r}")
                if step == "split" and self._peek() == ("sign", "("):
                    split = self._split()
                elif self._peek() == ("sign", "("):
                    raise Unsupported(f"call of {step!r}")
                else:
                    steps.append(int(step) if kind == "number" and step.isdigit() else step)
            else:
                self._take(("sign", "["))
                key = self._literal()
                if isinstance(key, bool) or not isinstance(key, str | int):
                    raise Unsupported("a path step that is neither text nor index")
                self._take(("sign", "]"))
                steps.append(key)
        if path.of == "value" and steps:
            raise Unsupported("a path into `value`")
        filters = self._filters()
        if inner:
            self._take(("sign", ")"))
            filters += self._filters()
        return Path(path.of, tuple(steps), split), filters

    def _split(self) -> tuple[str, int]:
        self._take(("sign", "("))
        separator = self._literal()
        self._take(("sign", ")"))
        self._take(("sign", "["))
        index = self._literal()
        self._take(("sign", "]"))
        if not isinstance(separator, str) or not separator or isinstance(index, bool) or not isinstance(index, int):
            raise Unsupported("split")
        return separator, index

    def _filters(self) -> tuple[Filter, ...]:
        found: list[Filter] = []
        while self._met("|"):
            kind, name = self._take()
            if kind != "name":
                raise Unsupported(f"unexpected {name!r}")
            args: tuple[Literal_, ...] = ()
            if self._met("("):
                if not self._met(")"):
                    args = (self._literal(),)
                    self._take(("sign", ")"))
            found.append(_checked(Filter(name, args)))
        return tuple(found)

    def _literal(self) -> Literal_:
        negative = self._met("-")
        kind, text = self._take()
        if kind == "number":
            number = float(text) if "." in text else int(text)
            if abs(number) > SAFE_INTEGER:
                raise Unsupported("a number above 2^53-1")
            return -number if negative else number
        if negative:
            raise Unsupported("minus before something that is no number")
        if kind == "text":
            return text
        if kind == "name" and text in _WORDS:
            return _WORDS[text]
        raise Unsupported(f"unexpected {text!r}" if text else "unexpected end")


def _checked(one: Filter) -> Filter:
    name, args = one.name, one.args
    if name in _NO_ARGUMENT and not args:
        return one
    if name == "round" and (not args or (isinstance(args[0], int) and 0 <= args[0] <= 15)):
        return one
    if name in ("float", "int") and (not args or (isinstance(args[0], int | float) and not isinstance(args[0], bool))):
        return one
    if name == "default" and args:
        return one
    raise Unsupported(f"filter {name}")


def _walk(path: Path, source: Source) -> object:
    value: object = source.json() if path.of == "json" else source.text()
    if value is None and path.of == "value":
        return NO_SAMPLE
    for step in path.steps:
        if isinstance(value, dict) and step in value:
            value = value[step]
        elif isinstance(value, list) and isinstance(step, int) and -len(value) <= step < len(value):
            value = value[step]
        else:
            return NO_SAMPLE
    if path.split is not None:
        pieces = value.split(path.split[0]) if isinstance(value, str) else []
        return pieces[path.split[1]] if -len(pieces) <= path.split[1] < len(pieces) else NO_SAMPLE
    return value


def _chain(value: object, filters: tuple[Filter, ...]) -> object:
    for one in filters:
        if value is NO_SAMPLE and one.name not in _MISSING_FILTERS:
            return NO_SAMPLE
        value = _apply(one, value)
    return value


def _apply(one: Filter, value: object) -> object:
    match one.name:
        case "default":
            return one.args[0] if value is NO_SAMPLE else value
        case "float" | "int":
            return _number(one, value)
        case "round":
            if isinstance(value, bool) or not isinstance(value, int | float):
                return NO_SAMPLE
            return round(value, int(one.args[0] or 0)) if one.args else round(value)
        case "lower":
            return _text(value).lower()
        case "upper":
            return _text(value).upper()
        case "bool":
            return value if isinstance(value, bool) else _truth(value)
    return value


def _number(one: Filter, value: object) -> object:
    """As Home Assistant: what cannot be read becomes the default; without one it is no sample."""
    instead: object = one.args[0] if one.args else NO_SAMPLE
    if isinstance(value, bool):
        made: float = int(value)
    elif isinstance(value, int | float):
        made = value
    elif isinstance(value, str) and len(value) <= 64 and "_" not in value:
        try:
            made = float(value)
        except ValueError:
            return instead
    else:
        return instead
    if not math.isfinite(made):
        return instead
    return int(made) if one.name == "int" else float(made)


def _truth(value: object) -> bool | NoSample:
    if isinstance(value, int | float):
        return value != 0
    match _text(value).strip().lower():
        case "1" | "true" | "yes" | "on" | "enable":
            return True
        case "0" | "false" | "no" | "off" | "disable":
            return False
    return NO_SAMPLE


def _text(value: object) -> str:
    return value if isinstance(value, str) else str(value)


def _calculate(op: str, value: object, constant: float, constant_first: bool) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return NO_SAMPLE
    left, right = (constant, value) if constant_first else (value, constant)
    match op:
        case "+":
            return left + right
        case "-":
            return left - right
        case "*":
            return left * right
    return left / right


def _same(value: object, literal: Literal_) -> bool:
    """`True == 1` is no surprise in JSON terms: booleans equal booleans only."""
    return isinstance(value, bool) == isinstance(literal, bool) and value == literal
