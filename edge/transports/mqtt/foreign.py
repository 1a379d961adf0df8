"""The connection to somebody else's broker: supervised, with a named back-off, subscribed anew each time.

aiomqtt neither reconnects nor holds acks back (spec/mqtt.md §6): each connection is a client of its own on the same
persistent session, and every message that it hears is on the way to our disk, not there.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Protocol

import aiomqtt
import msgspec
from paho.mqtt.client import MQTT_CLEAN_START_FIRST_ONLY
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from edge.contract.errors import TooLarge
from edge.contract.time import SECOND, Clock
from edge.protocol.backoff import Backoff, Curve
from edge.protocol.mqtt.reasons import REFUSED, Reason
from edge.protocol.mqtt.topics import within
from edge.store.spool import Spooled
from edge.transports.mqtt.puback import Acks

log = logging.getLogger(__name__)

TIMEOUT_S = 10
"""How long the broker may take to answer anything."""
STABLE_US = 30 * SECOND
"""A connection that lasted so long was a good one: the next failure is a first one."""
SESSION_S = 86_400
"""How long the broker is asked to keep our session while we are away (version 5; 3.1.1 leaves it to the broker)."""
IN_FLIGHT = 10
"""Messages sent and not yet acked by the broker, if it takes so many at once."""
FILTERS_AT_ONCE = 50
"""Filters in one SUBSCRIBE."""

CURVES = {
    "login": Curve(10, 60),
    "tls": Curve(10, 60),
    "version": Curve(10, 60),
    "refused": Curve(1, 60),
    "unreachable": Curve(1, 60),
    "no such host": Curve(2, 60),
    "silent": Curve(1, 60),
    "lost": Curve(1, 60),
    "busy": Curve(5, 60),
}
"""What can go wrong, and how patient it makes us."""

UNTAKEN: dict[int, str] = {
    Reason.NOT_AUTHORIZED: "broker_not_authorized",
    Reason.TOPIC_NAME_INVALID: "broker_topic_name_invalid",
    Reason.PACKET_TOO_LARGE: "broker_packet_too_large",
    Reason.QUOTA_EXCEEDED: "broker_quota_exceeded",
    Reason.PAYLOAD_FORMAT_INVALID: "broker_payload_format_invalid",
}
"""Why a broker did not take a message (MQTT 5 §3.4.2.1), by the reason under which that is declared."""
UNSAID = "broker_refused"
"""The same for every other reason code: unspecified, implementation specific, a packet id in use."""
NEVER = UNTAKEN.keys() - {Reason.QUOTA_EXCEEDED}
"""What it would say again of the same message. Anything else may pass, and is tried again."""
REFUSALS = {"refused": Curve(1, 30)}
"""How long nothing is sent after a refusal that may pass: what comes behind would overtake it, and add to the load."""

_LOGIN = {0x85, 0x86, 0x87, 0x8A, 0x8C, 2, 4, 5}
_VERSION = {0x84, 1}
_BUSY = {0x88, 0x89, 0x97, 0x9F, 3}


class Where(msgspec.Struct, frozen=True, kw_only=True):
    """The broker, and who we are there. `version` is `auto`, `5` or `3.1.1`; `password` is read at each connection."""

    host: str
    port: int
    client_id: str
    username: str = ""
    password: Callable[[], str] = lambda: ""
    tls: ssl.SSLContext | None = None
    version: str = "auto"
    keepalive_s: int = 20


class Outgoing(Protocol):
    """What waits to be sent to the broker."""

    async def following(self) -> Spooled:
        """The next message, once there is one; it is on disk. Whoever takes it calls `sent` or `back`."""
        ...

    def sent(self, one: Spooled) -> None:
        """The broker has it."""
        ...

    def back(self, one: Spooled) -> None:
        """It may not have it: it goes out again, first."""
        ...

    def refused(self, one: Spooled, reason: str, *, again: bool) -> None:
        """The broker has answered that it does not take it. `again`: it may take it later; a PUBLISH of its own."""
        ...


class Leave(Exception):
    """We are to go."""


class Blocking(ssl.SSLSocket):
    """A TLS socket that is closed when its handshake fails; paho leaves it open to the garbage collector."""

    def do_handshake(self, block: bool = False) -> None:
        """Blocking, as paho does it in a thread: every error is the end of the connection."""
        try:
            super().do_handshake(block)
        except BaseException:
            self.close()
            raise


class ForeignBroker:
    """Keeps one connection. `state` is `connected`, or why not; `take` gets each message as it comes, in the loop."""

    def __init__(
        self,
        where: Where,
        clock: Clock,
        draw: Callable[[], float],
        *,
        take: Callable[[aiomqtt.Message], None],
        plan: Callable[[], Collection[str]],
        outgoing: Outgoing,
        begun: Callable[[], None],
        cut: Callable[[], None],
    ) -> None:
        self._where, self._clock, self._take, self._plan = where, clock, take, plan
        if where.tls is not None:
            where.tls.sslsocket_class = Blocking
        self._outgoing, self._begun, self._cut = outgoing, begun, cut
        self.backoff = Backoff(CURVES, draw)
        self._refusals = Backoff(REFUSALS, draw)
        self._silent_until_us = 0
        self._told: set[int] = set()
        """Reason codes of refusals that the log has on this connection; each message of them is in the ledger."""
        self.state = "not tried yet"
        self.version = "5" if where.version == "auto" else where.version
        self.again_us: int | None = None
        """When it is tried again."""
        self.refused: set[str] = set()
        """Filters that the broker does not let us hear."""
        self.connections = 0
        self._client: aiomqtt.Client | None = None
        self._acks: Acks | None = None
        self.hearing: set[str] = set()
        """Filters that the broker has granted on this connection."""
        self._leaving, self._replan = asyncio.Event(), asyncio.Event()
        self.ended = asyncio.Event()

    @property
    def connected(self) -> bool:
        """Whether there is a connection now."""
        return self.state == "connected"

    @property
    def no_local(self) -> bool:
        """Whether the broker leaves out what we publish ourselves (MQTT 5 §3.8.3.1)."""
        return self.version == "5"

    def leave(self) -> None:
        """End the connection and try no more."""
        self._leaving.set()

    def replan(self) -> None:
        """What is to be heard has changed."""
        self._replan.set()

    async def run(self) -> None:
        """Connect, and again, until `leave`."""
        try:
            while not self._leaving.is_set():
                started = self._clock.now().mono_us
                cause = await self._once()
                if self._leaving.is_set():
                    break
                if self._clock.now().mono_us - started > STABLE_US:
                    self.backoff.well()
                if cause == "version" and self._where.version == "auto" and self.version == "5":
                    log.info("the broker at %s does not speak MQTT 5: 3.1.1 from now on", self._name)
                    self.version = "3.1.1"
                    continue
                await self._pause(cause)
        finally:
            self.state = "ended"
            self.ended.set()

    @property
    def _name(self) -> str:
        return f"{self._where.host}:{self._where.port}"

    async def _pause(self, cause: str) -> None:
        wait_us = self.backoff.failed(cause)
        self.state = cause
        self.again_us = self._clock.now().mono_us + wait_us
        told = log.warning if self.backoff.failures == 1 else log.debug
        told("the broker at %s: %s; again in %.1f s", self._name, cause, wait_us / SECOND)
        try:
            async with self._clock.until(self.again_us):
                await self._leaving.wait()
        except TimeoutError:
            pass
        self.again_us = None

    async def _once(self) -> str:
        """One connection, to its end; the cause of that."""
        try:
            await self._connection()
        except OSError as error:
            log.warning("the password for the broker at %s cannot be read: %s", self._name, error)
            return "password file"
        except aiomqtt.MqttError as error:
            return _cause(error, self.connected)
        except ExceptionGroup as group:
            found = _first(group)
            if isinstance(found, aiomqtt.MqttError):
                return _cause(found, self.connected)
            if not isinstance(found, Leave):
                log.error("the connection to the broker at %s failed", self._name, exc_info=found)
                return "internal"
        except Exception:
            log.exception("the connection to the broker at %s failed", self._name)
            return "internal"
        finally:
            if self.connected:
                self._cut()
            self.state = "lost"
            self._client = self._acks = None
        return "lost"

    async def _connection(self) -> None:
        client = self._made()
        acks = Acks(client, self._clock, TIMEOUT_S)
        try:
            async with client:
                await self._stay(client, acks)
        finally:
            acks.hang_up()  # aiomqtt leaves a connection open whose CONNACK it did not wait for any longer

    async def _stay(self, client: aiomqtt.Client, acks: Acks) -> None:
        self.connections += 1
        self.state, self.hearing, self._told = "connected", set(), set()
        self._client, self._acks = client, acks
        self._begun()
        log.info("connected to the broker at %s with MQTT %s", self._name, self.version)
        async with asyncio.TaskGroup() as group:
            group.create_task(self._until_leaving())
            group.create_task(self._subscriptions(client))
            group.create_task(self._sending(acks, group))
            async for _ in client.messages:  # nothing is queued there; it ends with the connection
                pass

    def _made(self) -> aiomqtt.Client:
        where, five = self._where, self.version == "5"
        properties = None
        if five:
            properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            properties.SessionExpiryInterval = SESSION_S
        client = aiomqtt.Client(
            where.host,
            where.port,
            username=where.username or None,
            password=where.password() or None,
            identifier=where.client_id,
            protocol=aiomqtt.ProtocolVersion.V5 if five else aiomqtt.ProtocolVersion.V311,
            clean_session=None if five else False,
            clean_start=False if five else MQTT_CLEAN_START_FIRST_ONLY,
            properties=properties,
            keepalive=where.keepalive_s,
            timeout=TIMEOUT_S,
            tls_context=where.tls,
            queue_type=_straight(self._take),
            logger=logging.getLogger("edge.transports.mqtt.paho"),
        )
        client.pending_calls_threshold = IN_FLIGHT + FILTERS_AT_ONCE
        return client

    async def _until_leaving(self) -> None:
        await self._leaving.wait()
        raise Leave

    # Hearing.

    async def _subscriptions(self, client: aiomqtt.Client) -> None:
        """Subscribe to the plan; again to what is new in it, whenever it changes."""
        while True:
            self._replan.clear()
            wanted = [one for one in cover(self._plan()) if one not in self.hearing and one not in self.refused]
            for some in _chunks(wanted):
                await self._subscribe(client, some)
            await self._replan.wait()

    async def _subscribe(self, client: aiomqtt.Client, filters: Sequence[str]) -> None:
        asked = [(one, SubscribeOptions(qos=1, noLocal=True)) for one in filters]
        codes = await client.subscribe(asked if self.no_local else [(one, 1) for one in filters])
        _heed_cancellation()
        for one, code in zip(filters, codes, strict=False):
            if _number(code) >= REFUSED:
                self.refused.add(one)
                log.warning("the broker at %s does not let us hear %s: %s", self._name, one, code)
            else:
                self.hearing.add(one)

    # Sending.

    async def _sending(self, acks: Acks, group: asyncio.TaskGroup) -> None:
        """Send what waits, in order, a few at once; nothing for a while after a refusal that may pass."""
        slots = asyncio.Semaphore(min(IN_FLIGHT, acks.at_once))
        while True:
            await slots.acquire()
            one = await self._outgoing.following()
            while self._clock.now().mono_us < self._silent_until_us:
                self._outgoing.back(one)
                await self._clock.sleep_until(self._silent_until_us)
                one = await self._outgoing.following()
            sending = group.create_task(acks.publish(one.topic, one.payload, retain=one.retain))
            sending.add_done_callback(partial(self._answered, one, slots))
            if self._refusals.failures:
                await asyncio.wait([sending])  # alone, until the broker takes something

    def _answered(self, one: Spooled, slots: asyncio.Semaphore, sending: asyncio.Task[int]) -> None:
        """A message was sent, or not. Not a `finally` in the task: one that is cancelled before its first step, as when
        the connection ends in the turn in which it was made, has none."""
        slots.release()
        if sending.cancelled() or sending.exception() is not None:
            self._outgoing.back(one)
            return
        code = sending.result()
        if code >= REFUSED:
            self._not_taken(one, code)
            return
        if self._clock.now().mono_us >= self._silent_until_us:
            self._refusals.well()
        self._outgoing.sent(one)

    def _not_taken(self, one: Spooled, code: int) -> None:
        """The broker answered with a refusal: for good, or nothing is sent for a while."""
        now_us, again = self._clock.now().mono_us, code not in NEVER
        if again and now_us >= self._silent_until_us:  # those that were in flight together are one refusal
            self._silent_until_us = now_us + self._refusals.failed("refused")
        told = log.debug if code in self._told else log.warning
        reason = UNTAKEN.get(code, UNSAID)
        told("the broker at %s did not take a message on %s: 0x%02x, %s", self._name, one.topic, code, reason)
        self._told.add(code)
        self._outgoing.refused(one, reason, again=again)

    async def send0(self, topic: str, payload: bytes) -> None:
        """Send with QoS 0, now or never. Raises `MqttError` when there is no connection, `TooLarge` when the broker
        takes no packet of that size."""
        if self._client is None or self._acks is None:
            raise aiomqtt.MqttError("not connected")
        if not self._acks.fits(topic, payload, 0):
            raise TooLarge("larger than the packets that the broker takes")
        await self._client.publish(topic, payload, qos=0)


def _heed_cancellation() -> None:
    """Raise what was swallowed: before Python 3.12 `asyncio.wait_for`, which the library uses, forgets a cancellation
    that comes together with the answer, and the connection would never be given up."""
    task = asyncio.current_task()
    if task is not None and task.cancelling():
        raise asyncio.CancelledError


def cover(filters: Collection[str]) -> list[str]:
    """Filters without those that lie inside another: a broker may send one message for each that it matches."""
    wide = [one for one in sorted(set(filters)) if "#" in one or "+" in one]
    return [one for one in sorted(set(filters)) if not any(within(one, other) for other in wide if other != one)]


def _chunks(filters: Sequence[str]) -> Iterator[Sequence[str]]:
    for at in range(0, len(filters), FILTERS_AT_ONCE):
        yield filters[at : at + FILTERS_AT_ONCE]


def _straight(take: Callable[[aiomqtt.Message], None]) -> type[asyncio.Queue[aiomqtt.Message]]:
    """A queue that hands each message on at once instead of keeping it: no hop and no task per message."""

    class Straight(asyncio.Queue[aiomqtt.Message]):
        def put_nowait(self, item: aiomqtt.Message) -> None:
            take(item)

    return Straight


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    """What a group of tasks ended for: an error of the connection rather than our own leaving."""
    leaves = [error for error in group.exceptions if not isinstance(error, BaseExceptionGroup)]
    nested = [_first(error) for error in group.exceptions if isinstance(error, BaseExceptionGroup)]
    return sorted([*leaves, *nested], key=lambda error: isinstance(error, aiomqtt.MqttError | Leave))[0]


def _cause(error: aiomqtt.MqttError, connected: bool) -> str:
    """The name of what went wrong."""
    if connected:
        return "lost"
    if isinstance(error, aiomqtt.MqttCodeError):
        return next((name for name, codes in _CODES.items() if _number(error.rc) in codes), "refused")
    before = error.__context__
    if isinstance(before, ssl.SSLError):
        return "tls"
    if isinstance(before, ConnectionRefusedError):
        return "refused"
    if isinstance(before, socket.gaierror):
        return "no such host"
    if isinstance(before, TimeoutError) or before is None:
        return "silent"
    return "unreachable"


def _number(code: object) -> int:
    """A reason code, however the library gives it."""
    value = code.value if isinstance(code, ReasonCode) else code
    return value if isinstance(value, int) else 0x80


_CODES = {"login": _LOGIN, "version": _VERSION, "busy": _BUSY}
