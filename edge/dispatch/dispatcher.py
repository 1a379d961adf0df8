"""May they, is it well formed, was it done before: then do it, and answer after the commit."""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Mapping
from typing import Any

import msgspec

from edge.contract.errors import (
    Conflict,
    EdgeError,
    Internal,
    InvalidParams,
    MethodNotFound,
    NotAuthenticated,
    NotPermitted,
    SwitchedOff,
)
from edge.contract.op import Call, Door, Op, Outcome
from edge.contract.principal import Kind, Principal
from edge.contract.store import Store, Unit
from edge.contract.time import SECOND
from edge.contract.wire import dumps
from edge.dispatch.absent import absent
from edge.dispatch.table import OpTable

log = logging.getLogger(__name__)
audit = logging.getLogger("edge.audit")


class Dispatcher:
    """Runs operations for every surface. One per node.

    `calls` counts (operation, outcome); outcome is `ok` or the error's class name.
    """

    def __init__(self, table: OpTable, stores: Mapping[str, Store]) -> None:
        self.table = table
        self._stores = stores
        self.calls: Counter[tuple[str, str]] = Counter()

    def find(self, surface: str, name: str) -> Op | None:
        """The operation that `name` means on `surface`."""
        return self.table.find(surface, name)

    async def call(
        self,
        surface: str,
        name: str,
        params: bytes | memoryview | msgspec.Raw,
        who: Principal,
        *,
        dialect: str = "",
        door: Door | None = None,
        trace: str = "",
    ) -> Outcome:
        """Run what `name` means on `surface`. `params` is JSON that has passed `contract.wire.loads`.

        Raises `MethodNotFound`, `SwitchedOff`, `NotAuthenticated`, `NotPermitted`, `InvalidParams`, and what the
        operation declares.
        """
        op = self._found(surface, name)
        raw = bytes(params) or b"{}"
        return await self._run(op, raw, who, surface=surface, dialect=dialect, door=door or Door(), trace=trace)

    async def run(self, op: str, params: object, who: Principal) -> Any:
        """Run an operation by its own name, as one area asks another; its result."""
        try:
            found = self.table.get(op)
        except KeyError:
            raise MethodNotFound(f"no operation {op} here") from None
        outcome = await self._run(found, dumps(params), who, surface="", dialect="", door=Door(), trace="")
        return outcome.result

    def permitted(self, surface: str, name: str, who: Principal) -> Op:
        """The operation that a call would run, if the caller may.

        Raises `MethodNotFound`, `SwitchedOff`, `NotAuthenticated`, `NotPermitted`.
        """
        op = self._found(surface, name)
        _permit(op, who)
        return op

    def check(self, op: Op, params: bytes | msgspec.Raw) -> None:
        """Would these params be read? Raises `InvalidParams`."""
        _decode(op, bytes(params) or b"{}")

    def _found(self, surface: str, name: str) -> Op:
        op = self.table.find(surface, name)
        if op is not None:
            return op
        if off := self.table.off(surface, name):
            raise SwitchedOff(f"{off} is switched off on this node", data={"disabled": off})
        entry, reason = absent(surface, name)
        if entry:
            raise MethodNotFound(reason, data={"absent": entry})
        raise MethodNotFound(f"method not found: {name[:80]}")

    async def _run(
        self, op: Op, raw: bytes, who: Principal, *, surface: str, dialect: str, door: Door, trace: str
    ) -> Outcome:
        try:
            _permit(op, who)
            call: Call[Any] = Call(
                who=who,
                op=op.name,
                params=_decode(op, raw),
                raw=raw,
                surface=surface,
                dialect=dialect,
                door=door,
                trace=trace,
            )
            result = await (self._write(op, call) if op.writes else self._perform(op, call))
        except EdgeError as error:
            self.calls[op.name, type(error).__name__] += 1
            log.debug("%s by %s via %s: %s", op.name, who.aid or who.kind, who.via, type(error).__name__)
            raise
        except Exception:
            self.calls[op.name, "Internal"] += 1
            log.exception("%s failed for %s", op.name, who.aid or who.kind)
            raise Internal from None
        self.calls[op.name, "ok"] += 1
        log.debug("%s by %s via %s: ok", op.name, who.aid or who.kind, who.via)
        if who.kind is Kind.OPERATOR and _changes(op):
            audit.info("%s%s by %s via %s", op.name, _object(call.params), who.aid or "operator", who.via)
        return result if isinstance(result, Outcome) else Outcome(result=result)

    async def _perform(self, op: Op, call: Call[Any]) -> Any:
        assert op.run is not None  # noqa: S101  the table binds every operation
        return await op.run(call)

    async def _write(self, op: Op, call: Call[Any]) -> Any:
        run, once, store = op.run, _Once(op, call), self._stores[op.file]
        assert run is not None  # noqa: S101  the table binds every operation
        if op.before is not None:
            try:
                call.prepared = await op.before(call)
            except EdgeError:
                # What was answered once is answered again, whatever has become of the world meanwhile.
                if once.key and (kept := await store.read(once.answer)) is not None:
                    return kept
                raise

        def work(unit: Unit) -> Any:
            if (kept := once.answer(unit)) is not None:
                return kept
            result = run(call, unit)
            once.keep(unit, result)
            return result

        return await store.commit(work)


