"""MQTT 3.1.1 and 5 packets, both directions: frame first, then decode strictly inside the frame.

`split` finds a frame and `decode` reads it; neither raises anything but `Fault` on what a peer sent.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from edge.protocol.mqtt import fields, properties
from edge.protocol.mqtt.fields import Fault, malformed, violation
from edge.protocol.mqtt.properties import WILL, Prop, Properties
from edge.protocol.mqtt.reasons import ALLOWED, Packet, Reason
from edge.protocol.mqtt.topics import SHARE, valid_filter, valid_topic

V311 = 4
V5 = 5
BRIDGE = 0x80
"""Set in the protocol level by Mosquitto's bridges (its option `try_private`): nothing of theirs is sent back to them,
and the retain flag stays as published, or two brokers would play ping-pong."""


class Will(msgspec.Struct, frozen=True):
    """The message that a CONNECT leaves behind."""

    topic: str
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    properties: Properties = {}


class Connect(msgspec.Struct, frozen=True):
    """`clean` is Clean Session (3.1.1) or Clean Start (5); `bridge` the mark of Mosquitto's bridges."""

    client_id: str
    clean: bool = True
    keep_alive: int = 0
    version: int = V311
    user: str | None = None
    password: bytes | None = None
    will: Will | None = None
    properties: Properties = {}
    bridge: bool = False


class Connack(msgspec.Struct, frozen=True):
    """`reason` is a return code (0–5) with 3.1.1."""

    session_present: bool = False
    reason: int = 0
    properties: Properties = {}


class PublishPacket(msgspec.Struct, frozen=True):
    """`packet_id` is 0 with QoS 0. `topic` may be empty in 5 when an alias stands for it."""

    topic: str
    payload: bytes = b""
    qos: int = 0
    retain: bool = False
    dup: bool = False
    packet_id: int = 0
    properties: Properties = {}


class Ack(msgspec.Struct, frozen=True):
    """PUBACK, PUBREC, PUBREL or PUBCOMP, by `kind`."""

    kind: int
    packet_id: int
    reason: int = 0
    properties: Properties = {}


class Wish(msgspec.Struct, frozen=True):
    """One filter of a SUBSCRIBE with its options (MQTT 5 §3.8.3.1)."""

    filter: str
    qos: int = 0
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0


class Subscribe(msgspec.Struct, frozen=True):
    """At least one wish."""

    packet_id: int
    wishes: list[Wish]
    properties: Properties = {}


class Suback(msgspec.Struct, frozen=True):
    """A reason for each wish."""

    packet_id: int
    reasons: list[int]
    properties: Properties = {}


class Unsubscribe(msgspec.Struct, frozen=True):
    """At least one filter."""

    packet_id: int
    filters: list[str]
    properties: Properties = {}


class Unsuback(msgspec.Struct, frozen=True):
    """A reason for each filter with 5, none with 3.1.1."""

    packet_id: int
    reasons: list[int] = []
    properties: Properties = {}


class Ping(msgspec.Struct, frozen=True):
    """PINGREQ or PINGRESP, by `kind`."""

    kind: int = Packet.PINGREQ


class Disconnect(msgspec.Struct, frozen=True):
    """Either way with 5; from the client only with 3.1.1."""

    reason: int = 0
    properties: Properties = {}


class Auth(msgspec.Struct, frozen=True):
    """Enhanced authentication, 5 only."""

    reason: int = 0
    properties: Properties = {}


AnyPacket = (
    Connect | Connack | PublishPacket | Ack | Subscribe | Suback | Unsubscribe | Unsuback | Ping | Disconnect | Auth
)


class Frame(NamedTuple):
    """Where a whole packet lies: first byte, start and end of its variable header and payload."""

    first: int
    start: int
    end: int


