"""Answers that hold everything there is, and must still fit a frame."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from edge.contract.wire import dumps

Row = TypeVar("Row")


def newest(rows: Sequence[Row], at: Callable[[Row], int], octets: int) -> tuple[list[Row], bool]:
    """The newest rows whose JSON fits `octets`, in the order given, and whether any were left out."""
    kept: set[int] = set()
    for place in sorted(range(len(rows)), key=lambda place: at(rows[place]), reverse=True):
        octets -= len(dumps(rows[place])) + 1
        if octets < 0:
            break
        kept.add(place)
    return [row for place, row in enumerate(rows) if place in kept], len(kept) < len(rows)
