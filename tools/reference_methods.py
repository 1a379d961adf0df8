"""The reference of every operation, from its declaration: a page and a JSON Schema per area, and the table of all."""

from __future__ import annotations

import json
import sys
from collections.abc import AsyncIterator, Iterator
from typing import Any, get_args, get_origin

import msgspec

from edge.contract.errors import (
    EdgeError,
    Internal,
    InvalidParams,
    MethodNotFound,
    NotAuthenticated,
    NotPermitted,
    NotReady,
    RateLimited,
    TooLarge,
    Unavailable,
)
from edge.contract.limit import REGISTRY
from edge.dispatch.table import types_of
from edge.protocol.aun import CONNECT_NUMBERS, NUMBERS, SEARCH_NUMBERS
from edge.session.limiter import CLASSES
from edge.transports.http.app import STATUS

SURFACES = {"aun": "AUN", "edge": "control socket", "a2a": "A2A", "http": "HTTP"}
REF = "#/$defs/{name}"

Schema = dict[str, Any]


class Operation:
    """One declared operation and what can be said of it without running it."""

    def __init__(self, mark: dict[str, Any], run: Any) -> None:
        self.name: str = mark["name"]
        self.scope: str = mark["scope"]
        self.wire: dict[str, tuple[str, ...]] = mark["wire"]
        self.raises: tuple[type[EdgeError], ...] = mark["raises"]
        self.writes: bool = mark["writes"]
        self.once, self.once_s = mark["once"], mark["once_s"]
        self.doc = (run.__doc__ or "").strip().split("\n\n")[0].replace("\n", " ")
        self.params, result = types_of(run)
        self.streams = get_origin(result) is AsyncIterator
        self.result: Any = get_args(result)[0] if self.streams else result

    @property
    def area(self) -> str:
        """The part of the name before its first dot."""
        return self.name.partition(".")[0]

    @property
    def access(self) -> str:
        """Who may call it."""
        return {"": "open", "any": "whoever is authenticated"}.get(self.scope, f"`{self.scope}`")


def operations() -> list[Operation]:
    """Every method marked with `op` in the modules imported so far, by name."""
    found: dict[str, Operation] = {}
    for name, module in sorted(sys.modules.items()):
        if not name.startswith("edge."):
            continue
        for kind in list(vars(module).values()):
            if isinstance(kind, type) and kind.__module__ == name:
                for run in vars(kind).values():
                    if (mark := getattr(run, "__op__", None)) is not None:
                        found.setdefault(mark["name"], Operation(mark, run))
    return [found[name] for name in sorted(found)]


def pages(note: str) -> dict[str, str]:
    """File name below docs/reference → its text."""
    every = operations()
    areas = sorted({one.area for one in every})
    texts = {"methods.md": note + _index(every) + "\n"}
    for area in areas:
        own = [one for one in every if one.area == area]
        shown, whole = _schemas(own)
        texts[f"methods/{area}.md"] = note + _page(area, own, shown, whole["$defs"]) + "\n"
        texts[f"schema/{area}.json"] = json.dumps(whole, indent=1, ensure_ascii=False) + "\n"
    return texts


# The table of all.


def _index(every: list[Operation]) -> str:
    lines = ["# Operations", "", _WORDS, ""]
    lines += [row("operation", "who may", *SURFACES.values(), "what"), row(*["---"] * (len(SURFACES) + 3))]
    for one in every:
        names = [", ".join(f"`{name}`" for name in one.wire.get(wire, ())) for wire in SURFACES]
        lines.append(row(f"[`{one.name}`](methods/{one.area}.md#{_anchor(one.name)})", one.access, *names, one.doc))
    return "\n".join(lines)


def _anchor(name: str) -> str:
    return name.replace(".", "")


# One area.


