"""Alarms go to the owner: what changes in a capability of class `alarm` is a message from its device (settled G19).

By state, not by log: the owner is told when a capability's value is not the one that was told last, so nothing has to
be kept of the way there, and after a stop or a power cut the same comparison finds what is still due. A message is on
disk in the owner's inbox before its values count as told; should the power go in between, it comes a second time.

Values that change faster than the owner is told are merged: the newest goes out, with the number of changes, and what
was skipped is counted in the loss ledger. All of them are in the history.
"""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from edge.contract.errors import EdgeError, Unavailable
from edge.contract.limit import Limits, declare
from edge.contract.op import Calls, Spawn
from edge.contract.principal import Kind, Principal
from edge.contract.store import Unit
from edge.contract.time import SECOND
from edge.contract.wire import dumps
from edge.devices.model import Cap, Device, Latest, moment
from edge.devices.registry import Registry
from edge.store import alarms as table
from edge.store.losses import Losses

log = logging.getLogger(__name__)

PACE = declare("devices.alarms_per_minute", 60, "messages", "about alarms to the owner; more are merged", None)

CLASS = "alarm"
RETRY_US = 30 * SECOND
"""How long a message waits that the owner's inbox cannot take now."""
QUIET = (None, False, 0, "", "off", "disarmed", "ok", "clear", "unknown")
"""Values that are no alarm when they are the first that is heard of a capability."""


class _Due(msgspec.Struct):
    """A capability whose owner does not know its value yet, and how often it changed meanwhile."""

    cap: Cap
    latest: Latest
    changes: int = 1


class Alarms:
    """Tells `owner` (an AID; "" tells nobody). Runs in the loop; `counters` says what was sent and what was not."""

    def __init__(
        self, registry: Registry, calls: Calls, spawn: Spawn, losses: Losses, limits: Limits, *, owner: str
    ) -> None:
        self._registry, self._calls, self._spawn = registry, calls, spawn
        self._losses, self._limits, self._owner = losses, limits, owner
        self._clock, self._node = registry.clock, registry.node
        self._told: dict[int, bytes] = {}
        self._due: dict[int, _Due] = {}
        self._busy = False
        self._ready_us = -60 * SECOND
        self.counters: Counter[str] = Counter()
        if owner:
            registry.on_value.append(self._heard)

    async def start(self) -> None:
        """Take up what changed before the last stop and was not told. After `Registry.load`, before the bus."""
        if not self._owner:
            return
        self._told = await self._node.read(table.told)
        caps = {cap.id: cap for cap in self._registry.caps()}
        if gone := self._told.keys() - caps.keys():
            await self._note(lambda unit: table.forget(unit, gone))
        for cap in caps.values():
            if cap.latest is not None:
                self._heard(cap, cap.latest, False)

    def _heard(self, cap: Cap, latest: Latest, live: bool) -> None:
        """A value is on disk (or is one that is never kept)."""
        if cap.component.cap.traffic != CLASS:
            return
        due, raw = self._due.get(cap.id), dumps(latest.value)
        known = dumps(due.latest.value) if due is not None else self._told.get(cap.id)
        if known == raw and not (live and cap.what.kind == "event"):
            return
        if known is None and latest.value in QUIET:
            self._told[cap.id] = raw
            return
        if due is None:
            self._due[cap.id] = _Due(cap, latest)
        else:
            due.latest = latest
            due.changes += 1
        if not self._busy:
            self._busy = True
            self._spawn(self._tell())

    async def _tell(self) -> None:
        """One message per device, the one that waits longest first, until nothing is due."""
        try:
            while self._due:
                await self._pace()
                first = next(iter(self._due.values())).cap.device
                taken = [one for one in self._due.values() if one.cap.device is first]
                for one in taken:
                    del self._due[one.cap.id]
                if not await self._send(first, taken):
                    self._put_back(taken)
                    await self._clock.sleep_until(self._clock.now().mono_us + RETRY_US)
        finally:
            self._busy = False

    async def _pace(self) -> None:
        """A minute's messages may go at once; then one after the other."""
        gap_us = 60 * SECOND // self._limits[PACE]
        now_us = self._clock.now().mono_us
        self._ready_us = max(self._ready_us, now_us - 60 * SECOND) + gap_us
        if self._ready_us > now_us:
            self._limits.hit(PACE)
            await self._clock.sleep_until(self._ready_us)

    async def _send(self, device: Device, taken: list[_Due]) -> bool:
        """Whether it is done with: in the inbox, or given up."""
        values = [(one.cap.id, dumps(one.latest.value)) for one in taken]
        self._told.update(values)  # what comes while this is on its way is compared with it
        who = Principal(Kind.DEVICE, device.aid, frozenset({"message:write"}), "node")
        message = {"to": self._owner, "message_id": _ident(taken), "payload": self._payload(device, taken)}
        try:
            await self._calls.call("message.send", message | {"delivery_mode": "fanout"}, who)
        except EdgeError as error:
            if error.retryable:
                self.counters["waiting"] += 1
                return False
            log.error("the owner %s cannot be told of alarms of %s: %s", self._owner, device.slug, error)
            self._lost(device, sum(one.changes for one in taken), "undeliverable")
        else:
            self.counters["sent"] += 1
            self._lost(device, sum(one.changes - 1 for one in taken), "merged")
        await self._note(lambda unit: table.tell(unit, values))
        return True

    async def _note(self, work: Callable[[Unit], None]) -> None:
        """Write what the next start is to know. Without it that tells the same again, under the same id."""
        try:
            await self._node.commit(work)
        except Unavailable as error:
            log.warning("what the owner was told of alarms cannot be written: %s", error)

    def _put_back(self, taken: list[_Due]) -> None:
        """What could not be told is still due, under what has changed since."""
        for one in taken:
            newer = self._due.get(one.cap.id)
            if newer is not None:
                newer.changes += one.changes
            else:
                self._due[one.cap.id] = one

    def _lost(self, device: Device, count: int, why: str) -> None:
        if count:
            self.counters[why] += count
            self._losses.note(CLASS, why, device.slug, count, log=CLASS)

    def _payload(self, device: Device, taken: list[_Due]) -> Mapping[str, Any]:
        alarms = [self._alarm(one) for one in taken]
        words = ", ".join(f"{one['title']} {_word(one['value'])} {one['unit']}".rstrip() for one in alarms)
        return {
            "type": "event",
            "event": CLASS,
            "device": device.slug,
            "device_aid": device.aid,
            "name": device.title,
            "text": f"{device.title}: {words}",
            "alarms": alarms,
            "auto": True,
        }

    def _alarm(self, one: _Due) -> dict[str, Any]:
        at_us = moment(one.latest, self._clock)
        return {
            "skill": one.cap.skill_id,
            "title": one.cap.what.title,
            "device_class": one.cap.what.device_class,
            "value": one.latest.value,
            "unit": one.cap.what.unit,
            "at": at_us // 1000 if at_us is not None else None,
            "changes": one.changes,
        }


def _ident(taken: list[_Due]) -> str:
    """The same values at the same moments are the same message."""
    text = ",".join(f"{one.cap.id}:{one.latest.at.boot}:{one.latest.at.mono_us}" for one in taken)
    return f"alarm-{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def _word(value: object) -> str:
    return {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)
