"""A small exact MQTT client (3.1.1 and 5) that keeps a session of its own over connections and answers only when told.

It shares no code with the node's core, so that both cannot be wrong in the same way. What the standards ask of a
client is done here: packet ids, DUP, PUBREL instead of PUBLISH once PUBREC is in, acks in order, a QoS 2 id remembered
until PUBREL. When an answer leaves is the test's choice (`answer`).
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from typing import NamedTuple

V311, V5 = 4, 5
CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP, SUBACK, UNSUBACK, PINGRESP, DISCONNECT = (
    2,
    3,
    4,
    5,
    6,
    7,
    9,
    11,
    13,
    14,
)
CLOSED = (asyncio.IncompleteReadError, ConnectionError, OSError)
"""What reading or connecting raises when the node is gone."""


class Packet(NamedTuple):
    """What came. `reason` is the highest reason code of CONNACK, an ack, SUBACK, UNSUBACK or DISCONNECT."""

    kind: int
    flags: int = 0
    packet_id: int = 0
    topic: str = ""
    payload: bytes = b""
    reason: int = 0
    present: bool = False

    @property
    def qos(self) -> int:
        return self.flags >> 1 & 3

    @property
    def dup(self) -> bool:
        return bool(self.flags & 8)

    @property
    def retain(self) -> bool:
        return bool(self.flags & 1)


class Sent:
    """A message of ours with QoS 1 or 2. `released`: PUBREC is in, so only PUBREL may be sent."""

    __slots__ = ("payload", "qos", "released", "retain", "topic")

    def __init__(self, topic: str, payload: bytes, qos: int, retain: bool) -> None:
        self.topic, self.payload, self.qos, self.retain = topic, payload, qos, retain
        self.released = False


class Client:
    """One client. `clean` ones forget everything with their connection; the others keep it over any number of them."""

    def __init__(
        self,
        user: str,
        password: str,
        *,
        client_id: str = "",
        version: int = V311,
        clean: bool = False,
        window: int = 20,
    ) -> None:
        self.user, self.password, self.client_id = user, password, client_id or user
        self.version, self.clean, self.window = version, clean, window
        self.unfinished: dict[int, Sent] = {}
        """What we sent and whose exchange is not over, in the order sent."""
        self.incoming: set[int] = set()
        """QoS 2 packet ids between PUBLISH and PUBREL."""
        self.got: list[Packet] = []
        """Messages handed out: each QoS 2 exchange once, every copy of QoS 1 and 0."""
        self.finished: list[Sent] = []
        """Messages whose exchange ended well: the node has promised to keep them."""
        self.refused: list[Sent] = []
        """Messages that the node did not take, and said so (version 5)."""
        self.published: list[Sent] = []
        """Everything we sent with QoS 1 or 2, in order."""
        self.resent = 0
        self.known = False
        """Whether the node has said that it holds a session of ours."""
        self._answers: deque[bytes] = deque()
        self._next_id = 0
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter | None = None

    # Connection.

    async def connect(
        self, host: str, port: int, *, clean: bool | None = None, tls: ssl.SSLContext | None = None, resume: bool = True
    ) -> bool:
        """Connect; whether the node has our session. Raises `CLOSED`, or `AssertionError` when refused.

        With `resume` what was not finished is sent again at once (MQTT-4.4.0-1).
        """
        clean = self.clean if clean is None else clean
        self.cut()
        self.begin(clean)
        name = "localhost" if tls is not None else None
        self._reader, self._writer = await asyncio.open_connection(host, port, ssl=tls, server_hostname=name)
        self._writer.write(self._connect(clean))
        connack = await self.receive()
        assert connack.kind == CONNACK, connack
        assert connack.reason == 0, connack
        self.welcome(clean)
        if resume:
            self.resume()
        return connack.present

    def begin(self, clean: bool) -> None:
        """CONNECT is about to leave."""
        self._answers.clear()
        if clean:
            self.unfinished.clear()
            self.incoming.clear()

    def welcome(self, clean: bool) -> None:
        """CONNACK has come."""
        self.known = not clean

    def _connect(self, clean: bool) -> bytes:
        body = b"\0\4MQTT" + bytes((self.version, 0xC0 | clean << 1, 0, 0))
        if self.version == V5:
            body += b"\0" if clean else b"\5\x11\0\1\x51\x80"
        for text in (self.client_id, self.user, self.password):
            body += _text(text)
        return _packet(0x10, body)

    def resume(self) -> None:
        """Send again what is not finished, in its order."""
        for packet_id, sent in self.unfinished.items():
            self.resent += not sent.released
            self._put(_ack(0x62, packet_id) if sent.released else self._publish(sent, packet_id, again=True))

    def cut(self) -> None:
        """End the connection without a word."""
        if self._writer is not None:
            self._writer.transport.abort()
            self._writer = None

    async def leave(self) -> None:
        """DISCONNECT, and wait for the node to hang up. Raises `CLOSED`."""
        await self.drain()
        self._put(b"\xe0\0")
        try:
            while await self._reader.read(65_536):
                pass
        except ConnectionError:
            pass
        self.cut()

    @property
    def connected(self) -> bool:
        return self._writer is not None and not self._writer.is_closing()

    # To the node.

    @property
    def has_room(self) -> bool:
        """Whether another message with QoS 1 or 2 may be sent."""
        return len(self.unfinished) < self.window

    def publish(self, topic: str, payload: bytes, qos: int = 0, *, retain: bool = False) -> Sent:
        """PUBLISH. Its exchange goes on with each `take` and `answer`."""
        sent = Sent(topic, payload, qos, retain)
        packet_id = 0
        if qos:
            packet_id = self._free_id()
            self.unfinished[packet_id] = sent
            self.published.append(sent)
        self._put(self._publish(sent, packet_id, again=False))
        return sent

    def subscribe(self, *filters: str, qos: int = 2) -> int:
        """SUBSCRIBE; its packet id."""
        packet_id = self._free_id()
        wanted = b"".join(_text(one) + bytes((qos,)) for one in filters)
        self._put(_packet(0x82, packet_id.to_bytes(2, "big") + self._nothing + wanted))
        return packet_id

    def unsubscribe(self, *filters: str) -> int:
        """UNSUBSCRIBE; its packet id."""
        packet_id = self._free_id()
        self._put(_packet(0xA2, packet_id.to_bytes(2, "big") + self._nothing + b"".join(map(_text, filters))))
        return packet_id

    def _publish(self, sent: Sent, packet_id: int, *, again: bool) -> bytes:
        number = packet_id.to_bytes(2, "big") if sent.qos else b""
        first = 0x30 | again << 3 | sent.qos << 1 | sent.retain
        return _packet(first, _text(sent.topic) + number + self._nothing + sent.payload)

    @property
    def _nothing(self) -> bytes:
        """No properties."""
        return b"\0" if self.version == V5 else b""

    def _free_id(self) -> int:
        while True:
            self._next_id = self._next_id % 0xFFFF + 1
            if self._next_id not in self.unfinished:
                return self._next_id

    def _put(self, data: bytes) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(data)

    async def drain(self) -> None:
        """Wait until the kernel takes more. Raises `CLOSED`."""
        if self._writer is None:
            raise ConnectionError("cut")
        await self._writer.drain()

    # From the node.

    async def run(self, answer_at_once: bool = True) -> None:
        """Take packets until the connection ends."""
        try:
            while True:
                self.take(await self.receive())
                if answer_at_once:
                    self.answer()
        except CLOSED:
            self.cut()

    async def expect(self, kind: int) -> Packet:
        """Take packets until one of this kind is there. Raises `CLOSED`."""
        while True:
            packet = await self.receive()
            self.take(packet)
            self.answer()
            if packet.kind == kind:
                return packet

    def take(self, packet: Packet) -> None:
        """Note a packet; what has to be answered waits for `answer`."""
        match packet.kind:
            case 3:
                self._message(packet)
            case 4:
                self._over(packet, 1)
            case 5 if packet.reason >= 0x80:
                self._over(packet, 2)
            case 5:
                if (sent := self.unfinished.get(packet.packet_id)) is not None:
                    assert sent.qos == 2, packet
                    sent.released = True
                self._answers.append(_ack(0x62, packet.packet_id))
            case 6:
                self.incoming.discard(packet.packet_id)
                self._answers.append(_ack(0x70, packet.packet_id))
            case 7:
                self._over(packet, 2)

    def _over(self, packet: Packet, qos: int) -> None:
        sent = self.unfinished.get(packet.packet_id)
        if sent is None:
            return
        assert sent.qos == qos, packet
        assert sent.released or packet.kind != PUBCOMP, packet
        del self.unfinished[packet.packet_id]
        refused = packet.reason >= 0x80 and packet.kind != PUBCOMP
        (self.refused if refused else self.finished).append(sent)

    def _message(self, packet: Packet) -> None:
        if packet.qos == 2:
            if packet.packet_id not in self.incoming:
                assert not packet.dup or not self.clean, packet
                self.incoming.add(packet.packet_id)
                self.got.append(packet)
            self._answers.append(_ack(0x50, packet.packet_id))
            return
        self.got.append(packet)
        if packet.qos:
            self._answers.append(_ack(0x40, packet.packet_id))

    def answer(self, most: int = 1 << 30) -> None:
        """Send the oldest answers that wait, at most so many."""
        while self._answers and most > 0:
            self._put(self._answers.popleft())
            most -= 1

    async def receive(self) -> Packet:
        """The next packet, not yet noted. Raises `CLOSED`."""
        first = (await self._reader.readexactly(1))[0]
        length, shift = 0, 0
        while True:
            byte = (await self._reader.readexactly(1))[0]
            length |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        return self._parsed(first >> 4, first & 0xF, await self._reader.readexactly(length))

    def _parsed(self, kind: int, flags: int, body: bytes) -> Packet:
        if kind == CONNACK:
            return Packet(kind, flags, reason=body[1], present=bool(body[0]))
        if kind == PUBLISH:
            at = 2 + int.from_bytes(body[:2], "big")
            topic, packet_id = body[2:at].decode(), 0
            if flags & 6:
                packet_id, at = int.from_bytes(body[at : at + 2], "big"), at + 2
            return Packet(kind, flags, packet_id, topic, self._after_properties(body[at:]))
        if kind == DISCONNECT:
            return Packet(kind, reason=body[0] if body else 0)
        if kind == PINGRESP:
            return Packet(kind)
        packet_id, rest = int.from_bytes(body[:2], "big"), body[2:]
        if kind in (SUBACK, UNSUBACK):
            rest = self._after_properties(rest)
            return Packet(kind, flags, packet_id, payload=rest, reason=max(rest, default=0))
        return Packet(kind, flags, packet_id, reason=rest[0] if rest else 0)

    def _after_properties(self, data: bytes) -> bytes:
        if self.version != V5:
            return data
        length, at = 0, 0
        while True:
            byte = data[at]
            length |= (byte & 0x7F) << 7 * at
            at += 1
            if byte < 0x80:
                return data[at + length :]


def _packet(first: int, body: bytes) -> bytes:
    head, length = bytearray((first,)), len(body)
    while length > 0x7F:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    head.append(length)
    return bytes(head) + body


def _ack(first: int, packet_id: int) -> bytes:
    return bytes((first, 2)) + packet_id.to_bytes(2, "big")


def _text(text: str) -> bytes:
    data = text.encode()
    return len(data).to_bytes(2, "big") + data
