"""An operation, declared once with its names on every wire (design D3).

Dispatcher, JSON Schema, reference, CLI and contract tests all read these declarations.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, ClassVar, Generic, Protocol, TypeVar

import msgspec

from edge.contract.errors import EdgeError
from edge.contract.principal import Principal

P = TypeVar("P")
F = TypeVar("F", bound=Callable[..., Any])


class Params(msgspec.Struct, frozen=True, kw_only=True):
    """Base of every params record. Unknown fields are tolerated: SDKs add some.

    `ALIASES` maps other spellings to the field (`{"limit": "size"}`); a surface folds them before decoding.
    """

    ALIASES: ClassVar[Mapping[str, str]] = {}


class Empty(Params, frozen=True, kw_only=True):
    """No parameters."""


class Door(msgspec.Struct, frozen=True):
    """What the transport knows about where a request came in; never a secret, never the socket.

    `channel` is the id of the channel ("" for one-shot HTTP), `address` the peer's IP, `base` the URL the caller
    used (`https://host:port`), `nonce` the challenge of this very socket, `hello` what `auth.connect` announced
    (JSON), `attempts` how often this socket failed to authenticate, `since_ms` when the channel authenticated (ms
    since 1970 UTC, 0: not yet, or no channel).
    """

    channel: str = ""
    address: str = ""
    base: str = ""
    nonce: str = ""
    hello: bytes = b""
    attempts: int = 0
    since_ms: int = 0


class Call(msgspec.Struct, Generic[P], kw_only=True):
    """One request after its codec: who, what, with which params, over which wire.

    `raw` are the params bytes as received (signatures hash them); `prepared` is what the op's `before` returned.
    """

    who: Principal
    op: str
    params: P
    raw: bytes = b""
    surface: str = ""
    dialect: str = ""
    door: Door = Door()
    trace: str = ""
    prepared: Any = None


class Outcome(msgspec.Struct, kw_only=True):
    """An answer that also changes who the channel is, or closes it (after the answer has left)."""

    result: object
    become: Principal | None = None
    hello: bytes = b""
    close: int | None = None
    watch: tuple[tuple[str, str], ...] = ()
    """(log, key) pairs whose events this channel hears from now on, until it ends."""


class Op(msgspec.Struct, frozen=True, kw_only=True):
    """One operation.

    name: its own name, `<area>.<verb>`.
    scope: what the caller must hold; "" is open, `any` needs some identity.
    wire: surface → its names there. Surfaces: `aun`, `edge` (control socket, CLI), `a2a`, later `aip`, `aibridge`.
    writes: True → `run(call, unit)` on the writer thread of `file`, answered after the commit;
            False → `async run(call)` in the loop.
    before: async, in the loop, before a writing op enters its unit: reads loop state, does slow cryptography; its
            result is `call.prepared`.
    once: the param that makes a repeat by the same caller the same call; its answer is kept `once_s` seconds.
    params, result: record types, taken from the annotations of `run`.
    doc: first paragraph of the docstring, the reference text.
    """

    name: str
    scope: str
    wire: Mapping[str, tuple[str, ...]]
    raises: tuple[type[EdgeError], ...] = ()
    writes: bool = False
    file: str = "node"
    once: str = ""
    once_s: int = 600
    params: type[Any] = Empty
    result: type[Any] = object
    doc: str = ""
    run: Callable[..., Any] | None = None
    before: Callable[[Any], Awaitable[Any]] | None = None


class Calls(Protocol):
    """How one area asks another: by operation name, never by import."""

    async def call(self, op: str, params: object, who: Principal) -> Any:
        """Run an operation with a params record (or a plain mapping) as `who`; its result."""
        ...


Spawn = Callable[[Coroutine[Any, Any, None]], None]
"""Starts a coroutine in the node's TaskGroup; what it raises is logged, counted and does not end the node."""


def op(
    name: str,
    *,
    scope: str,
    wire: Mapping[str, tuple[str, ...]],
    raises: tuple[type[EdgeError], ...] = (),
    writes: bool = False,
    file: str = "node",
    once: str = "",
    once_s: int = 600,
    before: str = "",
) -> Callable[[F], F]:
    """Declare a method as an operation; `before` names another method of the same object."""

    def mark(run: F) -> F:
        run.__op__ = {  # type: ignore[attr-defined]
            "name": name,
            "scope": scope,
            "wire": dict(wire),
            "raises": raises,
            "writes": writes,
            "file": file,
            "once": once,
            "once_s": once_s,
            "before": before,
            "doc": " ".join((run.__doc__ or "").split("\n\n")[0].split()),
        }
        return run

    return mark
