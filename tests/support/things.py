"""A table of things for tests of the store, and a way to make a commit gather."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from edge.contract.event import Event
from edge.contract.store import Unit
from edge.store.database import Database
from edge.store.migration import statements

THING = statements("node", "thing-001", "CREATE TABLE thing (n INTEGER PRIMARY KEY) STRICT")
ADD = "INSERT INTO thing (n) VALUES (?)"
ALL = "SELECT n FROM thing ORDER BY n"


def add(n: int) -> Callable[[Unit], int]:
    def work(unit: Unit) -> int:
        unit.run(ADD, (n,))
        unit.emit(Event("thing", "", n))
        return n

    return work


def things(unit: Unit) -> list[Any]:
    return [row[0] for row in unit.run(ALL)]


class Held:
    """Keeps the writer busy, so that what is queued meanwhile is the next commit."""

    def __init__(self, db: Database) -> None:
        self._gate = threading.Event()
        db.control(lambda writer: self._gate.wait(10), lambda result: None)

    def __enter__(self) -> None:
        return None

    def __exit__(self, *error: object) -> None:
        self._gate.set()
