"""Answers for people and for scripts."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

import msgspec

from edge.contract.wire import dumps


def as_json(value: object) -> None:
    """One JSON value, indented."""
    json_octets(msgspec.json.format(dumps(value), indent=2))


def json_octets(line: bytes) -> None:
    """JSON and a line end, in UTF-8 whatever the terminal speaks (RFC 8259 §8.1)."""
    sys.stdout.flush()
    sys.stdout.buffer.write(line + b"\n")
    sys.stdout.buffer.flush()


def table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], *, none: str) -> None:
    """Aligned columns under their names; `none` when there is no row."""
    if not rows:
        print(none)
        return
    cells = [[name.upper().replace("_", " ") for name in columns]]
    cells += [[word(row.get(name)) for name in columns] for row in rows]
    widths = [max(len(line[place]) for line in cells) for place in range(len(columns))]
    for line in cells:
        print("  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())


def facts(value: Mapping[str, Any], indent: str = "") -> None:
    """One fact a line, nested ones indented."""
    width = max((len(name) for name in value), default=0)
    for name, item in value.items():
        label = f"{indent}{name.replace('_', ' ').ljust(width)}"
        if isinstance(item, Mapping) and item:
            print(label.rstrip())
            facts(item, indent + "  ")
        elif isinstance(item, list) and item and isinstance(item[0], Mapping):
            print(label.rstrip())
            for row in item:
                print(f"{indent}  " + ", ".join(f"{key} {word(part)}" for key, part in row.items()))
        else:
            print(f"{label}  {word(item)}")


def word(value: object) -> str:
    """A value in a cell; control characters of what strangers named are shown, never sent to the terminal."""
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, Mapping):
        return printable(dumps(value).decode()) if value else "-"
    if isinstance(value, Iterable):
        return ", ".join(word(item) for item in value) or "-"
    return str(value)


def moment(at_us: int | None) -> str:
    """µs since 1970 UTC as local time, "-" when nobody knows."""
    return "-" if at_us is None else datetime.fromtimestamp(at_us // 1_000_000).astimezone().isoformat(" ")


def printable(text: str) -> str:
    """Text without terminal control characters."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)