class _Once:
    """The key by which a repeat of a call is known, "" without one, and the answer that it got (design D23)."""

    def __init__(self, op: Op, call: Call[Any]) -> None:
        self._op, self._raw = op, call.raw
        self.key = str(getattr(call.params, op.once, "") or "") if op.once else ""
        self._place = (f"{call.surface}:{op.name}", call.who.aid, self.key)

    def answer(self, unit: Unit) -> msgspec.Raw | None:
        """The answer that is kept. Raises `Conflict` when the key was used for something else."""
        kept = unit.once(*self._place) if self.key else None
        if kept is None:
            return None
        if kept[0] != self._digest:
            raise Conflict(f"{self._op.once} {self.key!r} was already used for another {self._op.name}")
        return msgspec.Raw(kept[1])

    def keep(self, unit: Unit, result: Any) -> None:
        """Keep an answer, in the unit that did the work."""
        if self.key:
            answer = result.result if isinstance(result, Outcome) else result
            unit.keep(*self._place, self._digest, dumps(answer), unit.wall_us + self._op.once_s * SECOND)

    @property
    def _digest(self) -> bytes:
        return hashlib.blake2b(self._raw).digest()


def _changes(op: Op) -> bool:
    """Whether an operation changes anything; some write in units of their own."""
    return op.writes or op.scope.rpartition(":")[2] in ("write", "act", "admin")


def _permit(op: Op, who: Principal) -> None:
    if who.may(op.scope):
        return
    if who.kind is Kind.GUEST:
        raise NotAuthenticated
    raise NotPermitted(f"permission denied: {op.name} needs {op.scope}")


def _decode(op: Op, raw: bytes) -> Any:
    try:
        aliases = getattr(op.params, "ALIASES", {})
        if aliases:
            raw = _fold(raw, aliases)
        return msgspec.json.decode(raw, type=op.params)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise InvalidParams(f"invalid params for {op.name}: {error}") from None


def _fold(raw: bytes, aliases: Mapping[str, str]) -> bytes:
    """Give other spellings of a param its own name; the own name wins when both are there."""
    fields = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
    if not any(alias in fields for alias in aliases):
        return raw
    for alias, name in aliases.items():
        if alias in fields:
            value = fields.pop(alias)
            fields.setdefault(name, value)
    return msgspec.json.encode(fields)


def _object(params: Any) -> str:
    """What a call is about, for the audit: its first text parameter (a name, an id, a topic; never a payload)."""
    first = getattr(params, params.__struct_fields__[0], "") if params.__struct_fields__ else ""
    return f" {first[:64]!r}" if isinstance(first, str) and first else ""
