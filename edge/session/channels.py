"""Who is connected: live channels, their queues, and which of them an event reaches (design D2a, D20).

Per (aid, device, isolation key of the slot) there is one long channel, the newest, and a few short ones
(spec aun-connect §7.4). Everything here runs in the loop; what waits is `async`.
"""

from __future__ import annotations

import itertools
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, Protocol

from edge.contract.channel import Instance
from edge.contract.errors import Conflict, NonceInvalid, RateLimited, Unavailable
from edge.contract.event import Event, Fanout, Watcher
from edge.contract.limit import Limits, declare
from edge.contract.op import Door
from edge.contract.principal import GUEST, Kind, Principal
from edge.contract.time import SECOND, Clock, wall_ms
from edge.protocol.aun import Hello, isolation_key
from edge.protocol.aun import hello as read_hello
from edge.session.limiter import network
from edge.session.outbound import Outbound

log = logging.getLogger(__name__)

CHANNELS = declare("session.channels", 512, "channels", "open at once, all callers", Unavailable)
GUESTS = declare("session.guests", 256, "channels", "open at once that have not authenticated", RateLimited)
GUESTS_PER_ADDRESS = declare(
    "session.guests_per_address", 192, "channels", "of those from one address (IPv6: one /64)", RateLimited
)
PER_AID = declare("session.channels_per_aid", 32, "channels", "open at once of one AID, all devices", RateLimited)
SHORT = declare("session.short_channels", 10, "channels", "short ones per AID, device and slot", RateLimited)
SHORT_IDLE = declare("session.short_idle_ms", 600_000, "ms", "the longest a short channel may idle; closes 4014", None)
WATCHES = declare("session.watches", 256, "watches", "of one channel", RateLimited)
FLUSH = declare("session.flush_ms", 2000, "ms", "a closing channel may take to send what it has queued", error=None)

REPLACED, GOING_AWAY, OVERFLOW, IDLE = 4009, 1012, 1013, 4014


class Stream(Protocol):
    """What a transport hands in: one peer's frames, as bytes. The seam that tests and tunnels replace (design D17)."""

    async def receive(self) -> bytes | None:
        """The next inbound frame; None when the peer is gone or the stream is closed."""
        ...

    async def send(self, frame: bytes) -> None:
        """Write a frame; returns when there is room for the next. Raises `OSError` when the peer is gone."""
        ...

    def close(self, code: int, reason: str) -> None:
        """Say goodbye behind what is written, then hang up, also on a peer that does not read. Idempotent."""
        ...


class Shows(Protocol):
    """The part of a codec that a channel needs without being asked."""

    def event(self, event: Event, hello: Mapping[str, Any]) -> bytes | None:
        """The frame of an event for a peer that announced `hello`, or None."""
        ...

    def farewell(self, code: int, reason: str, detail: Mapping[str, object]) -> bytes | None:
        """The frame before a close, or None."""
        ...


class LiveChannel:
    """One peer: `contract.channel.Channel`. Made by `Channels.open`; the conversation reads it, anyone may send."""

    def __init__(self, number: int, stream: Stream, codec: Shows, door: Door, clock: Clock, limits: Limits) -> None:
        self._id = f"c{number}"
        self._stream = stream
        self._codec = codec
        self._clock = clock
        self._limits = limits
        self._outbound = Outbound(limits)
        self._closing: tuple[int, str] | None = None
        self._cancel_flush: Callable[[], None] = _nothing
        self._last_event: Event | None = None
        self.principal: Principal = GUEST
        self.address = door.address
        self.base = door.base
        self.nonce = door.nonce
        self.attempts = 0
        self.since_ms = 0
        self.hello: bytes = b""
        self.announced: Mapping[str, Any] = {}
        self.instance: Instance | None = None
        self.watches: dict[tuple[str, str], Callable[[], None]] = {}

    @property
    def id(self) -> str:
        """Unique while the node runs."""
        return self._id

    @property
    def open(self) -> bool:
        """Whether it still takes frames."""
        return self._outbound.open

    @property
    def waiting(self) -> int:
        """Frames not sent yet."""
        return self._outbound.waiting

    def door(self) -> Door:
        """What operations may know about where a request came in."""
        return Door(
            channel=self.id,
            address=self.address,
            base=self.base,
            nonce=self.nonce,
            hello=self.hello,
            attempts=self.attempts,
            since_ms=self.since_ms,
        )

    def send(self, frame: bytes, klass: str) -> bool:
        """Queue a frame; over the limit the channel closes with 1013 and what was queued is dropped."""
        if self._outbound.put(frame, klass):
            return True
        if self._closing is None:
            log.info("channel %s closes: its peer reads too slowly", self.id, extra={"aid": self.principal.aid})
            self._closing = (OVERFLOW, "too slow")
            self._hang_up()
        return False

    def event(self, event: Event) -> None:
        """Show an event, once, however many ways it came."""
        if self._last_event is event or (event.only and event.only != self.id):
            return
        self._last_event = event
        if (frame := self._codec.event(event, self.announced)) is not None:
            self.send(frame, "event")

    def close(self, code: int, reason: str, detail: Mapping[str, object] | None = None) -> None:
        """Say farewell where the codec has one, flush what is queued, close. Idempotent."""
        if self._closing is not None:
            return
        if (frame := self._codec.farewell(code, reason, detail or {})) is not None:
            self._outbound.put(frame, "event")
        self._closing = (code, reason)
        self._outbound.end()
        due = self._clock.now().mono_us + self._limits[FLUSH] * 1000
        self._cancel_flush = self._clock.at(due, self._give_up)

    async def frames(self) -> AsyncIterator[bytes]:
        """Inbound frames until the peer is gone."""
        while (frame := await self._stream.receive()) is not None:
            yield frame

    async def deliver(self) -> None:
        """The one sender. Ends when the channel is closed and flushed, or the peer is gone."""
        try:
            while (frame := await self._outbound.take()) is not None:
                await self._stream.send(frame)
                self._outbound.sent()
        except OSError:
            pass
        finally:
            self._cancel_flush()
            self._hang_up()

    async def room(self) -> bool:
        """Wait until the peer has read enough to be sent more; False when it is gone."""
        return await self._outbound.room()

    async def fits(self, octets: int) -> bool:
        """Wait until a frame of this size can be queued without overflow; False when the peer is gone."""
        return await self._outbound.fits(octets)

    async def flushed(self) -> None:
        """Wait until everything queued is sent, or dropped with the channel."""
        await self._outbound.flushed()

    def gone(self) -> None:
        """The peer hung up."""
        self._closing = self._closing or (1006, "")
        self._hang_up()

    def _give_up(self) -> None:
        self._limits.hit(FLUSH)
        self._hang_up()

    def _hang_up(self) -> None:
        self._outbound.abandon()
        self._stream.close(*(self._closing or (1000, "")))


