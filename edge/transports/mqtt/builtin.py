"""Engine `builtin`: our own MQTT broker as the node's bus (design D4)."""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from types import MappingProxyType

import msgspec

from edge.contract.bus import Admission, Done, Gatekeeper, Login, Publish, Refusal, Sink, Verdict
from edge.contract.errors import StorageFull
from edge.contract.limit import Limit, Limits
from edge.contract.store import Store
from edge.contract.time import SECOND, Clock, Stamp
from edge.protocol.mqtt import limits as bounds
from edge.protocol.mqtt.broker import Broker
from edge.protocol.mqtt.codec import Connect
from edge.protocol.mqtt.connection import Connection
from edge.protocol.mqtt.journal import Changes
from edge.protocol.mqtt.reasons import Reason
from edge.protocol.urls import is_loopback
from edge.store import mqtt as tables
from edge.transports.mqtt.restore import Restoring
from edge.transports.mqtt.tcp import UNIX, Entrance, Stream
from edge.transports.mqtt.ws import WebSocketStream

log = logging.getLogger(__name__)

ANYBODY = Entrance()
"""A listener for whoever can log in."""
BACKLOG = 256
"""Connections that the kernel holds until we accept them: all devices come back at once after a restart."""
LAST_WORDS_US = 2 * SECOND
"""How long `close` lets commits finish and acks get out (design D2a)."""
GOODBYE_US = SECOND // 2
"""How long it then waits for clients to hang up."""