def split(data: bytes, pos: int = 0, limit: int = fields.MAX_VARINT, strict: bool = False) -> Frame | int:
    """The frame at `pos`, or how many bytes are wanted from `pos` on before there can be one.

    Raises `Fault`: packet too large as soon as the header says so, malformed for a length of five bytes, with
    `strict` (5) also for one that is not the shortest.
    """
    have = len(data)
    if have < pos + 2:
        return 2
    length = shift = 0
    for at in range(pos + 1, pos + 5):
        if at >= have:
            return at - pos + 1
        byte = data[at]
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    else:
        raise malformed("§2.1.4 remaining length longer than four bytes")
    if strict and shift and byte == 0:
        raise malformed("MQTT-1.5.5-1 remaining length not in its shortest form")
    start = at + 1
    end = start + length
    if end - pos > limit:
        raise Fault(Reason.PACKET_TOO_LARGE, f"packet of {end - pos} bytes, at most {limit}")
    return Frame(data[pos], start, end) if end <= have else end - pos


FLAGS: dict[int, int] = {int(kind): 0 for kind in Packet if kind != Packet.PUBLISH} | {
    Packet.PUBREL: 2,
    Packet.SUBSCRIBE: 2,
    Packet.UNSUBSCRIBE: 2,
}
"""What the low four bits of the first byte must be (§2.1.3)."""


def decode(first: int, data: bytes, start: int, end: int, version: int) -> AnyPacket:
    """The packet in the frame. Raises `Fault`."""
    kind = first >> 4
    if kind == Packet.PUBLISH:
        return _publish(first, data, start, end, version)
    if kind not in FLAGS:
        raise malformed("§2.1.2 packet type 0 is reserved")
    if first & 0x0F != FLAGS[kind]:
        raise malformed("MQTT-2.1.3-1 flag bits")
    read = _READ.get(kind)
    if read is None or (kind == Packet.AUTH and version < V5):
        raise violation("§2.1.2 packet type not defined in this version")
    return read(kind, data, start, end, version)


def _publish(first: int, data: bytes, pos: int, end: int, version: int) -> PublishPacket:
    qos, dup = first >> 1 & 3, bool(first & 8)
    if qos == 3:
        raise malformed("MQTT-3.3.1-4 QoS 3")
    if dup and not qos:
        raise malformed("MQTT-3.3.1-2 DUP with QoS 0")
    topic, pos = fields.text(data, pos, end)
    packet_id = 0
    if qos:
        packet_id, pos = _packet_id(data, pos, end)
    found: Properties = {}
    if version == V5:
        found, pos = properties.read(data, pos, end, Packet.PUBLISH)
    if topic or Prop.TOPIC_ALIAS not in found:
        if not valid_topic(topic):
            raise Fault(Reason.TOPIC_NAME_INVALID if topic else Reason.PROTOCOL_ERROR, "MQTT-3.3.2-2 topic name")
    response = found.get(Prop.RESPONSE_TOPIC)
    if response is not None and not valid_topic(response):
        raise violation("MQTT-3.3.2-14 response topic with wildcards")
    return PublishPacket(topic, data[pos:end], qos, bool(first & 1), dup, packet_id, found)


def _packet_id(data: bytes, pos: int, end: int) -> tuple[int, int]:
    packet_id, pos = fields.u16(data, pos, end)
    if not packet_id:
        raise violation("MQTT-2.2.1-3 packet identifier 0")
    return packet_id, pos


def _done(pos: int, end: int) -> None:
    if pos != end:
        raise malformed("bytes after the end of the packet")


def _connect(kind: int, data: bytes, pos: int, end: int, _: int) -> Connect:
    name, pos = fields.binary(data, pos, end)
    level, pos = fields.u8(data, pos, end)
    version = level & ~BRIDGE
    if name == b"MQIsdp" and version == 3:
        raise Fault(Reason.UNSUPPORTED_PROTOCOL_VERSION, "MQTT 3.1")
    if name != b"MQTT":
        raise violation("MQTT-3.1.2-1 protocol name")
    if version not in (V311, V5):
        raise _unknown_level(data, pos, end, version)
    try:
        return _connect_rest(data, pos, end, version, bool(level & BRIDGE))
    except Fault as fault:
        fault.version = version
        raise


def _unknown_level(data: bytes, pos: int, end: int, version: int) -> Fault:
    """A level that is neither 4 nor 5. A CONNECT above 5 that is written as 5 writes it is answered as 5 does, any
    other as 3.1.1 demands (MQTT-3.1.2-2 of both)."""
    fault = Fault(Reason.UNSUPPORTED_PROTOCOL_VERSION, "MQTT-3.1.2-2 protocol level")
    if version > V5:
        try:
            _connect_rest(data, pos, end, V5, bridge=False)
        except Fault:
            return fault
        fault.version = V5
    return fault


