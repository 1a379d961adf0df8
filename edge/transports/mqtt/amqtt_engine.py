"""Engine `amqtt`: the stock broker of that package inside the node (design D4); for comparison, and for those with
plugins for it. It acks before the node has seen a message and keeps nothing over a restart: promise P1 does not hold.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
import ssl
from collections import deque
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from msgspec import structs

from edge.contract.bus import Admission, Done, Gatekeeper, Login, Publish, Refusal, Sink, after
from edge.contract.limit import Limits
from edge.contract.op import Spawn
from edge.contract.principal import PLAIN_LAN, Kind
from edge.contract.time import SECOND, Clock, later
from edge.protocol.mqtt import limits as bounds
from edge.protocol.mqtt.rights import Rights
from edge.protocol.mqtt.topics import valid_topic
from edge.store.losses import Losses
from edge.transports.mqtt.tcp import Entrance

if TYPE_CHECKING:
    from edge.transports.mqtt.amqtt_porter import Reader, Writer

logger = logging.getLogger(__name__)

MISSES = (
    "acks leave before the node has a message on disk, or has seen it",
    "nothing is kept over a restart: no retained message, no session, no queue",
    "MQTT 5 is refused; no $share, no $SYS from the node",
    "a message is delivered with the QoS of the subscription, whatever it was published with",
    "subscribing again with another QoS changes nothing",
    "QoS 1 and 2 messages in flight are dropped after 5 s or with the connection, also for persistent sessions",
    "queued messages arrive with RETAIN set",
    "retained messages of other clients' subscriptions are sent at CONNECT (those that may be read)",
    "a client whose connection hangs is never given up: its will waits for TCP",
    "a CONNECT with a wrong password closes the connection that has this client id",
    "malformed packets are not always answered by closing the connection",
    "no bound on queues: a slow or absent client costs memory",
)
"""What devices miss here (spec/mqtt.md §4); shown by `status`, tested as known misses."""


class _Guest:
    """One socket, and who came by it."""

    __slots__ = ("address", "admission", "client_id", "reader", "rights", "session", "via", "will", "writer")

    def __init__(self, reader: Reader, writer: Writer, address: str, via: str) -> None:
        self.reader, self.writer, self.address, self.via = reader, writer, address, via
        self.admission: Admission | None = None
        self.rights: Rights | None = None
        self.client_id = ""
        self.will: tuple[str, bytes, int, bool] | None = None
        self.session: Any = None

    def silence(self) -> None:
        """No will any more, here or in amqtt."""
        self.will = None
        if self.session is not None:
            self.session.will_flag = False


_GUEST: ContextVar[_Guest] = ContextVar("guest")
"""Whose connection is being served: amqtt's own record of a returning client keeps the address of the first."""


