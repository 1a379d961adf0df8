"""The group service as the node sees it: every operation, its timers, and what a new connection is told."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import takewhile

from edge.contract.channel import Instance, Presence
from edge.contract.event import Fanout
from edge.contract.limit import Limits
from edge.contract.op import Spawn
from edge.contract.store import Store, Unit
from edge.contract.time import SECOND, Clock, Stamp, later, wall_us
from edge.services.group import limits as bounds
from edge.services.group.events import EventService
from edge.services.group.identity import IdentityService
from edge.services.group.keys import KeyService
from edge.services.group.legacy import LegacyService
from edge.services.group.lifecycle import LifecycleService
from edge.services.group.members import MemberService
from edge.services.group.minds import MindService
from edge.services.group.room import Known, Room
from edge.services.group.settings import SettingService
from edge.store import group_joins, group_keys, group_logs, groups
from edge.store.keyring import Identity

SWEEP_US = 60 * SECOND
SWEEP_ROWS = 500


class GroupService:
    """Groups. `parts` hold the operations; `known` says which AIDs exist; `issuer` is behind the first dot of every
    group; `base` is where `/pki` is reached."""

    def __init__(
        self,
        node: Store,
        clock: Clock,
        presence: Presence,
        fanout: Fanout,
        spawn: Spawn,
        identity: Identity,
        *,
        issuer: str,
        known: Known,
        limits: Limits,
        base: Callable[[], str] = lambda: "",
    ) -> None:
        room = Room(node, clock, presence, fanout, spawn, identity, limits, issuer=issuer, known=known, base=base)
        self._room, self._limits = room, limits
        self._keys, self._events = KeyService(room), EventService(room)
        self._cancel_sweep: Callable[[], None] | None = None
        self.parts: tuple[object, ...] = (
            LifecycleService(room),
            IdentityService(room),
            MemberService(room),
            SettingService(room),
            self._keys,
            self._events,
            LegacyService(room),
            MindService(room),
        )

    def start(self) -> None:
        """Begin to age messages out; states whose time has come are confirmed."""
        self._sweep()
        self._keys.resume_due()

    def stop(self) -> None:
        """End the timers."""
        if self._cancel_sweep:
            self._cancel_sweep()
        self._keys.stop_due()

    def connected(self, instance: Instance) -> None:
        """A connection of an AID is live: tell it what it missed."""
        self._events.connected(instance)

    def _sweep(self) -> None:
        clock = self._room.clock
        self._cancel_sweep = later(clock, SWEEP_US, self._sweep)
        self._room.spawn(self._age_out())

    async def _age_out(self) -> None:
        """Let messages go that are older than the stated age, and forget what ended long ago."""
        node = self._room.node
        while True:
            found = await node.read(lambda unit: group_logs.oldest(unit, SWEEP_ROWS))
            due = list(takewhile(lambda row: self._aged(row[1]), found))
            if due:
                await node.commit(partial(group_logs.expire, through_id=due[-1][0]))
            if len(due) < SWEEP_ROWS:
                break
        if await node.read(self._stale):
            await node.commit(self._forget)

    def _aged(self, at: Stamp) -> bool:
        clock = self._room.clock
        return wall_us(clock) - clock.wall(at)[0] >= self._limits[bounds.TTL] * SECOND

    def _before_ms(self, unit: Unit) -> int:
        return unit.wall_us // 1000 - self._limits[bounds.KEPT] * 1000

    def _stale(self, unit: Unit) -> bool:
        """Is there anything to forget? A sweep that finds nothing writes nothing."""
        before_ms = self._before_ms(unit)
        return groups.has_old_departures(unit, before_ms) or group_joins.has_old(unit, before_ms)

    def _forget(self, unit: Unit) -> None:
        before_ms = self._before_ms(unit)
        for gid, aid in groups.forget_departures(unit, before_ms):
            group_logs.drop_cursors(unit, gid, aid)
        group_joins.forget(unit, before_ms)
        group_keys.forget_settled(unit, before_ms)