def _page(area: str, own: list[Operation], shown: dict[str, tuple[Schema, Schema]], defs: dict[str, Schema]) -> str:
    lines = [f"# `{area}`", "", _PAGE_WORDS.format(area=area)]
    limits = [limit for name, limit in sorted(REGISTRY.items()) if name.partition(".")[0] == area]
    if limits:
        lines += ["", "Limits of this area:", "", row("limit", "default", "unit", "about"), row(*["---"] * 4)]
        lines += [row(f"`{one.name}`", str(one.default), one.unit, one.about) for one in limits]
    used: set[str] = set()
    for one in own:
        lines += ["", *_section(one, *shown[one.name], defs, used)]
    nested = _closure(used, defs)
    if nested:
        lines += ["", "## Records", ""]
    for name in sorted(nested):
        about = defs[name].get("description", "")
        lines += ["", f"### {name}", "", *([about, ""] if about else []), *_fields(defs[name], set())]
    return "\n".join(lines)


def _section(one: Operation, params: Schema, result: Schema, defs: dict[str, Schema], used: set[str]) -> Iterator[str]:
    yield f"## {one.name}"
    yield ""
    yield one.doc
    yield ""
    for surface, names in one.wire.items():
        yield f"- {SURFACES.get(surface, surface)}: {', '.join(f'`{name}`' for name in names)}"
    if not one.wire:
        yield "- asked by the node itself only"
    yield f"- who may: {one.access}"
    if (verb := one.scope.partition(":")[2]) in CLASSES:
        limit = CLASSES[verb]
        yield f"- rate: `{limit.name}` ({limit.default} {limit.unit}), besides the caller's own"
    if one.writes:
        yield "- changes state: answered after the commit"
    if one.once:
        yield f"- a repeat with the same `{one.once}` within {one.once_s} s gets the first answer"
    yield ""
    yield from _record("Params", params, defs, used, getattr(one.params, "ALIASES", {}))
    yield ""
    yield from _record("Streams" if one.streams else "Result", result, defs, used, {})
    if one.raises:
        yield ""
        yield from _errors(one)


def _record(
    title: str, schema: Schema, defs: dict[str, Schema], used: set[str], aliases: dict[str, str]
) -> Iterator[str]:
    name = schema.get("$ref", "").rpartition("/")[2]
    if not name:
        yield f"{title}: {_kind(schema, used)}"
        return
    found = defs[name]
    about = found.get("description", "")
    if not found.get("properties"):
        yield f"{title}: none" if title == "Params" else f"{title}: `{{}}`"
        return
    yield f"{title}: {about}" if about else f"{title}:"
    yield ""
    other = {name: [alias for alias, meant in aliases.items() if meant == name] for name in found["properties"]}
    yield from _fields(found, used, other, "**required**" if title == "Params" else "always there")


def _fields(
    record: Schema, used: set[str], aliases: dict[str, list[str]] | None = None, must: str = "**required**"
) -> Iterator[str]:
    yield row("field", "type", "default")
    yield row(*["---"] * 3)
    required = record.get("required", ())
    for name, field in record.get("properties", {}).items():
        also = (aliases or {}).get(name, [])
        shown = f"`{name}`" + (f" (also {', '.join(f'`{one}`' for one in also)})" if also else "")
        default = f"`{json.dumps(field['default'], ensure_ascii=False)}`" if "default" in field else "absent"
        yield row(shown, _kind(field, used), must if name in required else default)