class AmqttEngine:
    """Implements `edge.contract.bus.BusEngine` with amqtt's `Broker`, an external listener and a plugin of ours."""

    listens = True
    promise = "none: acks leave before the node has a message, and nothing is kept over a restart"

    def __init__(
        self,
        *,
        clock: Clock,
        gatekeeper: Gatekeeper,
        limits: Limits,
        losses: Losses,
        spawn: Spawn,
        traffic: Callable[[str], str] = lambda topic: "telemetry",
        closed: Callable[[str], bool] = lambda topic: False,
    ) -> None:
        """`closed` says which topics are shut to clients of `mqtt.plain_lan`.

        Raises `ModuleNotFoundError` without the extra.
        """
        from edge.transports.mqtt import amqtt_porter

        self._porter = amqtt_porter
        self._clock, self._gatekeeper, self._limits = clock, gatekeeper, limits
        self._losses, self._spawn, self._traffic, self._closed = losses, spawn, traffic, closed
        self._loop = asyncio.get_running_loop()
        self._word = secrets.token_hex(8)
        self._broker: Any = None
        self._context: Any = None
        self._sinks: list[Sink] = []
        self._batch: list[Publish] = []
        self._awaited: list[tuple[int, Done]] = []
        self._turn_over: list[Callable[[], None]] = []
        self._scheduled = False
        self._servers: list[asyncio.Server] = []
        self._guests: set[_Guest] = set()
        self._clients: dict[str, _Guest] = {}
        self._outgoing: deque[Publish] = deque()
        self._filled, self._stopping, self._pumped = asyncio.Event(), False, asyncio.Event()
        self._counters: dict[str, int] = {}
        self._uncommitted = 0

    # The bus.

    def attach(self, sink: Sink) -> None:
        """Add a sink."""
        self._sinks.append(sink)

    def publish(self, message: Publish, done: Done | None = None) -> None:
        """Publish from the host: `edge.contract.bus.Bus.publish`. On disk is what the sinks keep: amqtt itself keeps
        nothing there."""
        if not valid_topic(message.topic):
            raise ValueError(f"not a topic name: {message.topic!r}")
        if done is not None:
            self._awaited.append((len(self._batch), after(len(self._sinks), done)))
        self._take(message)
        self._outgoing.append(message)
        self._filled.set()

    def kept(self, wanted: str) -> Iterator[Publish]:
        """Nothing: amqtt has them, without who published them."""
        return iter(())

    def expel(self, user: str) -> int:
        """Close every connection of a user; amqtt has no public way to forget its sessions."""
        mine = [guest for guest in self._guests if guest.admission and guest.admission.user == user]
        for guest in mine:
            guest.silence()
            guest.admission = None
            guest.writer.abort()
        return len(mine)

    def hang_up(self, user: str) -> int:
        """Close a user's connections; how many."""
        mine = [guest for guest in self._guests if guest.admission and guest.admission.user == user]
        for guest in mine:
            guest.writer.abort()
        return len(mine)

    def topics_changed(self) -> None:
        """Nothing: everything is heard, and classes are looked up as they are needed."""

    # Life.

    async def load(self) -> None:
        """Start the broker, without a listener of its own."""
        from amqtt.broker import Broker

        logging.getLogger("amqtt").setLevel(logging.WARNING)
        logging.getLogger("transitions").setLevel(logging.WARNING)
        self._porter.DESKS[self._word] = self
        self._broker = Broker(
            {
                "listeners": {"default": {"type": "external"}},
                "session_expiry_interval": self._limits[bounds.SESSION_EXPIRY_S],
                "plugins": {self._porter.PATH: {"desk": self._word}},
            }
        )
        await self._broker.start()
        self._spawn(self._pump())

    async def serve(
        self,
        sock: socket.socket,
        *,
        ssl: ssl.SSLContext | None = None,
        entrance: Entrance | None = None,
        ws: bool = False,
    ) -> int:
        """Listen on a bound TCP socket; its port. Raises `ValueError` for WebSocket and unix sockets."""
        if ws:
            raise ValueError("the amqtt engine does not listen for WebSocket")
        if sock.family == socket.AF_UNIX:
            raise ValueError("the amqtt engine does not listen on unix sockets")

        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await self._accepted(reader, writer, entrance or Entrance())

        server = await asyncio.start_server(accept, sock=sock, ssl=ssl, backlog=256)
        self._servers.append(server)
        port: int = sock.getsockname()[1]
        return port

    def stop_accepting(self) -> None:
        """Close the listeners; connections go on."""
        for server in self._servers:
            server.close()

    def stop_reading(self) -> None:
        """Nothing: amqtt has no way to read no more."""

    async def close(self) -> None:
        """Let commits finish, then end the broker."""
        self.stop_accepting()
        end = self._clock.now().mono_us + 2 * SECOND
        while (self._batch or self._uncommitted or self._outgoing) and self._clock.now().mono_us < end:
            await self.ping()
            await self._clock.sleep_until(self._clock.now().mono_us + SECOND // 200)
        self._stopping = True
        self._filled.set()
        if self._broker is not None:
            await self._pumped.wait()
            for guest in self._guests:
                guest.silence()
            await self._broker.shutdown()
        for guest in list(self._guests):
            guest.writer.abort()
        self._porter.DESKS.pop(self._word, None)

    async def ping(self) -> None:
        """Return when a turn of the bus is over."""
        over = asyncio.Event()
        self._turn_over.append(over.set)
        self._need_turn()
        await over.wait()

    def stats(self) -> dict[str, int]:
        """How much there is, and how often what happened."""
        context = self._context
        return {
            "connections": sum(guest.admission is not None for guest in self._guests),
            "sessions": sum(1 for _ in context.sessions) if context else 0,
            "subscriptions": sum(len(some) for some in context.subscriptions.values()) if context else 0,
            "retained": len(context.retained_messages) if context else 0,
            "queued": len(self._outgoing),
            "inflight": 0,
            "uncommitted": self._uncommitted,
            **self._counters,
        }

    def facts(self) -> dict[str, object]:
        """What devices miss."""
        return {"misses": list(MISSES)}

    # Sockets.

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, entrance: Entrance) -> None:
        """One connection, to its end; its socket is closed whatever amqtt makes of it."""
        out = self._porter.Writer(writer)
        into = self._porter.Reader(reader, self._limits[bounds.PACKET_OCTETS], out.abort)
        guest = _Guest(into, out, writer.get_extra_info("peername")[0], entrance.via)
        cancel = later(self._clock, self._limits[bounds.CONNECT_S] * SECOND, lambda: self._silent(guest))
        try:
            if self._has_room(guest.address) and entrance.admits(guest.address):
                self._guests.add(guest)
                _GUEST.set(guest)
                await self._broker.external_connected(guest.reader, guest.writer, "default")
        except Exception as error:
            self._count("failed.connection")
            logger.debug("a connection of amqtt ended: %r", error)
        finally:
            cancel()
            self._guests.discard(guest)
            self._note_losses(guest)
            guest.writer.abort()

    def _has_room(self, address: str) -> bool:
        if len(self._guests) >= self._limits[bounds.CONNECTIONS]:
            self._limits.hit(bounds.CONNECTIONS)
            return False
        same = sum(guest.address == address for guest in self._guests)
        if same >= self._limits[bounds.PER_ADDRESS] and address not in ("127.0.0.1", "::1"):
            self._limits.hit(bounds.PER_ADDRESS)
            return False
        return True

    def _silent(self, guest: _Guest) -> None:
        if guest.admission is None:
            self._limits.hit(bounds.CONNECT_S)
            guest.writer.abort()

    def _note_losses(self, guest: _Guest) -> None:
        if guest.reader.too_large:
            self._limits.hit(bounds.PACKET_OCTETS)
            self._count("fault.packet_too_large")
        if guest.writer.withheld:
            self._count("withheld", guest.writer.withheld)

    # What the plugin asks and tells.

    def met(self, context: Any) -> None:
        """The broker's context."""
        self._context = context

    async def admit(self, session: Any) -> bool:
        """Whether a client may come in: known, and with a will that it may publish."""
        guest = _GUEST.get()
        password = session.password.encode() if isinstance(session.password, str) else session.password
        login = Login(
            user=session.username or "",
            password=password,
            client_id=session.client_id or "",
            address=guest.address,
            via=guest.via,
        )
        verdict: asyncio.Future[Admission | Refusal] = self._loop.create_future()
        self._gatekeeper.admit(login, lambda found: None if verdict.done() else verdict.set_result(found))
        found = await verdict
        if isinstance(found, Refusal):
            self._count("refused_connect.not_authorized")
            return False
        rights = Rights(found, session.client_id or "", self._closed if guest.via == PLAIN_LAN else None)
        will = _will_of(session)
        if will is not None and not rights.may_publish(will[0]):
            self._count("refused_connect.will_not_authorized")
            return False
        who = found.who if guest.via == "mqtt" else structs.replace(found.who, via=guest.via)
        guest.admission, guest.rights = structs.replace(found, who=who), rights
        guest.writer.rights, guest.client_id, guest.will = rights, session.client_id or "", will
        guest.session = session
        before = self._clients.get(guest.client_id)
        if before is not None and session.clean_session:
            before.writer.abort()  # amqtt itself takes over persistent sessions only
        self._clients[guest.client_id] = guest
        return True

    def rights(self, session: Any) -> Rights | None:
        """What a client may do, by the last connection of its id."""
        guest = self._clients.get(session.client_id)
        return None if guest is None else guest.rights

    def heard(self, client_id: str, message: Any) -> None:
        """A client published."""
        guest = _GUEST.get()
        if guest.admission is None:  # expelled while amqtt had this in hand
            return
        packet = message.publish_packet
        retain = bool(packet is not None and packet.retain_flag)
        who, at = guest.admission.who, self._clock.now()
        self._take(Publish(message.topic, bytes(message.data or b""), message.qos or 0, retain, who, at))

    def connected(self, session: Any) -> None:
        """A client is in."""
        self._count("connected")

    def goodbye(self, session: Any) -> None:
        """No will any more (MQTT-3.1.2-10)."""
        _GUEST.get().will = None

    def left(self, session: Any) -> None:
        """amqtt has published the will of a client that went without a word, past every plugin; the sinks hear it."""
        guest = _GUEST.get()
        if self._clients.get(guest.client_id) is guest and session.clean_session:
            del self._clients[guest.client_id]
        if guest.admission is None:
            return
        if guest.will is not None and not self._stopping:
            topic, payload, qos, retain = guest.will
            self._take(Publish(topic, payload, qos, retain, guest.admission.who, self._clock.now()))
        guest.will = None

    # Turns.

    async def _pump(self) -> None:
        """Hand the host's messages to the broker, in order."""
        try:
            while not self._stopping:
                while self._outgoing:
                    message = self._outgoing.popleft()
                    await self._broker.internal_message_broadcast(message.topic, message.payload, message.qos)
                    if message.retain:
                        await self._context.retain_message(message.topic, message.payload, message.qos)
                self._filled.clear()
                await self._filled.wait()
        finally:
            self._pumped.set()

    def _take(self, message: Publish) -> None:
        self._batch.append(message)
        self._need_turn()

    def _need_turn(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        batch, self._batch = self._batch, []
        awaited, self._awaited = self._awaited, []
        for sink in self._sinks if batch else ():
            self._hand_over(batch, sink, awaited)
        over, self._turn_over = self._turn_over, []
        for call in over:
            call()

    def _hand_over(self, batch: list[Publish], sink: Sink, awaited: list[tuple[int, Done]]) -> None:
        """No client's ack waits for the sink; what it could not keep is declared lost. The host is told if it waits."""
        kept: list[int] = []

        def done(error: BaseException | None) -> None:
            self._uncommitted -= len(kept)
            for at, told in awaited:
                if at in kept:
                    told(error)
            for at in kept if error is not None else ():
                if batch[at].who.kind is Kind.DEVICE:
                    self._count("dropped.unstored")
                    self._losses.note(self._traffic(batch[at].topic), "unstored", batch[at].who.device_id)

        try:
            kept += sink(batch, done)
        except Exception as error:
            logger.exception("a sink of the bus raised")
            for _, told in awaited:
                told(error)
            return
        self._uncommitted += len(kept)
        for at, told in awaited:
            if at not in kept:
                told(None)

    def _count(self, name: str, times: int = 1) -> None:
        self._counters[name] = self._counters.get(name, 0) + times


def _will_of(session: Any) -> tuple[str, bytes, int, bool] | None:
    if not session.will_flag or not session.will_topic:
        return None
    return session.will_topic, bytes(session.will_message or b""), session.will_qos or 0, bool(session.will_retain)