def _connect_rest(data: bytes, pos: int, end: int, version: int, bridge: bool) -> Connect:
    flags, pos = fields.u8(data, pos, end)
    _check_connect_flags(flags, version)
    keep_alive, pos = fields.u16(data, pos, end)
    found: Properties = {}
    if version == V5:
        found, pos = properties.read(data, pos, end, Packet.CONNECT)
        if Prop.AUTHENTICATION_DATA in found and Prop.AUTHENTICATION_METHOD not in found:
            raise violation("§3.1.2.11.10 authentication data without a method")
    client_id, pos = fields.text(data, pos, end)
    will = user = password = None
    if flags & 0x04:
        will, pos = _will(flags, data, pos, end, version)
    if flags & 0x80:
        user, pos = fields.text(data, pos, end)
    if flags & 0x40:
        password, pos = fields.binary(data, pos, end)
    _done(pos, end)
    return Connect(client_id, bool(flags & 2), keep_alive, version, user, password, will, found, bridge)


def _check_connect_flags(flags: int, version: int) -> None:
    if flags & 1:
        raise malformed("MQTT-3.1.2-3 reserved flag")
    if not flags & 0x04 and flags & 0x38:
        raise malformed("MQTT-3.1.2-11 will QoS or retain without a will")
    if flags >> 3 & 3 == 3:
        raise malformed("MQTT-3.1.2-12 will QoS 3")
    if version == V311 and flags & 0xC0 == 0x40:
        raise malformed("MQTT 3.1.1 MQTT-3.1.2-22 password without a user name")


def _will(flags: int, data: bytes, pos: int, end: int, version: int) -> tuple[Will, int]:
    found: Properties = {}
    if version == V5:
        found, pos = properties.read(data, pos, end, WILL)
    topic, pos = fields.text(data, pos, end)
    payload, pos = fields.binary(data, pos, end)
    response = found.get(Prop.RESPONSE_TOPIC)
    if not valid_topic(topic) or (response is not None and not valid_topic(response)):
        raise Fault(Reason.TOPIC_NAME_INVALID, "§3.1.3.3 will topic")
    return Will(topic, payload, flags >> 3 & 3, bool(flags & 0x20), found), pos


def _connack(kind: int, data: bytes, pos: int, end: int, version: int) -> Connack:
    flags, pos = fields.u8(data, pos, end)
    reason, pos = fields.u8(data, pos, end)
    if flags > 1:
        raise malformed("MQTT-3.2.2-1 reserved flags")
    found: Properties = {}
    if version == V5:
        _check_reason(kind, reason)
        found, pos = properties.read(data, pos, end, Packet.CONNACK)
    _done(pos, end)
    return Connack(bool(flags), reason, found)


def _ack(kind: int, data: bytes, pos: int, end: int, version: int) -> Ack:
    packet_id, pos = _packet_id(data, pos, end)
    reason, found, pos = _reason_tail(kind, data, pos, end, version)
    _done(pos, end)
    return Ack(kind, packet_id, reason, found)


def _reason_tail(kind: int, data: bytes, pos: int, end: int, version: int) -> tuple[int, Properties, int]:
    """The optional reason and properties at the end of acks, DISCONNECT and AUTH (MQTT 5 §3.4.2.1)."""
    if version < V5 or pos == end:
        return 0, {}, pos
    reason, pos = fields.u8(data, pos, end)
    _check_reason(kind, reason)
    if pos == end:
        return reason, {}, pos
    found, pos = properties.read(data, pos, end, kind)
    return reason, found, pos


def _check_reason(kind: int, reason: int) -> None:
    if reason not in ALLOWED[Packet(kind)]:
        raise malformed(f"§2.4 reason {reason:#04x} not valid here")


