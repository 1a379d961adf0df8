"""A limit has a name, a default, a unit and the error it raises; its counter and its config key come from here."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import msgspec

from edge.contract.errors import EdgeError, TooLarge

AGAIN = "retry_after_ms"
"""What an error's `data` calls the time after which another try may do."""


class Limit(msgspec.Struct, frozen=True):
    """One bound on what others may ask of the node.

    `name` is dotted and is the configuration key (`limits.<name>`) and the counter
    (`limit_hits{name=…}`). `error` None means: the transport closes or drops, as `about` says. `within` names the
    limit of what this one travels in: above it, it could never be reached. Below `least` nobody can set it.
    """

    name: str
    default: int
    unit: str
    about: str
    error: type[EdgeError] | None = TooLarge
    within: str = ""
    least: int = 1


class Limits:
    """The limits in force and how often each was hit. One per node; tests make their own."""

    def __init__(
        self, overrides: dict[str, int] | None = None, counting: AbstractContextManager[Any] | None = None
    ) -> None:
        """`counting` is entered for each count: a lock, where several threads hit limits."""
        self._values = dict(overrides or {})
        self.hits: dict[str, int] = {}
        self._counting = counting or nullcontext()

    def __getitem__(self, limit: Limit) -> int:
        return self._values.get(limit.name, limit.default)

    def hit(self, limit: Limit, count: int = 1) -> None:
        """Count a refusal."""
        with self._counting:
            self.hits[limit.name] = self.hits.get(limit.name, 0) + count

    def refuse(self, limit: Limit, detail: str = "", *, again_ms: int | None = None) -> EdgeError:
        """Count a refusal and make its error (for `raise`); `again_ms`: after which time another try may do."""
        self.hit(limit)
        text = f"{limit.name}: over {self[limit]} {limit.unit}" + (f" ({detail})" if detail else "")
        data: dict[str, object] = {"limit": limit.name, "max": self[limit]}
        if again_ms is not None:
            data[AGAIN] = again_ms
        return (limit.error or TooLarge)(text, data=data)


REGISTRY: dict[str, Limit] = {}
"""Every declared limit by name; a test walks it and demands a test at the edge of each."""


def declare(
    name: str,
    default: int,
    unit: str,
    about: str,
    error: type[EdgeError] | None = TooLarge,
    *,
    within: str = "",
    least: int = 1,
) -> Limit:
    """Declare a limit, once, at import time."""
    if name in REGISTRY:
        raise ValueError(f"limit {name} is declared twice")
    REGISTRY[name] = Limit(name, default, unit, about, error, within, least)
    return REGISTRY[name]
