"""How much of what there is an answer holds, so that it fits a frame."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from edge.contract.wire import dumps

Row = TypeVar("Row")


def fitting(sizes: Sequence[int], rows: int, octets: int) -> int:
    """How many leading items make a page: at most `rows`, and at most `octets` (but one if there is any)."""
    most = sizes[: max(rows, 0)]
    for index, size in enumerate(most):
        octets -= size
        if octets < 0 and index:
            return index
    return len(most)


def leading(sizes: Sequence[tuple[int, int]], rows: int, octets: int) -> list[int]:
    """The numbers of what makes a page, out of (number, size)."""
    return [number for number, _ in sizes[: fitting([size for _, size in sizes], rows, octets)]]


def newest(rows: Sequence[Row], at: Callable[[Row], int], octets: int) -> tuple[list[Row], bool]:
    """The newest rows whose JSON fits `octets`, in the order given, and whether any were left out."""
    kept: set[int] = set()
    for place in sorted(range(len(rows)), key=lambda place: at(rows[place]), reverse=True):
        octets -= len(dumps(rows[place])) + 1
        if octets < 0:
            break
        kept.add(place)
    return [row for place, row in enumerate(rows) if place in kept], len(kept) < len(rows)