def _subscribe(kind: int, data: bytes, pos: int, end: int, version: int) -> Subscribe:
    packet_id, pos = _packet_id(data, pos, end)
    found: Properties = {}
    if version == V5:
        found, pos = properties.read(data, pos, end, Packet.SUBSCRIBE)
    wishes = []
    while pos < end:
        wanted, pos = _filter(data, pos, end)
        options, pos = fields.u8(data, pos, end)
        if options & (0xC0 if version == V5 else 0xFC) or options & 3 == 3 or options & 0x30 == 0x30:
            raise malformed("MQTT-3.8.3-5 reserved bits of the subscription options")
        if options & 4 and wanted.startswith(SHARE):
            raise violation("MQTT-3.8.3-4 No Local on a shared subscription")
        wishes.append(Wish(wanted, options & 3, bool(options & 4), bool(options & 8), options >> 4 & 3))
    if not wishes:
        raise violation("MQTT-3.8.3-2 SUBSCRIBE without a filter")
    return Subscribe(packet_id, wishes, found)


def _filter(data: bytes, pos: int, end: int) -> tuple[str, int]:
    """A topic filter. What stands behind `$share/` is the broker's to judge: it refuses that filter alone (§4.8.2)."""
    wanted, pos = fields.text(data, pos, end)
    if not wanted.startswith(SHARE) and not valid_filter(wanted):
        raise Fault(Reason.TOPIC_FILTER_INVALID, "§4.7.1 topic filter")
    return wanted, pos


def _suback(kind: int, data: bytes, pos: int, end: int, version: int) -> Suback:
    packet_id, pos = _packet_id(data, pos, end)
    found: Properties = {}
    if version == V5:
        found, pos = properties.read(data, pos, end, Packet.SUBACK)
    reasons = list(data[pos:end])
    allowed = ALLOWED[Packet.SUBACK] if version == V5 else (0, 1, 2, 0x80)
    if not reasons or any(reason not in allowed for reason in reasons):
        raise malformed("MQTT-3.9.3-2 SUBACK reason codes")
    return Suback(packet_id, reasons, found)


def _unsubscribe(kind: int, data: bytes, pos: int, end: int, version: int) -> Unsubscribe:
    packet_id, pos = _packet_id(data, pos, end)
    found: Properties = {}
    if version == V5:
        found, pos = properties.read(data, pos, end, Packet.UNSUBSCRIBE)
    filters = []
    while pos < end:
        wanted, pos = _filter(data, pos, end)
        filters.append(wanted)
    if not filters:
        raise violation("MQTT-3.10.3-2 UNSUBSCRIBE without a filter")
    return Unsubscribe(packet_id, filters, found)


def _unsuback(kind: int, data: bytes, pos: int, end: int, version: int) -> Unsuback:
    packet_id, pos = _packet_id(data, pos, end)
    if version < V5:
        _done(pos, end)
        return Unsuback(packet_id)
    found, pos = properties.read(data, pos, end, Packet.UNSUBACK)
    reasons = list(data[pos:end])
    for reason in reasons:
        _check_reason(kind, reason)
    if not reasons:
        raise malformed("§3.11.3 UNSUBACK without reason codes")
    return Unsuback(packet_id, reasons, found)


def _ping(kind: int, data: bytes, pos: int, end: int, version: int) -> Ping:
    _done(pos, end)
    return Ping(kind)


def _disconnect(kind: int, data: bytes, pos: int, end: int, version: int) -> Disconnect:
    reason, found, pos = _reason_tail(kind, data, pos, end, version)
    _done(pos, end)
    return Disconnect(reason, found)


def _auth(kind: int, data: bytes, pos: int, end: int, version: int) -> Auth:
    reason, found, pos = _reason_tail(kind, data, pos, end, version)
    _done(pos, end)
    return Auth(reason, found)


_READ: dict[int, Callable[[int, bytes, int, int, int], AnyPacket]] = {
    Packet.CONNECT: _connect,
    Packet.CONNACK: _connack,
    Packet.PUBACK: _ack,
    Packet.PUBREC: _ack,
    Packet.PUBREL: _ack,
    Packet.PUBCOMP: _ack,
    Packet.SUBSCRIBE: _subscribe,
    Packet.SUBACK: _suback,
    Packet.UNSUBSCRIBE: _unsubscribe,
    Packet.UNSUBACK: _unsuback,
    Packet.PINGREQ: _ping,
    Packet.PINGRESP: _ping,
    Packet.DISCONNECT: _disconnect,
    Packet.AUTH: _auth,
}


def encode(packet: AnyPacket, version: int) -> bytes:
    """The bytes of a packet. Raises `ValueError` when a field does not fit its place."""
    return _WRITE[type(packet)](packet, version)