def _kind(schema: Schema, used: set[str]) -> str:
    """A schema in words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        used.add(name)
        return f"[{name}](#{name.lower()})"
    if "enum" in schema:
        return " or ".join(f"`{one}`" for one in schema["enum"])
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(_kind(one, used) for one in schema["anyOf"]))
    match schema.get("type"):
        case "array" if schema.get("prefixItems"):
            return "[" + ", ".join(_kind(one, used) for one in schema["prefixItems"]) + "]"
        case "array":
            return f"list of {_kind(schema.get('items', {}) or {}, used)}"
        case "object" if isinstance(schema.get("additionalProperties"), dict):
            return f"object of {_kind(schema['additionalProperties'], used)}"
        case str(kind):
            return {"integer": "whole number", "null": "null"}.get(kind, kind)
        case _:
            return "any JSON"


def _closure(names: set[str], defs: dict[str, Schema]) -> set[str]:
    """The records named, and those that they name."""
    found: set[str] = set()
    waiting = set(names)
    while waiting:
        name = waiting.pop()
        found.add(name)
        inner: set[str] = set()
        list(_fields(defs[name], inner))
        waiting |= inner - found
    return found


def _errors(one: Operation) -> Iterator[str]:
    numbers = {"auth.connect": CONNECT_NUMBERS}.get(one.name, SEARCH_NUMBERS if one.area == "search" else NUMBERS)
    yield row("error", "AUN", "HTTP", "retry helps", "means")
    yield row(*["---"] * 5)
    for error in sorted(set(one.raises), key=lambda kind: kind.__name__):
        about = (error.__doc__ or error.summary).strip().split("\n\n")[0]
        numbered = str(numbers.number(error))
        yield row(f"`{error.__name__}`", numbered, str(STATUS.number(error)), _yes(error.retryable), about)


def _yes(value: bool) -> str:
    return "yes" if value else "no"


def row(*cells: str) -> str:
    """A line of a table."""
    return "| " + " | ".join(" ".join(cell.replace("|", "\\|").split()) for cell in cells) + " |"


# JSON Schema.


def _schemas(own: list[Operation]) -> tuple[dict[str, tuple[Schema, Schema]], Schema]:
    """Params and result of each operation, and the file of the area."""
    kinds = [kind for one in own for kind in (_plain(one.params), one.result)]
    found, defs = msgspec.json.schema_components(
        kinds, ref_template=REF, schema_hook=lambda kind: {"title": "any JSON"}
    )
    pairs = list(found)
    shown = {one.name: (pairs[2 * place], pairs[2 * place + 1]) for place, one in enumerate(own)}
    whole: Schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "operations": {name: {"params": params, "result": result} for name, (params, result) in shown.items()},
        "$defs": dict(sorted(defs.items())),
    }
    return shown, whole


def _plain(kind: Any) -> Any:
    """The record without defaults that JSON Schema cannot show (JSON kept as text)."""
    fields = msgspec.structs.fields(kind)
    if not any(isinstance(field.default, msgspec.Raw) for field in fields):
        return kind
    made: list[Any] = []
    for field in fields:
        if isinstance(field.default, msgspec.Raw):
            made.append((field.encode_name, field.type, msgspec.field(default_factory=msgspec.Raw)))
        elif field.default_factory is not msgspec.NODEFAULT:
            made.append((field.encode_name, field.type, msgspec.field(default_factory=field.default_factory)))
        elif field.default is not msgspec.NODEFAULT:
            made.append((field.encode_name, field.type, field.default))
        else:
            made.append((field.encode_name, field.type))
    plain: Any = msgspec.defstruct(kind.__name__, made, kw_only=True)
    plain.__doc__ = kind.__doc__
    return plain


_ALWAYS = {
    MethodNotFound: "no such method on this wire; `data.absent` names a service of AUN that this node does not have",
    NotAuthenticated: "the caller is nobody yet, or its token is bad",
    NotReady: "on AUN: `auth.connect` comes first",
    NotPermitted: "the scope is missing",
    InvalidParams: "a parameter is missing, has the wrong type or lies out of range; further parameters are tolerated",
    RateLimited: "over a rate, a count or the requests at once; `data.retry_after_ms` says when to come back",
    TooLarge: "the answer would be longer than clients read: ask for less at once",
    Unavailable: "the node starts or stops, or its store takes no writes",
    Internal: "something broke; the log says what",
}
_WORDS = f"""What the node answers, under which name on which wire, and what a caller must hold. A name leads to its
parameters, result, errors and limits; `schema/<area>.json` has the same as JSON Schema. `aun-edge methods` asks a
running node, which leaves out what `node.off` switches off.

Besides the errors listed there, every call may end in one of these:

{row("error", "AUN", "HTTP", "when")}
{row(*["---"] * 4)}
""" + "\n".join(
    row(f"`{kind.__name__}`", str(NUMBERS.number(kind)), str(STATUS.number(kind)), when)
    for kind, when in _ALWAYS.items()
)
_PAGE_WORDS = """Every operation of this area; [all operations](../methods.md) has the errors that any call may end in.
The same as JSON Schema: [`schema/{area}.json`](../schema/{area}.json). A field whose default is `absent` need not be
there; results may leave out fields that say nothing."""