class BuiltinEngine:
    """Implements `edge.contract.bus.BusEngine`. Use in the loop; `load` before `listen`."""

    listens = True
    promise = "an ack means on disk, for devices and for subscribers; what is given up is in the loss ledger"

    def __init__(
        self,
        *,
        clock: Clock,
        gatekeeper: Gatekeeper,
        hot: Store,
        limits: Limits,
        traffic: Callable[[str], str] = lambda topic: "telemetry",
        closed: Callable[[str], bool] = lambda topic: False,
        sys_s: int = 10,
        figures: Mapping[str, Callable[[], str]] = MappingProxyType({}),
    ) -> None:
        """`traffic` says the class of a topic: `alarm`, `state` or `telemetry`; what goes first when room runs out.
        `closed` says which topics are shut to clients of `mqtt.plain_lan`.
        `figures` are further `$SYS/broker/` topics; all of them are told every `sys_s` seconds."""
        self._clock, self._gatekeeper, self._hot, self._limits = clock, gatekeeper, hot, limits
        self.loop = asyncio.get_running_loop()
        self._texts = tables.Texts()
        self._broker = Broker(
            now=clock.now,
            ask=self._ask,
            bounds=limits,
            write=self._write,
            schedule=self._schedule,
            random_id=lambda: secrets.token_hex(8),
            traffic=traffic,
        )
        self._broker.closed = closed
        self._broker.sys.every_us = sys_s * SECOND
        self._broker.sys.more.update(figures)
        self.budget, self.unread = limits[bounds.READ_OCTETS], 2 * limits[bounds.WRITE_OCTETS]
        self.greeting = 2 * limits[bounds.CONNECT_OCTETS]
        self._streams: set[Stream] = set()
        self._per_address: dict[str, int] = {}
        self._servers: list[asyncio.Server] = []
        self._turn_over: list[Callable[[], None]] = []
        self._cancel_timer: Callable[[], None] | None = None
        self._armed_us: int | None = None
        self._accepting = self._reading = True

    # The bus.

    def attach(self, sink: Sink) -> None:
        """Add a sink."""
        self._broker.attach(sink)

    def publish(self, message: Publish, done: Done | None = None) -> None:
        """Publish from the host: `edge.contract.bus.Bus.publish`."""
        self._broker.publish(message, done)

    def kept(self, wanted: str) -> Iterator[Publish]:
        """Retained messages: `edge.contract.bus.Bus.kept`."""
        if wanted.startswith("$SYS"):
            self._broker.sys.refresh()
        retained, topics = self._broker.retained, self._broker.retained.find(wanted)[0]
        found = (retained.get(topic, self._broker.now_us) for topic in topics)
        return (msgspec.structs.replace(one.publish, retain=True, live=False) for one in found if one is not None)

    def expel(self, user: str) -> int:
        """Close a user's connections and forget the sessions; how many sessions."""
        return self._broker.expel(user)

    def hang_up(self, user: str) -> int:
        """Close a user's connections; how many."""
        return self._broker.hang_up(user)

    def topics_changed(self) -> None:
        """Capabilities read other topics now: look at the traffic classes again."""
        self._broker.router.generation += 1

    def facts(self) -> dict[str, object]:
        """Nothing that `stats` does not show."""
        return {}

    # Life.

    async def load(self) -> None:
        """Take up what the last run left in hot.db, page by page. Before `listen`."""
        restoring, place = Restoring(self._broker, self._here), tables.Place()
        while True:
            page = await self._hot.read(partial(tables.page, place=place))
            if page.lost:
                await self._lose(page.lost)
            restoring.take(page.stored)
            if page.end is None:
                break
            place = page.end
        restoring.done()

    async def _lose(self, rows: list[tuple[str, tuple[object, ...]]]) -> None:
        """Declare what cannot be read lost, instead of staying down because of it (P2, P3)."""
        log.error("%d rows of MQTT state cannot be read and are declared lost", len(rows))
        try:
            await self._hot.commit(partial(tables.mend, lost=rows))
        except StorageFull:
            log.error("their loss cannot be written now; the next start tries again")

    async def listen(
        self, host: str, port: int, *, ssl: ssl.SSLContext | None = None, entrance: Entrance = ANYBODY
    ) -> int:
        """Open a listener; its port. Raises `OSError`."""
        made = self._maker(entrance)
        return self._opened(await self.loop.create_server(made, host, port, ssl=ssl, backlog=BACKLOG))

    async def serve(
        self, sock: socket.socket, *, ssl: ssl.SSLContext | None = None, entrance: Entrance = ANYBODY, ws: bool = False
    ) -> int:
        """Listen on a bound socket, for MQTT or (`ws`) for MQTT over WebSocket; its port, 0 for a unix socket."""
        made = self._ws_maker(entrance) if ws else self._maker(entrance)
        if sock.family == socket.AF_UNIX:
            self._servers.append(await self.loop.create_unix_server(made, sock=sock, ssl=ssl, backlog=BACKLOG))
            return 0
        return self._opened(await self.loop.create_server(made, sock=sock, ssl=ssl, backlog=BACKLOG))

    async def listen_ws(
        self, host: str, port: int, *, ssl: ssl.SSLContext | None = None, entrance: Entrance = ANYBODY
    ) -> int:
        """Open a listener for MQTT over WebSocket; its port. Raises `OSError`."""
        made = self._ws_maker(entrance)
        return self._opened(await self.loop.create_server(made, host, port, ssl=ssl, backlog=BACKLOG))

    async def listen_unix(self, path: str, *, entrance: Entrance = ANYBODY) -> None:
        """Open a listener on a unix socket; who may open it is a matter of its folder. Raises `OSError`."""
        self._servers.append(await self.loop.create_unix_server(self._maker(entrance), path, backlog=BACKLOG))

    def _maker(self, entrance: Entrance) -> Callable[[], Stream]:
        return lambda: Stream(self, entrance)

    def _ws_maker(self, entrance: Entrance) -> Callable[[], Stream]:
        most = self._limits[bounds.WS_MESSAGE_OCTETS]
        return lambda: WebSocketStream(self, entrance, most)

    def _opened(self, server: asyncio.Server) -> int:
        self._servers.append(server)
        found: int = server.sockets[0].getsockname()[1]
        return found

    def stop_accepting(self) -> None:
        """Close the listeners; connections go on."""
        self._accepting = False
        for server in self._servers:
            server.close()

    def stop_reading(self) -> None:
        """Take no more bytes from anybody."""
        self._reading = False
        for stream in self._streams:
            stream.stop_reading()

    async def close(self) -> None:
        """Let commits finish so that acks get out, then close every connection and wait for the sockets."""
        self.stop_accepting()
        self.stop_reading()
        end = self._clock.now().mono_us + LAST_WORDS_US
        await self._until(lambda: self._broker.quiet, end)
        for connection in list(self._broker.connections):
            connection.close(Reason.SERVER_SHUTTING_DOWN)
        self._broker.declare()
        end = self._clock.now().mono_us + GOODBYE_US
        await self._until(lambda: not self._streams and self._broker.quiet, end)
        for stream in list(self._streams):
            stream.abort()
        await self.ping()
        if self._cancel_timer is not None:
            self._cancel_timer()

    async def _until(self, reached: Callable[[], bool], end_us: int) -> None:
        """Turn until something is so, or until a moment."""
        while not reached() and self._clock.now().mono_us < end_us:
            await self.ping()
            await self._clock.sleep_until(self._clock.now().mono_us + SECOND // 200)

    async def ping(self) -> None:
        """Return when a turn of the bus is over."""
        over = asyncio.Event()
        self._turn_over.append(over.set)
        self._broker.need_turn()
        await over.wait()

    def stats(self) -> dict[str, int]:
        """How much there is, and how often what happened."""
        return {**self._broker.stats(), "sockets": len(self._streams)}

    # What the core needs.

    def _ask(self, connection: Connection, packet: Connect, then: Verdict) -> None:
        stream = connection.wire
        assert isinstance(stream, Stream)  # noqa: S101 - we opened it
        login = Login(
            user=packet.user or "",
            password=packet.password,
            client_id=packet.client_id,
            address=connection.address,
            via=stream.entrance.via,
            certificate=stream.certificate,
        )

        def said(found: Admission | Refusal) -> None:
            word = f"refused: {found.value}" if isinstance(found, Refusal) else "let in"
            log.debug("MQTT client %r as %r from %s: %s", login.client_id[:64], packet.user, login.address, word)
            if isinstance(found, Admission) and login.via != found.who.via:
                found = msgspec.structs.replace(found, who=msgspec.structs.replace(found.who, via=login.via))
            then(found)
            self._broker.need_turn()

        self._gatekeeper.admit(login, said)

    def _write(self, changes: Changes, done: Done) -> None:
        def finished(result: BaseException | None) -> None:
            done(result if isinstance(result, BaseException) else None)
            self._broker.need_turn()

        self._hot.write(tables.commit(changes, self._clock.now(), self._texts), finished, urgent=changes.urgent)

    def _here(self, stamp: Stamp) -> int:
        """A moment, maybe of another boot, on this boot's monotonic clock (may be negative)."""
        now = self._clock.now()
        if stamp.boot == now.boot:
            return stamp.mono_us
        return now.mono_us - (self._clock.wall(now)[0] - self._clock.wall(stamp)[0])

    def _schedule(self) -> None:
        self.loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._broker.turn()
        if self._turn_over:
            over, self._turn_over = self._turn_over, []
            for call in over:
                call()
        due = self._broker.deadlines.next()
        if due is not None and (self._armed_us is None or due < self._armed_us):
            self._arm(due)

    def _arm(self, due_us: int) -> None:
        if self._cancel_timer is not None:
            self._cancel_timer()
        self._armed_us = due_us
        self._cancel_timer = self._clock.at(due_us, self._tick)

    def _tick(self) -> None:
        self._armed_us = self._cancel_timer = None
        self._broker.tick()

    # Sockets: `edge.transports.mqtt.tcp.House`.

    def enter(self, stream: Stream) -> bool:
        """Whether there is room for one more socket."""
        address = stream.address
        if not self._accepting or not self._has_room(address):
            return False
        self._streams.add(stream)
        self._per_address[address] = self._per_address.get(address, 0) + 1
        if stream.transport is not None:
            high = self._limits[bounds.WRITE_OCTETS]
            stream.transport.set_write_buffer_limits(high=high, low=high // 4)
        return True

    def connection(self, stream: Stream) -> Connection:
        """The core's connection for a socket that is ready for MQTT."""
        return self._broker.open(stream, stream.address)

    def _has_room(self, address: str) -> bool:
        if len(self._streams) >= self._limits[bounds.CONNECTIONS]:
            self._limits.hit(bounds.CONNECTIONS)
            return False
        if address == UNIX or is_loopback(address):
            return True
        if self._per_address.get(address, 0) >= self._limits[bounds.PER_ADDRESS]:
            self._limits.hit(bounds.PER_ADDRESS)
            return False
        return True

    def cut_after(self, limit: Limit, stream: Stream) -> Callable[[], None]:
        """Cut a socket when `limit` (seconds) has passed; the result forgets it."""
        deadlines = self._broker.deadlines
        deadline = deadlines.at(self._broker.now_us + self._limits[limit] * SECOND, partial(self.cut, limit, stream))
        self._broker.need_turn()
        return lambda: deadlines.cancel(deadline)

    def cut(self, limit: Limit, stream: Stream) -> None:
        """Cut a socket because of `limit`."""
        self._limits.hit(limit)
        stream.abort()

    def gone(self, stream: Stream) -> None:
        self._streams.discard(stream)
        address = stream.address
        left = self._per_address.get(address, 1) - 1
        if left:
            self._per_address[address] = left
        else:
            self._per_address.pop(address, None)
