"""Sockets under the MQTT core: TCP, TLS and unix streams. Moves bytes, decides nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from edge.protocol.mqtt.connection import Connection

MOST_DISCARDED = 1_048_576
"""Bytes read and thrown away after the goodbye; a client that sends more is cut."""

Open = Callable[["Stream"], Connection | None]
"""Makes the core's connection for a new socket; None refuses it."""


class Stream(asyncio.Protocol):
    """One socket: `edge.protocol.mqtt.connection.Wire` on top, an asyncio transport below."""

    __slots__ = (
        "_budget",
        "_closed",
        "_connection",
        "_gone",
        "_linger",
        "_loop",
        "_open",
        "_reading",
        "_resting",
        "_spare",
        "_stop_lingering",
        "_transport",
        "_wanted",
        "address",
    )

    def __init__(
        self,
        opened: Open,
        gone: Callable[[Stream], None],
        linger: Callable[[Stream], Callable[[], None]],
        loop: asyncio.AbstractEventLoop,
        budget: int,
    ) -> None:
        self._open, self._gone, self._linger, self._loop, self._budget = opened, gone, linger, loop, budget
        self._stop_lingering: Callable[[], None] | None = None
        self.address = "local"
        """Of the other side; "local" for a unix socket."""
        self._transport: asyncio.Transport | None = None
        self._connection: Connection | None = None
        self._wanted = True
        """Whether the core wants more bytes."""
        self._resting = False
        """Whether this socket has had its share of the turn."""
        self._reading = True
        self._closed = False
        self._spare = MOST_DISCARDED

    # The transport calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        found = transport.get_extra_info("peername")
        if isinstance(found, tuple) and found:
            self.address = str(found[0])
        self._connection = self._open(self)
        if self._connection is None:
            self._closed = True
            self._transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._connection is None or self._closed:
            self._discard(len(data))
            return
        self._connection.receive(data)
        if len(data) >= self._budget and not self._resting:
            self._resting = True
            self._settle()
            self._loop.call_soon(self._rested)

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed = True
        if self._stop_lingering is not None:
            self._stop_lingering()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.lost()
            self._gone(self)

    def pause_writing(self) -> None:
        if self._connection is not None:
            self._connection.blocked()

    def resume_writing(self) -> None:
        if self._connection is not None:
            self._connection.unblocked()

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
        self._stop_lingering = self._linger(self)
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

    @property
    def transport(self) -> asyncio.Transport | None:
        """The asyncio transport."""
        return self._transport

    # Reading by turns.

    def _discard(self, octets: int) -> None:
        self._spare -= octets
        if self._spare < 0 and self._transport is not None:
            self._transport.abort()

    def _rested(self) -> None:
        self._resting = False
        self._settle()

    def _settle(self) -> None:
        reading = self._wanted and not self._resting
        transport = self._transport
        if reading == self._reading or transport is None or self._closed or transport.is_closing():
            return
        self._reading = reading
        if reading:
            transport.resume_reading()
        else:
            transport.pause_reading()
