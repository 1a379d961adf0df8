"""The MQTT bus: one message with its authenticated publisher; one seam, three engines (design D4)."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from enum import Enum
from typing import Any, Protocol

import msgspec

from edge.contract.principal import Principal
from edge.contract.time import Stamp


class Publish(msgspec.Struct, frozen=True, gc=False):
    """One message. `live` is False for a replay of something older than its arrival (a retained message)."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    who: Principal
    at: Stamp
    live: bool = True


Done = Callable[[BaseException | None], None]
"""Called once, in the loop: None when what the sink kept is on disk, else why it is not."""

Sink = Callable[[list[Publish], Done], Collection[int]]
"""Takes the batch of one loop turn. Returns the positions that it keeps: their acks wait for `done`, the others do not.

With an empty result `done` is never called. A sink must not raise and must not block. The alarms of a turn are a batch
of their own, before the rest: what a full disk refuses must not hold them up."""


def after(count: int, done: Done) -> Done:
    """What each of `count` completions calls: `done` follows the last of them, with the first error among them. With
    none to wait for it is called at once."""
    left = max(count, 1)
    first: BaseException | None = None

    def one(error: BaseException | None) -> None:
        nonlocal left, first
        left -= 1
        first = first or error
        if not left:
            done(first)

    if not count:
        one(None)
    return one


class Bus(Protocol):
    """Hands every message, wills and the host's own included, to every sink exactly once, in order, in batches."""

    def publish(self, message: Publish, done: Done | None = None) -> None:
        """Publish from the host; routed, retained and seen by the sinks like a client's.

        `done` is called in the loop, maybe at once, when what anybody keeps of it is on disk: the sinks, the sessions
        of subscribers, the retained messages. With an error it was not kept now, though it may have been delivered,
        and may yet be kept. Raises `ValueError` for what is no topic name; with `done` also the error of a limit that
        keeps it from being retained."""
        ...

    def attach(self, sink: Sink) -> None:
        """Add a sink. Before the engine listens."""
        ...

    def kept(self, wanted: str) -> Iterator[Publish]:
        """The retained messages of topics that a filter matches now, each looked up when its turn comes, with `live`
        False. None from an engine that keeps them elsewhere."""
        ...

    def expel(self, user: str) -> int:
        """Close every connection and forget every session of an MQTT user (revoked, forgotten); how many."""
        ...

    def hang_up(self, user: str) -> int:
        """Close every connection of an MQTT user whose password is no longer good; its sessions stay. How many."""
        ...


class BusEngine(Bus, Protocol):
    """A bus with its life. `listens` is False when devices connect elsewhere; `promise` says what an ack means."""

    listens: bool
    promise: str

    async def load(self) -> None:
        """Take up what the last run left. Before anybody is let in."""
        ...

    async def serve(self, sock: Any, *, ssl: Any = None, entrance: Any = ..., ws: bool = False) -> int:
        """Listen on a bound `socket.socket`, with an `SSLContext` or without; its port (0: a unix socket). `entrance`
        says who may use it (the engine's own record). Raises `ValueError` for what the engine cannot do."""
        ...

    def topics_changed(self) -> None:
        """Capabilities read other topics now: their traffic classes may be others, and more may be to hear."""
        ...

    def stop_accepting(self) -> None:
        """No new connections."""
        ...

    def stop_reading(self) -> None:
        """Nothing more from those that are connected."""
        ...

    async def close(self) -> None:
        """Let commits finish and acks get out, then end every connection."""
        ...

    async def ping(self) -> None:
        """Return when a turn of the bus is over."""
        ...

    def stats(self) -> dict[str, int]:
        """How much there is, and how often what happened; names with a dot count what went wrong, by reason."""
        ...

    def facts(self) -> dict[str, object]:
        """What else `status` shows."""
        ...


class Admission(msgspec.Struct, frozen=True):
    """What a client that authenticated may do: topic filters it may publish under, and subscribe within.

    `#` in either is everything but `$` topics. `withheld` are filters that are refused although they lie within
    `subscribe`, each with the reason code that version 5 is told (MQTT 5 §3.9.3; 3.1.1 knows only 0x80).
    """

    who: Principal
    user: str
    publish: tuple[str, ...]
    subscribe: tuple[str, ...]
    withheld: tuple[tuple[str, int], ...] = ()


class Refusal(Enum):
    """Why a client is not let in; each engine says it in the words of its version."""

    CREDENTIALS = "user or password"
    NOT_AUTHORIZED = "not authorized"
    BUSY = "busy: try later"


class Login(msgspec.Struct, frozen=True, kw_only=True):
    """What a client shows when it connects. `via` names the door it came to; `certificate` is the name in its verified
    TLS certificate (a DNS name of it, else its common name), "" without one."""

    user: str
    password: bytes | None = None
    client_id: str = ""
    address: str = ""
    via: str = "mqtt"
    certificate: str = ""


Verdict = Callable[[Admission | Refusal], None]
"""Told once, in the loop."""


class Gatekeeper(Protocol):
    """Decides who may connect by MQTT."""

    def admit(self, login: Login, then: Verdict) -> None:
        """Say `then(…)`: at once, or later (a slow check, a failure that is answered late). Never raises."""
        ...
