"""A notice that a log grew. Never the truth, only a hint: who missed it reads the log after its cursor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec


class Event(msgspec.Struct, frozen=True):
    """Log `log`, key `key` reached `seq`.

    `kind` names what happened for the codecs (`message.received`, `task.updated`); `body` is JSON of it;
    `audience` are the AIDs whose channels may hear it; `only` narrows that to one channel id (queue mode).
    """

    log: str
    key: str
    seq: int
    kind: str = ""
    body: bytes = b""
    audience: frozenset[str] = frozenset()
    only: str = ""


Watcher = Callable[[Event], None]


class Fanout(Protocol):
    """Hands events to whoever watches, in the loop, after the commit."""

    def publish(self, event: Event) -> None:
        """Tell every watcher of (log, key), of the whole log, and the channels of the audience."""
        ...

    def watched(self, log: str, key: str) -> bool:
        """Whether anybody watches this key or the whole log: an event without audience is for nobody else."""
        ...

    def watch(self, log: str, key: str | None, watcher: Watcher) -> Callable[[], None]:
        """Hear events of one key, or of every key with None; the result ends it."""
        ...
