"""Sockets under the MQTT core: TCP, TLS and unix streams. Moves bytes, decides nothing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from ipaddress import ip_address
from typing import Protocol, cast

import msgspec

from edge.config.lan import Network
from edge.contract.limit import Limit
from edge.protocol.mqtt.connection import Connection
from edge.protocol.mqtt.limits import LINGER_S

log = logging.getLogger(__name__)

MOST_DISCARDED = 1_048_576
"""Bytes read and thrown away after the goodbye; a client that sends more is cut."""

UNIX = "local"
"""The address of whoever comes by a unix socket."""


class Entrance(msgspec.Struct, frozen=True, kw_only=True):
    """What one listener lets in.

    networks: addresses that may come in; none named: any. is_open: asked before each. via: the door of its principals.
    path, origins, hosts: of WebSocket; without an Origin any program may connect, a page only from its own host or
    these; a Host that `hosts` does not know is refused on loopback (a name can be rebound to it).
    """

    networks: tuple[Network, ...] = ()
    is_open: Callable[[], bool] | None = None
    via: str = "mqtt"
    path: str = "/mqtt"
    origins: tuple[str, ...] = ()
    hosts: Callable[[str], bool] | None = None

    def admits(self, address: str) -> bool:
        """Whether an address may come in here."""
        if self.is_open is not None and not self.is_open():
            return False
        if not self.networks:
            return True
        try:
            found = ip_address(address.partition("%")[0])
        except ValueError:
            return False
        mapped = getattr(found, "ipv4_mapped", None)
        return any((mapped or found) in network for network in self.networks)


class House(Protocol):
    """Who takes the sockets in."""

    loop: asyncio.AbstractEventLoop
    budget: int
    """Bytes that one socket may bring before others have a turn."""
    unread: int
    """Bytes that may wait for a socket's client to take them; above, it is read no more until it does."""
    greeting: int
    """Bytes that may come over a WebSocket before a whole CONNECT has."""

    def enter(self, stream: Stream) -> bool:
        """Whether there is room for one more socket."""
        ...

    def connection(self, stream: Stream) -> Connection:
        """The core's connection for a socket that is ready for MQTT."""
        ...

    def cut_after(self, limit: Limit, stream: Stream) -> Callable[[], None]:
        """Cut the socket when `limit` (seconds) has passed; the result forgets that."""
        ...

    def cut(self, limit: Limit, stream: Stream) -> None:
        """Cut the socket because of `limit`."""
        ...

    def gone(self, stream: Stream) -> None:
        """The socket has ended."""
        ...