class _Audiences(Fanout, Protocol):
    def attach_audience(self, watcher: Watcher) -> None: ...


class Channels:
    """Every live channel of the node; its `Presence`."""

    def __init__(self, clock: Clock, limits: Limits) -> None:
        self._clock = clock
        self._limits = limits
        self._numbers = itertools.count(1)
        self._channels: dict[str, LiveChannel] = {}
        self._of: dict[str, dict[str, LiveChannel]] = {}
        self._guests = 0
        self._guests_at: Counter[str] = Counter()
        self._hub: _Audiences | None = None
        self._also_online: Callable[[str], bool] = lambda aid: False
        self.reading = True
        self.on_admitted: list[Callable[[Instance], None]] = []
        """Told once a channel has its identity, behind the answer that says so."""

    def __len__(self) -> int:
        return len(self._channels)

    def attach(self, hub: _Audiences) -> None:
        """Hear events, for audiences and watches."""
        self._hub = hub
        hub.attach_audience(self._tell)

    def attach_availability(self, online: Callable[[str], bool]) -> None:
        """Ask this too whether an AID is online: a device's availability topic says so (settled G19)."""
        self._also_online = online

    def open(self, stream: Stream, codec: Shows, door: Door, who: Principal = GUEST) -> LiveChannel:
        """A channel for a stream just accepted. Raises `Unavailable`, `RateLimited` when there are too many."""
        if not self.reading:
            raise Unavailable("the node is stopping")
        if "*" not in who.scopes and len(self._channels) >= self._limits[CHANNELS]:
            raise self._limits.refuse(CHANNELS)
        if who.kind is Kind.GUEST and self._guests >= self._limits[GUESTS]:
            raise self._limits.refuse(GUESTS)
        if who.kind is Kind.GUEST and self._guests_at[network(door.address)] >= self._limits[GUESTS_PER_ADDRESS]:
            raise self._limits.refuse(GUESTS_PER_ADDRESS)
        channel = LiveChannel(next(self._numbers), stream, codec, door, self._clock, self._limits)
        channel.principal = who
        self._count_guest(channel, 1)
        self._channels[channel.id] = channel
        return channel

    def admit(self, channel: LiveChannel, who: Principal, hello: bytes, announced: Mapping[str, Any]) -> None:
        """The channel now speaks for `who`. An older long channel of the same slot is replaced (§7.4).

        Its challenge is used up. Raises `NonceInvalid` when it already speaks for somebody else, `RateLimited` over a
        quota, `Conflict` when the AID's other channels use another delivery mode; the channel then stays what it was.
        """
        if channel.principal.kind is not Kind.GUEST and channel.principal.aid != who.aid:
            raise NonceInvalid(f"this connection is {channel.principal.aid}'s: open another for {who.aid}")
        found = read_hello(announced)
        others = [one for one in self._of.get(who.aid, {}).values() if one is not channel]
        same = [one for one in others if _slot(one.principal) == _slot(who)]
        replaced = [one for one in same if found.long and one.instance is not None and one.instance.long]
        self._check_quota(found, same, [one for one in others if one not in replaced])
        self._count_guest(channel, -1)
        self._forget(channel)
        channel.principal, channel.hello, channel.announced = who, hello, announced
        channel.nonce = ""
        channel.since_ms = wall_ms(self._clock)
        channel.instance = Instance(
            channel=channel.id,
            aid=who.aid,
            device_id=who.device_id,
            slot=who.slot,
            mode=found.mode,
            routing=found.routing,
            long=found.long,
            peer_pull=found.peer_pull,
        )
        self._of.setdefault(who.aid, {})[channel.id] = channel
        for old in replaced:
            self._forget(old)
            old.close(REPLACED, "replaced", {"device_id": who.device_id, "slot_id": who.slot})

    def drop(self, channel: LiveChannel) -> None:
        """The channel has ended."""
        if self._channels.pop(channel.id, None) is None:
            return
        self._count_guest(channel, -1)
        self._forget(channel)
        for end in channel.watches.values():
            end()
        channel.watches.clear()

    def _count_guest(self, channel: LiveChannel, step: int) -> None:
        """A channel of somebody who has not said who he is comes or goes."""
        if channel.principal.kind is not Kind.GUEST:
            return
        place = network(channel.address)
        self._guests += step
        self._guests_at[place] += step
        if not self._guests_at[place]:
            del self._guests_at[place]

    def watch(self, channel: LiveChannel, places: tuple[tuple[str, str], ...]) -> None:
        """The channel hears events of these (log, key) pairs until it ends. Raises `RateLimited`."""
        fresh = [place for place in places if place not in channel.watches]
        if len(channel.watches) + len(fresh) > self._limits[WATCHES]:
            raise self._limits.refuse(WATCHES)
        for place in fresh:
            if self._hub is not None:
                channel.watches[place] = self._hub.watch(*place, channel.event)

    def online(self, aid: str) -> bool:
        """Whether a long channel, or the device's availability, says so."""
        connected = any(one.instance and one.instance.long for one in self._of.get(aid, {}).values())
        return connected or self._also_online(aid)

    def instances(self, aid: str) -> list[Instance]:
        """The live channels of an AID, oldest first."""
        return [one.instance for one in self._of.get(aid, {}).values() if one.instance is not None]

    def expel(self, aid: str, code: int, reason: str) -> int:
        """Close every channel of an AID; how many."""
        found = list(self._of.pop(aid, {}).values())
        for channel in found:
            channel.close(code, reason)
        return len(found)

    def stop_reading(self) -> None:
        """Take no more channels; requests that still come in are refused with `Unavailable` (design D2a)."""
        self.reading = False

    async def flush(self, deadline_us: int) -> bool:
        """Wait until every queue is empty, at most until `deadline_us`; whether they are."""
        try:
            async with self._clock.until(deadline_us):
                for channel in list(self._channels.values()):
                    await channel.flushed()
        except TimeoutError:
            return False
        return True

    def close_all(self, code: int = GOING_AWAY, reason: str = "restart") -> int:
        """Close every channel, without a farewell for codes below 4000: clients then come back by themselves."""
        found = list(self._channels.values())
        for channel in found:
            channel.close(code, reason)
        return len(found)

    def _tell(self, event: Event) -> None:
        for aid in event.audience:
            for channel in list(self._of.get(aid, {}).values()):
                if channel.instance is not None and channel.instance.long:
                    channel.event(event)

    def _check_quota(self, found: Hello, same: list[LiveChannel], others: list[LiveChannel]) -> None:
        if len(others) >= self._limits[PER_AID]:
            raise self._limits.refuse(PER_AID)
        short = sum(1 for one in same if one.instance is not None and not one.instance.long)
        if not found.long and short >= self._limits[SHORT]:
            raise self._limits.refuse(SHORT, "aid_device_slot")
        modes = {one.instance.mode for one in others if one.instance is not None and one.instance.long}
        if found.long and modes and modes != {found.mode}:
            raise Conflict("delivery_mode_conflict: all connections of an AID use one delivery mode")

    def _forget(self, channel: LiveChannel) -> None:
        """Take a channel out of its AID's, so that nothing more reaches it."""
        mine = self._of.get(channel.principal.aid, {})
        mine.pop(channel.id, None)
        if not mine:
            self._of.pop(channel.principal.aid, None)


def short_idle_us(announced: Mapping[str, Any], limits: Limits) -> int | None:
    """How long a short channel may be quiet (µs); None for a long one."""
    found = read_hello(announced)
    if found.long:
        return None
    asked = found.short_ttl_ms or limits[SHORT_IDLE]
    return min(asked, limits[SHORT_IDLE]) * SECOND // 1000


def _slot(who: Principal) -> tuple[str, str]:
    return who.device_id, isolation_key(who.slot)


def _nothing() -> None:
    pass