def frame(first: int, body: bytes) -> bytes:
    """A fixed header before `body`."""
    return bytes((first,)) + fields.put_varint(len(body)) + body


def _props(found: Properties, packet: int, version: int) -> bytes:
    return properties.write(found, packet) if version == V5 else b""


def _id(packet_id: int) -> bytes:
    return packet_id.to_bytes(2, "big")


def _put_connect(p: Connect, _: int) -> bytes:
    will, version = p.will, p.version
    flags = p.clean << 1 | (p.user is not None) << 7 | (p.password is not None) << 6
    tail = [fields.put_text(p.client_id)]
    if will is not None:
        flags |= 4 | will.qos << 3 | will.retain << 5
        tail += [_props(will.properties, WILL, version), fields.put_text(will.topic), fields.put_binary(will.payload)]
    if p.user is not None:
        tail.append(fields.put_text(p.user))
    if p.password is not None:
        tail.append(fields.put_binary(p.password))
    level = version | BRIDGE if p.bridge else version
    head = b"\0\4MQTT" + bytes((level, flags)) + _id(p.keep_alive) + _props(p.properties, Packet.CONNECT, version)
    return frame(0x10, head + b"".join(tail))


def _put_connack(p: Connack, version: int) -> bytes:
    return frame(0x20, bytes((p.session_present, p.reason)) + _props(p.properties, Packet.CONNACK, version))


def _put_publish(p: PublishPacket, version: int) -> bytes:
    first = 0x30 | p.dup << 3 | p.qos << 1 | p.retain
    head = fields.put_text(p.topic) + (_id(p.packet_id) if p.qos else b"")
    return frame(first, head + _props(p.properties, Packet.PUBLISH, version) + p.payload)


def _put_ack(p: Ack, version: int) -> bytes:
    return frame(p.kind << 4 | FLAGS[p.kind], _id(p.packet_id) + _put_tail(p, p.kind, version))


def _put_tail(p: Ack | Disconnect | Auth, kind: int, version: int) -> bytes:
    if version < V5 or not (p.reason or p.properties):
        return b""
    return bytes((p.reason,)) + (properties.write(p.properties, kind) if p.properties else b"")


def _put_subscribe(p: Subscribe, version: int) -> bytes:
    body = [_id(p.packet_id), _props(p.properties, Packet.SUBSCRIBE, version)]
    for wish in p.wishes:
        options = wish.qos | wish.no_local << 2 | wish.retain_as_published << 3 | wish.retain_handling << 4
        body += [fields.put_text(wish.filter), bytes((options,))]
    return frame(0x82, b"".join(body))


def _put_suback(p: Suback, version: int) -> bytes:
    return frame(0x90, _id(p.packet_id) + _props(p.properties, Packet.SUBACK, version) + bytes(p.reasons))


def _put_unsubscribe(p: Unsubscribe, version: int) -> bytes:
    filters = b"".join(fields.put_text(wanted) for wanted in p.filters)
    return frame(0xA2, _id(p.packet_id) + _props(p.properties, Packet.UNSUBSCRIBE, version) + filters)


def _put_unsuback(p: Unsuback, version: int) -> bytes:
    tail = _props(p.properties, Packet.UNSUBACK, version) + bytes(p.reasons) if version == V5 else b""
    return frame(0xB0, _id(p.packet_id) + tail)


def _put_ping(p: Ping, version: int) -> bytes:
    return bytes((p.kind << 4, 0))


def _put_disconnect(p: Disconnect, version: int) -> bytes:
    return frame(0xE0, _put_tail(p, Packet.DISCONNECT, version))


def _put_auth(p: Auth, version: int) -> bytes:
    return frame(0xF0, _put_tail(p, Packet.AUTH, version))


_WRITE: dict[type, Callable[[Any, int], bytes]] = {
    Connect: _put_connect,
    Connack: _put_connack,
    PublishPacket: _put_publish,
    Ack: _put_ack,
    Subscribe: _put_subscribe,
    Suback: _put_suback,
    Unsubscribe: _put_unsubscribe,
    Unsuback: _put_unsuback,
    Ping: _put_ping,
    Disconnect: _put_disconnect,
    Auth: _put_auth,
}
