"""A small MQTT 3.1.1 client that keeps an exact account: what was acked to it, and what was delivered to it how often.

Its session is persistent, and it may be cut and connect again at any moment. It shares no code with the node's own
MQTT core, so that both cannot be wrong in the same way.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress

from edge.contract.time import Clock

WINDOW = 10
"""Messages on their way to the node at once."""
KEEP_ALIVE_S = 0
"""None: who is slow on purpose must not be closed for silence."""

_CONNACK, _PUBLISH, _PUBACK, _PUBREC, _PUBREL, _PUBCOMP, _SUBACK = 2, 3, 4, 5, 6, 7, 9


class Refused(Exception):
    """The node does not let this client in, or broke the protocol."""


class _Sent:
    """A message whose last ack is not in. `released`: PUBREC has come, PUBREL is due; `tried`: it was sent before."""

    __slots__ = ("payload", "qos", "released", "topic", "tried")

    def __init__(self, topic: str, payload: bytes, qos: int) -> None:
        self.topic, self.payload, self.qos = topic, payload, qos
        self.released = self.tried = False


class Probe:
    """One client: user, password and client id (the user's name) stay the same over every connection.

    `pace_us` makes it slow: so long it rests after each message.
    """

    def __init__(self, clock: Clock, user: str, password: str, *, pace_us: int = 0) -> None:
        self._clock, self.user, self._password = clock, user, password
        self.pace_us = pace_us
        self.acked: set[bytes] = set()
        """Payloads with QoS 1 or 2 that the node has taken over."""
        self.delivered: Counter[bytes] = Counter()
        """Payloads that came with QoS 1 or 2, and how often."""
        self.delivered0: Counter[bytes] = Counter()
        """Payloads that came with QoS 0."""
        self.twice = 0
        """Messages with QoS 2 that were handed out more than once."""
        self.resent = 0
        """PUBLISH packets sent again after a cut."""
        self.lost_sessions = 0
        """How often the node had forgotten the session."""
        self.connected = False
        """Whether the node has let us in, and nothing is known to have ended that."""
        self._unacked: dict[int, _Sent] = {}
        self._incoming: set[int] = set()
        """QoS 2 packet ids between PUBREC and PUBCOMP."""
        self._seen2: set[bytes] = set()
        self._next_id = 0
        self._known = False
        self._granted: asyncio.Event | None = None
        self._room = asyncio.Event()
        self._room.set()
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    # Connection.

    async def connect(self, host: str, port: int) -> None:
        """Connect and send again what was not acked. Raises `OSError` when nobody answers, `Refused`."""
        self._reader, self._writer = await asyncio.open_connection(host, port)
        user, password = self.user.encode(), self._password.encode()
        body = b"\0\4MQTT\4\xc0" + KEEP_ALIVE_S.to_bytes(2, "big") + _text(user) + _text(user) + _text(password)
        self._write(_packet(0x10, body))
        kind, _, answer = await self._packet()
        if kind != _CONNACK or answer[1]:
            self.cut()
            raise Refused(f"{self.user} is not let in: CONNACK {answer.hex()}")
        if self._known and not answer[0]:
            self.lost_sessions += 1
        self._known = self.connected = True
        for packet_id, sent in self._unacked.items():
            if sent.released:
                self._write(_pubrel(packet_id))
            else:
                self.resent += sent.tried
                self._send(sent, packet_id)

    async def run(self) -> None:
        """Take packets until the connection ends. Raises `Refused` for what no server may send."""
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                kind, flags, body = await self._packet()
                self._take(kind, flags, body)
                if kind == _PUBLISH and self.pace_us:
                    await self._clock.sleep_until(self._clock.now().mono_us + self.pace_us)
        self.cut()

    def cut(self) -> None:
        """End the connection without a word."""
        self.connected = False
        if self._writer is not None:
            self._writer.transport.abort()
            self._writer = None
        if self._granted is not None:
            self._granted.set()

    def leave(self) -> None:
        """DISCONNECT: the session stays."""
        self._write(b"\xe0\0")
        self.connected = False
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    @property
    def waiting(self) -> int:
        """Messages whose ack is not in."""
        return len(self._unacked)

    # To the node.

    async def subscribe(self, wanted: str, qos: int) -> None:
        """Subscribe; needs `run` beside it. Raises `Refused`."""
        self._granted = asyncio.Event()
        self._write(_packet(0x82, b"\0\1" + _text(wanted.encode()) + bytes((qos,))))
        await self._granted.wait()
        self._granted = None
        if not self.connected:
            raise Refused(f"{self.user} may not subscribe to {wanted}")

    async def publish(self, topic: str, payload: bytes, qos: int) -> None:
        """Send a message, waiting for room in the window. With QoS 1 and 2 it is sent again until it is acked."""
        sent = _Sent(topic, payload, qos)
        if not qos:
            self._send(sent, 0)
            return
        while len(self._unacked) >= WINDOW:
            self._room.clear()
            await self._room.wait()
        packet_id = self._free_id()
        self._unacked[packet_id] = sent
        if self.connected:
            self._send(sent, packet_id)

    def _free_id(self) -> int:
        while True:
            self._next_id = self._next_id % 0xFFFF + 1
            if self._next_id not in self._unacked:
                return self._next_id

    # From the node.

    def _take(self, kind: int, flags: int, body: bytes) -> None:
        if kind == _PUBLISH:
            self._message(flags, body)
            return
        packet_id = int.from_bytes(body[:2], "big")
        if kind == _PUBACK:
            self._done(packet_id, 1)
        elif kind == _PUBREC:
            if packet_id in self._unacked:
                self._unacked[packet_id].released = True
            self._write(_pubrel(packet_id))
        elif kind == _PUBCOMP:
            self._done(packet_id, 2)
        elif kind == _PUBREL:
            self._incoming.discard(packet_id)
            self._write(b"\x70\x02" + body[:2])
        elif kind == _SUBACK and self._granted is not None and body[2] <= 2:
            self._granted.set()
        elif kind == _SUBACK:
            self.cut()
        elif kind != 13:
            raise Refused(f"{self.user} was sent a packet of type {kind}")

    def _done(self, packet_id: int, qos: int) -> None:
        sent = self._unacked.get(packet_id)
        if sent is None or sent.qos != qos:
            return
        del self._unacked[packet_id]
        self.acked.add(sent.payload)
        self._room.set()

    def _message(self, flags: int, body: bytes) -> None:
        qos = flags >> 1 & 3
        at = 2 + int.from_bytes(body[:2], "big")
        if not qos:
            self.delivered0[body[at:]] += 1
            return
        packet_id, payload = int.from_bytes(body[at : at + 2], "big"), body[at + 2 :]
        if qos == 1:
            self.delivered[payload] += 1
            self._write(b"\x40\x02" + packet_id.to_bytes(2, "big"))
            return
        if packet_id not in self._incoming:
            self._incoming.add(packet_id)
            self.delivered[payload] += 1
            self.twice += payload in self._seen2
            self._seen2.add(payload)
        self._write(b"\x50\x02" + packet_id.to_bytes(2, "big"))

    # Bytes.

    def _send(self, sent: _Sent, packet_id: int) -> None:
        """PUBLISH, as a duplicate when it is not the first time (MQTT-3.3.1-1)."""
        number = packet_id.to_bytes(2, "big") if sent.qos else b""
        first = 0x30 | (sent.tried and 8) | sent.qos << 1
        self._write(_packet(first, _text(sent.topic.encode()) + number + sent.payload))
        sent.tried = True

    def _write(self, data: bytes) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(data)

    async def _packet(self) -> tuple[int, int, bytes]:
        """Type, flags and body of the next packet."""
        assert self._reader is not None  # noqa: S101 - connected
        first = (await self._reader.readexactly(1))[0]
        length, shift = 0, 0
        while True:
            byte = (await self._reader.readexactly(1))[0]
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        return first >> 4, first & 0xF, await self._reader.readexactly(length)


def _packet(first: int, body: bytes) -> bytes:
    return bytes((first, *_length(len(body)))) + body


def _length(value: int) -> Iterator[int]:
    while value > 0x7F:
        yield value & 0x7F | 0x80
        value >>= 7
    yield value


def _text(data: bytes) -> bytes:
    return len(data).to_bytes(2, "big") + data


def _pubrel(packet_id: int) -> bytes:
    return b"\x62\x02" + packet_id.to_bytes(2, "big")
