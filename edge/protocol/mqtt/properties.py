"""MQTT 5 §2.2.2: the table of properties (identifier, type, packets that may carry it, range, repeatable).

A packet's properties are a dict from identifier to value; repeatable ones (`USER_PROPERTY`, and
`SUBSCRIPTION_IDENTIFIER` in PUBLISH) have a list, in the order received.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Any, NamedTuple

from edge.protocol.mqtt import fields
from edge.protocol.mqtt.fields import malformed, violation
from edge.protocol.mqtt.reasons import Packet

Properties = dict[int, Any]

WILL = 0
"""Stands for "will properties" in the column of packets (MQTT 5 §3.1.3.2)."""


class Prop(IntEnum):
    """Identifiers."""

    PAYLOAD_FORMAT = 0x01
    MESSAGE_EXPIRY = 0x02
    CONTENT_TYPE = 0x03
    RESPONSE_TOPIC = 0x08
    CORRELATION_DATA = 0x09
    SUBSCRIPTION_IDENTIFIER = 0x0B
    SESSION_EXPIRY = 0x11
    ASSIGNED_CLIENT_ID = 0x12
    SERVER_KEEP_ALIVE = 0x13
    AUTHENTICATION_METHOD = 0x15
    AUTHENTICATION_DATA = 0x16
    REQUEST_PROBLEM = 0x17
    WILL_DELAY = 0x18
    REQUEST_RESPONSE = 0x19
    RESPONSE_INFORMATION = 0x1A
    SERVER_REFERENCE = 0x1C
    REASON_STRING = 0x1F
    RECEIVE_MAXIMUM = 0x21
    TOPIC_ALIAS_MAXIMUM = 0x22
    TOPIC_ALIAS = 0x23
    MAXIMUM_QOS = 0x24
    RETAIN_AVAILABLE = 0x25
    USER_PROPERTY = 0x26
    MAXIMUM_PACKET_SIZE = 0x27
    WILDCARD_AVAILABLE = 0x28
    SUBSCRIPTION_IDS_AVAILABLE = 0x29
    SHARED_AVAILABLE = 0x2A


class Form(Enum):
    """How a value is written: (bytes to value, value to bytes)."""

    BYTE = (fields.u8, lambda value: bytes((value,)))
    TWO = (fields.u16, lambda value: value.to_bytes(2, "big"))
    FOUR = (fields.u32, lambda value: value.to_bytes(4, "big"))
    VARINT = (fields.varint, fields.put_varint)
    TEXT = (fields.text, fields.put_text)
    BINARY = (fields.binary, fields.put_binary)
    PAIR = (
        lambda data, pos, end: _pair(data, pos, end),
        lambda value: fields.put_text(value[0]) + fields.put_text(value[1]),
    )


class Rule(NamedTuple):
    """One line of the table. `low` and `high` bound integers; outside is a protocol error."""

    prop: Prop
    form: Form
    packets: frozenset[int]
    low: int = 0
    high: int = 0xFFFF_FFFF


def _rule(prop: Prop, form: Form, packets: tuple[int, ...], low: int = 0, high: int = 0xFFFF_FFFF) -> Rule:
    return Rule(prop, form, frozenset(packets), low, high)


_K = Packet
_ACKS = (_K.PUBACK, _K.PUBREC, _K.PUBREL, _K.PUBCOMP, _K.SUBACK, _K.UNSUBACK)
TABLE: dict[int, Rule] = {
    rule.prop: rule
    for rule in (
        _rule(Prop.PAYLOAD_FORMAT, Form.BYTE, (_K.PUBLISH, WILL), 0, 1),
        _rule(Prop.MESSAGE_EXPIRY, Form.FOUR, (_K.PUBLISH, WILL)),
        _rule(Prop.CONTENT_TYPE, Form.TEXT, (_K.PUBLISH, WILL)),
        _rule(Prop.RESPONSE_TOPIC, Form.TEXT, (_K.PUBLISH, WILL)),
        _rule(Prop.CORRELATION_DATA, Form.BINARY, (_K.PUBLISH, WILL)),
        _rule(Prop.SUBSCRIPTION_IDENTIFIER, Form.VARINT, (_K.PUBLISH, _K.SUBSCRIBE), 1),
        _rule(Prop.SESSION_EXPIRY, Form.FOUR, (_K.CONNECT, _K.CONNACK, _K.DISCONNECT)),
        _rule(Prop.ASSIGNED_CLIENT_ID, Form.TEXT, (_K.CONNACK,)),
        _rule(Prop.SERVER_KEEP_ALIVE, Form.TWO, (_K.CONNACK,)),
        _rule(Prop.AUTHENTICATION_METHOD, Form.TEXT, (_K.CONNECT, _K.CONNACK, _K.AUTH)),
        _rule(Prop.AUTHENTICATION_DATA, Form.BINARY, (_K.CONNECT, _K.CONNACK, _K.AUTH)),
        _rule(Prop.REQUEST_PROBLEM, Form.BYTE, (_K.CONNECT,), 0, 1),
        _rule(Prop.WILL_DELAY, Form.FOUR, (WILL,)),
        _rule(Prop.REQUEST_RESPONSE, Form.BYTE, (_K.CONNECT,), 0, 1),
        _rule(Prop.RESPONSE_INFORMATION, Form.TEXT, (_K.CONNACK,)),
        _rule(Prop.SERVER_REFERENCE, Form.TEXT, (_K.CONNACK, _K.DISCONNECT)),
        _rule(Prop.REASON_STRING, Form.TEXT, (_K.CONNACK, *_ACKS, _K.DISCONNECT, _K.AUTH)),
        _rule(Prop.RECEIVE_MAXIMUM, Form.TWO, (_K.CONNECT, _K.CONNACK), 1),
        _rule(Prop.TOPIC_ALIAS_MAXIMUM, Form.TWO, (_K.CONNECT, _K.CONNACK)),
        _rule(Prop.TOPIC_ALIAS, Form.TWO, (_K.PUBLISH,)),
        _rule(Prop.MAXIMUM_QOS, Form.BYTE, (_K.CONNACK,), 0, 1),
        _rule(Prop.RETAIN_AVAILABLE, Form.BYTE, (_K.CONNACK,), 0, 1),
        _rule(
            Prop.USER_PROPERTY,
            Form.PAIR,
            (
                _K.CONNECT,
                _K.CONNACK,
                _K.PUBLISH,
                WILL,
                *_ACKS,
                _K.SUBSCRIBE,
                _K.UNSUBSCRIBE,
                _K.DISCONNECT,
                _K.AUTH,
            ),
        ),
        _rule(Prop.MAXIMUM_PACKET_SIZE, Form.FOUR, (_K.CONNECT, _K.CONNACK), 1),
        _rule(Prop.WILDCARD_AVAILABLE, Form.BYTE, (_K.CONNACK,), 0, 1),
        _rule(Prop.SUBSCRIPTION_IDS_AVAILABLE, Form.BYTE, (_K.CONNACK,), 0, 1),
        _rule(Prop.SHARED_AVAILABLE, Form.BYTE, (_K.CONNACK,), 0, 1),
    )
}


def repeatable(prop: int, packet: int) -> bool:
    """Whether the value is a list: user properties anywhere, subscription identifiers in PUBLISH (§3.3.2.3.8)."""
    return prop == Prop.USER_PROPERTY or (prop == Prop.SUBSCRIPTION_IDENTIFIER and packet == Packet.PUBLISH)


def read(data: bytes, pos: int, end: int, packet: int) -> tuple[Properties, int]:
    """The property list at `pos`; where it ends. Raises `Fault`."""
    length, pos = fields.varint(data, pos, end)
    stop = pos + length
    if stop > end:
        raise malformed("§2.2.2.1 property length past the end of the packet")
    found: Properties = {}
    while pos < stop:
        ident, pos = fields.varint(data, pos, stop)
        rule = TABLE.get(ident)
        if rule is None or packet not in rule.packets:
            raise malformed(f"§2.2.2.2 property {ident:#04x} not valid here")
        value, pos = rule.form.value[0](data, pos, stop)
        if isinstance(value, int) and not rule.low <= value <= rule.high:
            raise violation(f"§2.2.2.2 {rule.prop.name.lower()} out of range")
        if repeatable(ident, packet):
            found.setdefault(ident, []).append(value)
        elif ident in found:
            raise violation(f"§2.2.2.2 {rule.prop.name.lower()} twice")
        else:
            found[ident] = value
    return found, stop


def write(properties: Properties, packet: int) -> bytes:
    """The property list with its length. Raises `KeyError` for an unknown property, `ValueError` for a bad value."""
    body = body_of(properties, packet)
    return fields.put_varint(len(body)) + body


def body_of(properties: Properties, packet: int) -> bytes:
    """The property list without its length."""
    out = []
    for ident, value in properties.items():
        put = TABLE[ident].form.value[1]
        head = bytes((ident,))
        for item in value if repeatable(ident, packet) else (value,):
            out.append(head + put(item))
    return b"".join(out)


def _pair(data: bytes, pos: int, end: int) -> tuple[tuple[str, str], int]:
    name, pos = fields.text(data, pos, end)
    value, pos = fields.text(data, pos, end)
    return (name, value), pos