class Stream(asyncio.Protocol):
    """One socket: `edge.protocol.mqtt.wire.Wire` on top, an asyncio transport below."""

    __slots__ = (
        "_choked",
        "_closed",
        "_connection",
        "_entered",
        "_feed",
        "_full",
        "_house",
        "_reading",
        "_reprieve",
        "_resting",
        "_spare",
        "_stopped",
        "_transport",
        "_wanted",
        "address",
        "entrance",
    )

    def __init__(self, house: House, entrance: Entrance) -> None:
        self._house, self.entrance = house, entrance
        self._reprieve: Callable[[], None] | None = None
        self.address = UNIX
        """Of the other side; "local" for a unix socket."""
        self._transport: asyncio.Transport | None = None
        self._connection: Connection | None = None
        self._entered = False
        self._feed: Callable[[bytes], None] = self._discarded
        """Who takes what comes in."""
        self._wanted = True
        """Whether the core wants more bytes."""
        self._resting = False
        """Whether this socket has had its share of the turn."""
        self._stopped = False
        """Whether the engine reads no more."""
        self._full = False
        """Whether the client takes less than is written to it."""
        self._choked = False
        """Whether so much less that it may ask for no more."""
        self._reading = True
        self._closed = False
        self._spare = MOST_DISCARDED

    # The transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        found = transport.get_extra_info("peername")
        if isinstance(found, tuple) and found:
            self.address = str(found[0])
        self._entered = self.entrance.admits(self.address) and self._house.enter(self)
        if self._entered:
            self._begin()
        else:
            self._closed = True
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._closed:
            self._discard(len(data))
            return
        self._feed(data)
        if self._full and not self._choked and self.buffered() > self._house.unread:
            self._choked = True  # answers to what it asks have no other bound
            self._settle()
        if len(data) >= self._house.budget and not self._resting:
            self._resting = True
            self._settle()
            self._house.loop.call_soon(self._rested)

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed = True
        self._pardon()
        connection, self._connection = self._connection, None
        if connection is not None:
            log.debug("MQTT client %r as %r from %s: gone", connection.client_id, connection.user, connection.address)
            connection.lost()
        if self._entered:
            self._entered = False
            self._house.gone(self)

    def pause_writing(self) -> None:
        self._full = True
        if self._connection is not None:
            self._connection.blocked()

    def resume_writing(self) -> None:
        self._full = self._choked = False
        self._settle()
        if self._connection is not None:
            self._connection.unblocked()

    # What a WebSocket does otherwise.

    def _begin(self) -> None:
        self._connection = self._house.connection(self)
        self._feed = self._connection.receive

    # The core calls.

    def write(self, data: bytes) -> None:
        transport = self._transport
        if transport is not None and not self._closed and not transport.is_closing():
            transport.write(data)

    def buffered(self) -> int:
        return self._transport.get_write_buffer_size() if self._transport is not None else 0

    def pause(self) -> None:
        self._wanted = False
        self._settle()

    def resume(self) -> None:
        self._wanted = True
        self._settle()

    def close(self) -> None:
        """Say goodbye and wait a little for the other side's: unread bytes would make the kernel take our last words
        back (RST), and version 5 has a reason to tell."""
        transport = self._transport
        if self._closed or transport is None:
            return
        self._closed = True
        if transport.is_closing():
            return
        self._pardon()
        self._reprieve = self._house.cut_after(LINGER_S, self)
        if not transport.can_write_eof():
            transport.close()
            return
        try:
            transport.write_eof()
        except OSError:
            transport.abort()
            return
        if not self._reading:
            transport.resume_reading()

    def abort(self) -> None:
        if self._transport is not None:
            self._closed = True
            self._transport.abort()

    # What the engine asks.

    def stop_reading(self) -> None:
        """Take no more bytes, whatever the core wants."""
        self._stopped = True
        self._settle()

    @property
    def transport(self) -> asyncio.Transport | None:
        """The asyncio transport."""
        return self._transport

    @property
    def certificate(self) -> str:
        """The name in the client's verified certificate: a DNS name of it, else its common name; "" without one."""
        tls = self._transport.get_extra_info("ssl_object") if self._transport is not None else None
        found = tls.getpeercert() if tls is not None else None
        if not found:
            return ""
        names = [value for kind, value in found.get("subjectAltName", ()) if kind == "DNS"]
        common = [value for part in found.get("subject", ()) for key, value in part if key == "commonName"]
        return str((names + common + [""])[0])

    def _pardon(self) -> None:
        """Forget that the socket was to be cut."""
        if self._reprieve is not None:
            self._reprieve()
            self._reprieve = None

    # Reading by turns.

    def _discarded(self, data: bytes) -> None:
        self._discard(len(data))

    def _discard(self, octets: int) -> None:
        self._spare -= octets
        if self._spare < 0 and self._transport is not None:
            self._transport.abort()

    def _rested(self) -> None:
        self._resting = False
        self._settle()

    def _settle(self) -> None:
        reading = self._wanted and not (self._resting or self._stopped or self._choked)
        transport = self._transport
        if reading == self._reading or transport is None or self._closed or transport.is_closing():
            return
        self._reading = reading
        if reading:
            transport.resume_reading()
        else:
            transport.pause_reading()
