"""One message on its way through the broker, and the PUBLISH packets made of it."""

from __future__ import annotations

from typing import Protocol

import msgspec

from edge.contract.bus import Publish
from edge.contract.time import SECOND
from edge.protocol.mqtt import properties
from edge.protocol.mqtt.codec import V5
from edge.protocol.mqtt.fields import put_varint
from edge.protocol.mqtt.properties import Prop, Properties
from edge.protocol.mqtt.reasons import Packet

PASSED_ON = (
    Prop.PAYLOAD_FORMAT,
    Prop.CONTENT_TYPE,
    Prop.RESPONSE_TOPIC,
    Prop.CORRELATION_DATA,
    Prop.USER_PROPERTY,
)
"""Properties that reach every receiver unchanged (MQTT 5 §3.3.2.3); the expiry counts down."""


class Source(Protocol):
    """Whose a message is: the session that it came from."""

    @property
    def user(self) -> str:
        """The user whose session it is."""
        ...


class Message(msgspec.Struct, eq=False):
    """What the router hands out. `head` is the topic as it stands in a packet; `extra` the properties passed on.

    `expires_us` is on the monotonic clock, None for never. `source` is the session it came from (No Local).
    """

    publish: Publish
    head: bytes
    extra: bytes = b""
    expires_us: int | None = None
    source: Source | None = None
    rank: int = 0
    """0 telemetry, 1 state, 2 alarm: what goes first when room runs out."""
    routed: bool = False
    """Of a QoS 2 message awaiting PUBREL: subscribers have it already, only the sinks may not."""
    plain: dict[int, bytes] | None = None
    prefix: bytes | None = None
    """Start of the 3.1.1 packet with QoS 1, up to the packet id."""

    @property
    def octets(self) -> int:
        """What it weighs in a queue."""
        return len(self.head) + len(self.publish.payload) + len(self.extra)

    def expired(self, now_us: int) -> bool:
        """Whether its message expiry interval has passed (MQTT 5 §3.3.2.3.3)."""
        return self.expires_us is not None and self.expires_us <= now_us

    def plain0(self, version: int, now_us: int) -> bytes:
        """The packet with QoS 0, RETAIN 0 and nothing of the receiver's own, made once for all receivers."""
        plain = self.plain
        if plain is None:
            plain = self.plain = {}
        frame = plain.get(version)
        if frame is None:
            frame = plain[version] = packet(self, version, 0, False, now_us)
        return frame

    def prefix1(self) -> bytes:
        """Bytes before the packet id of a 3.1.1 PUBLISH with QoS 1, made once for all receivers."""
        length = len(self.head) + 2 + len(self.publish.payload)
        self.prefix = b"\x32" + put_varint(length) + self.head
        return self.prefix


def head_of(topic: str) -> bytes:
    """A topic as it stands in a packet."""
    name = topic.encode()
    return len(name).to_bytes(2, "big") + name


def make(publish: Publish, found: Properties, source: Source | None = None, head: bytes = b"") -> Message:
    """The message of a publish with the properties of its packet."""
    if not found:
        return Message(publish, head or head_of(publish.topic), source=source)
    passed: Properties = {prop: found[prop] for prop in PASSED_ON if prop in found}
    expiry = found.get(Prop.MESSAGE_EXPIRY)
    return Message(
        publish,
        head or head_of(publish.topic),
        properties.body_of(passed, Packet.PUBLISH),
        None if expiry is None else publish.at.mono_us + expiry * SECOND,
        source,
    )


def packet(
    message: Message,
    version: int,
    qos: int,
    retain: bool,
    now_us: int,
    *,
    packet_id: int = 0,
    dup: bool = False,
    ids: tuple[int, ...] = (),
    alias: int = 0,
    head: bytes | None = None,
) -> bytes:
    """A PUBLISH packet for one receiver. `head` replaces the topic (empty when an alias stands for it)."""
    first = 0x30 | dup << 3 | qos << 1 | retain
    parts = [message.head if head is None else head]
    if qos:
        parts.append(packet_id.to_bytes(2, "big"))
    if version == V5:
        parts.append(_properties(message, now_us, ids, alias))
    parts.append(message.publish.payload)
    body = b"".join(parts)
    return bytes((first,)) + put_varint(len(body)) + body


def _properties(message: Message, now_us: int, ids: tuple[int, ...], alias: int) -> bytes:
    extra = message.extra
    if message.expires_us is not None:
        left = max(0, -(-(message.expires_us - now_us) // SECOND))
        extra += b"\x02" + left.to_bytes(4, "big")
    for ident in ids:
        extra += b"\x0b" + put_varint(ident)
    if alias:
        extra += b"\x23" + alias.to_bytes(2, "big")
    return put_varint(len(extra)) + extra
