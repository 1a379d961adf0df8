"""A strict reader for the YAML between the `---` lines of an agent.md; it builds plain values and nothing else.

The subset: block mappings and sequences by indentation; flow `[…]` and `{…}` on one line (JSON is part of it);
plain, 'single' and "double" quoted scalars; literal `|` and folded `>` blocks; comments; null, booleans, integers and
floats of YAML 1.2. Refused: anchors, aliases, tags, directives, merge keys, duplicate keys, tabs in indentation,
plain scalars over several lines, complex keys, more than 8 levels.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NoReturn

from edge.contract.errors import Malformed
from edge.contract.wire import SAFE_INTEGER

MAX_DEPTH = 8
_KEY = re.compile(
    r"""(?:"(?:[^"\\]|\\.)*"|'(?:[^']|'')*'|[^\s"'#&*!|>%@`\[\]{},?:-][^\s#:]*(?:[ :#][^\s#:]+)*)\s*:(?=\s|$)"""
)
_INTEGER = re.compile(r"[-+]?(?:0|[1-9][0-9]*)")
_FLOAT = re.compile(r"[-+]?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "b": "\b", "f": "\f", "e": "\x1b"}
_ESCAPES |= {'"': '"', "\\": "\\", "/": "/", " ": " "}
_HEX = {"x": 2, "u": 4, "U": 8}
_WORDS: dict[str, bool | None] = {"": None, "~": None, "null": None, "Null": None, "NULL": None}
_WORDS |= {word: word[0] in "tT" for word in ("true", "True", "TRUE", "false", "False", "FALSE")}
_PLAIN_START = "&*!|>%@`,]}\"'[{#"


def read(text: str) -> dict[str, Any]:
    """The mapping that `text` says. Raises `Malformed`, naming the line."""
    reader = _Reader(text)
    if reader.peek() is None:
        return {}
    indent, _ = reader.here()
    if indent:
        reader.fail("the first key is indented")
    value = reader.block(0, 0)
    if reader.peek() is not None:
        reader.fail("unexpected indentation")
    if not isinstance(value, dict):
        raise Malformed("front matter must be a mapping")
    return value


class _Reader:
    def __init__(self, text: str) -> None:
        self._lines = text.split("\n")
        self._at = 0

    def fail(self, why: str) -> NoReturn:
        raise Malformed(f"front matter line {self._at + 1}: {why}")

    def peek(self) -> str | None:
        """The next line that says something, without its comment."""
        while self._at < len(self._lines):
            line = self._lines[self._at].rstrip("\r")
            bare = line.lstrip(" ")
            if bare and not bare.startswith("#"):
                if bare[0] == "\t":
                    self.fail("tab in indentation")
                return line
            self._at += 1
        return None

    def here(self) -> tuple[int, str]:
        """Indentation and content of the next line; only after `peek` said there is one."""
        line = self._lines[self._at].rstrip("\r")
        bare = line.lstrip(" ")
        return len(line) - len(bare), bare.rstrip()

    def block(self, indent: int, depth: int) -> Any:
        if depth > MAX_DEPTH:
            self.fail(f"deeper than {MAX_DEPTH} levels")
        _, content = self.here()
        return self._sequence(indent, depth) if _item(content) else self._mapping(indent, depth)

    def _mapping(self, indent: int, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while self.peek() is not None:
            at, content = self.here()
            if at < indent or (at == indent and _item(content)):
                break
            if at > indent:
                self.fail("unexpected indentation")
            self._pair(found, content, indent, depth)
        return found

    def _pair(self, found: dict[str, Any], content: str, indent: int, depth: int) -> None:
        match = _KEY.match(content)
        if match is None:
            self.fail("expected `key: value`")
        name = _Flow(match[0][: match[0].rindex(":")].rstrip(), self.fail).only(key=True)
        if name == "<<":
            self.fail("merge keys are not allowed")
        if name in found:
            self.fail(f"duplicate key {name!r}")
        rest = content[match.end() :].strip()
        found[name] = self._value(rest, indent, depth, below=True)

    def _sequence(self, indent: int, depth: int) -> list[Any]:
        found: list[Any] = []
        while self.peek() is not None:
            at, content = self.here()
            if at != indent or not _item(content):
                if at > indent:
                    self.fail("unexpected indentation")
                break
            rest = content[1:].lstrip()
            if rest and not rest.startswith("#") and (_KEY.match(rest) or _item(rest)):
                inner = indent + len(content) - len(rest)
                self._lines[self._at] = " " * inner + rest
                found.append(self.block(inner, depth + 1))
            else:
                found.append(self._value(rest, indent, depth, below=False))
        return found

    def _value(self, rest: str, indent: int, depth: int, *, below: bool) -> Any:
        """What follows `key:` or `-`. `below`: a sequence may stand at the key's own indentation."""
        if rest[:1] in ("|", ">"):
            return self._text(rest, indent)
        if rest and not rest.startswith("#"):
            value = _Flow(rest, self.fail).only()
            self._at += 1
            if self.peek() is not None and self.here()[0] > indent:
                self.fail("a value may not continue on the next line")
            return value
        self._at += 1
        if self.peek() is None:
            return None
        at, content = self.here()
        if at > indent or (below and at == indent and _item(content)):
            return self.block(at, depth + 1)
        return None

    def _text(self, header: str, indent: int) -> str:
        match = re.fullmatch(r"([|>])([-+]?)\s*(?:#.*)?", header)
        if match is None:
            self.fail("block scalars take only |, >, and - or +")
        self._at += 1
        lines: list[str] = []
        inner = -1
        while self._at < len(self._lines):
            line = self._lines[self._at].rstrip("\r")
            at = len(line) - len(line.lstrip(" "))
            if line.strip():
                if inner < 0:
                    inner = at
                if at <= indent or at < inner:
                    break
            lines.append(line[inner:] if inner >= 0 else "")
            self._at += 1
        body = "\n".join(lines).rstrip("\n") if match[2] != "+" else "\n".join(lines)
        if match[1] == ">":
            body = re.sub(r"(?<!\n)\n(?!\n)", " ", body)
        return body if match[2] == "-" or not body else body + "\n"


class _Flow:
    """One value on one line: a scalar, or flow collections of them."""

    def __init__(self, text: str, fail: Callable[[str], NoReturn]) -> None:
        self._text, self._at = text, 0
        self._fail: Callable[[str], NoReturn] = fail

    def only(self, key: bool = False) -> Any:
        value = self._plain("", key) if self._now() not in "\"'[{" else self._one(0)
        self._space()
        rest = self._text[self._at :]
        if rest and not (rest.startswith("#") and self._text[self._at - 1] in " \t"):
            self._fail(f"unexpected {rest[:20]!r}")
        return value

    def _now(self) -> str:
        return self._text[self._at] if self._at < len(self._text) else "\0"

    def _space(self) -> None:
        while self._now() in " \t":
            self._at += 1

    def _one(self, depth: int) -> Any:
        if depth > MAX_DEPTH:
            self._fail(f"deeper than {MAX_DEPTH} levels")
        self._space()
        match self._now():
            case '"':
                return self._double()
            case "'":
                return self._single()
            case "[":
                return self._list(depth)
            case "{":
                return self._map(depth)
            case _:
                return self._plain(",]}")

    def _list(self, depth: int) -> list[Any]:
        found: list[Any] = []
        self._at += 1
        while True:
            self._space()
            if self._now() == "]":
                self._at += 1
                return found
            found.append(self._one(depth + 1))
            self._next("]")

    def _map(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        self._at += 1
        while True:
            self._space()
            if self._now() == "}":
                self._at += 1
                return found
            name = self._one(depth + 1) if self._now() in "\"'" else self._plain(":,}", key=True)
            self._space()
            if self._now() != ":" or not isinstance(name, str) or name in found or name == "<<":
                self._fail("bad or duplicate key in { }")
            self._at += 1
            found[name] = self._one(depth + 1)
            self._next("}")

    def _next(self, closing: str) -> None:
        self._space()
        if self._now() == ",":
            self._at += 1
        elif self._now() != closing:
            self._fail(f"expected , or {closing}")

    def _plain(self, stops: str, key: bool = False) -> Any:
        start = self._at
        if self._now() in _PLAIN_START and self._now() not in stops:
            self._fail(f"a plain value may not begin with {self._now()}")
        while self._at < len(self._text):
            char = self._now()
            if char in stops or (char == "#" and self._text[self._at - 1 : self._at] in (" ", "\t")):
                break
            if char == ":" and not key and self._text[self._at + 1 : self._at + 2] in ("", " ", "\t"):
                self._fail("`: ` inside a plain value: quote it")
            self._at += 1
        word = self._text[start : self._at].strip()
        return word if key else _resolve(word)

    def _single(self) -> str:
        end = re.compile(r"'((?:[^']|'')*)'").match(self._text, self._at)
        if end is None:
            self._fail("quote is not closed")
        self._at = end.end()
        return str(end[1]).replace("''", "'")

    def _double(self) -> str:
        out: list[str] = []
        self._at += 1
        while (char := self._now()) != '"':
            if self._at >= len(self._text):
                self._fail("quote is not closed")
            self._at += 1
            out.append(self._escape() if char == "\\" else char)
        self._at += 1
        try:
            return "".join(out).encode("utf-16", "surrogatepass").decode("utf-16")
        except UnicodeDecodeError:
            self._fail("lone surrogate")

    def _escape(self) -> str:
        code = self._now()
        self._at += 1
        if code in _ESCAPES:
            return _ESCAPES[code]
        digits = self._text[self._at : self._at + _HEX.get(code, 0)]
        if code not in _HEX or not re.fullmatch(r"[0-9A-Fa-f]+", digits) or len(digits) != _HEX[code]:
            self._fail(f"unknown escape \\{code}")
        self._at += len(digits)
        if int(digits, 16) > 0x10FFFF:
            self._fail("not a character")
        return chr(int(digits, 16))


def _item(content: str) -> bool:
    return content == "-" or content.startswith("- ")


def _resolve(word: str) -> Any:
    if word in _WORDS:
        return _WORDS[word]
    if _INTEGER.fullmatch(word) and len(word) <= 17:
        number = int(word)
        return number if abs(number) <= SAFE_INTEGER else word
    if _FLOAT.fullmatch(word) and abs(value := float(word)) <= SAFE_INTEGER:
        return value
    return word
