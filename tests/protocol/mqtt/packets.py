"""Hypothesis strategies for MQTT packets."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from edge.protocol.mqtt import codec, properties
from edge.protocol.mqtt.codec import V5, V311
from edge.protocol.mqtt.properties import TABLE, WILL, Form, Prop, Properties
from edge.protocol.mqtt.reasons import ALLOWED, Packet

texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=12)
words = st.text(st.characters(exclude_characters="\0+#/$", exclude_categories=["Cs"]), min_size=1, max_size=5)
topics = st.lists(words, min_size=1, max_size=4).map("/".join)
filters = (
    st.lists(words | st.just("+"), min_size=1, max_size=4).map("/".join)
    | st.just("#")
    | topics.map(lambda topic: topic + "/#")
)
octets = st.binary(max_size=20)
ids = st.integers(1, 0xFFFF)

_FORMS: dict[Form, st.SearchStrategy[Any]] = {
    Form.TEXT: texts,
    Form.BINARY: octets,
    Form.PAIR: st.tuples(texts, texts),
}
_HIGH = {Form.BYTE: 0xFF, Form.TWO: 0xFFFF, Form.FOUR: 0xFFFF_FFFF, Form.VARINT: 268_435_455}


def _values(prop: int, packet: int) -> st.SearchStrategy[Any]:
    rule = TABLE[prop]
    if prop == Prop.RESPONSE_TOPIC:
        one: st.SearchStrategy[Any] = topics
    elif rule.form in _FORMS:
        one = _FORMS[rule.form]
    else:
        one = st.integers(rule.low, min(rule.high, _HIGH[rule.form]))
    return st.lists(one, min_size=1, max_size=3) if properties.repeatable(prop, packet) else one


def props(packet: int) -> st.SearchStrategy[Properties]:
    """Properties that a packet may carry."""
    allowed = [prop for prop, rule in TABLE.items() if packet in rule.packets]
    return st.fixed_dictionaries({}, optional={prop: _values(prop, packet) for prop in allowed})


def _props(packet: int, version: int) -> st.SearchStrategy[Properties]:
    return props(packet) if version == V5 else st.just({})


def packets(version: int) -> st.SearchStrategy[codec.AnyPacket]:
    """Any packet that a version knows."""
    found: list[st.SearchStrategy[Any]] = [
        connects(version),
        publishes(version),
        st.sampled_from([Packet.PUBACK, Packet.PUBREC, Packet.PUBREL, Packet.PUBCOMP]).flatmap(
            lambda kind: st.builds(codec.Ack, st.just(kind), ids, reasons(kind, version), _props(kind, version))
        ),
        st.builds(
            codec.Subscribe, ids, st.lists(wishes(version), min_size=1, max_size=3), _props(Packet.SUBSCRIBE, version)
        ),
        st.builds(
            codec.Suback,
            ids,
            st.lists(reasons(Packet.SUBACK, V5) if version == V5 else st.sampled_from([0, 1, 2, 0x80]), min_size=1),
            _props(Packet.SUBACK, version),
        ),
        st.builds(
            codec.Unsubscribe, ids, st.lists(filters, min_size=1, max_size=3), _props(Packet.UNSUBSCRIBE, version)
        ),
        st.builds(
            codec.Unsuback,
            ids,
            st.lists(reasons(Packet.UNSUBACK, V5), min_size=1) if version == V5 else st.just([]),
            _props(Packet.UNSUBACK, version),
        ),
        st.sampled_from([codec.Ping(Packet.PINGREQ), codec.Ping(Packet.PINGRESP)]),
        st.builds(codec.Disconnect, reasons(Packet.DISCONNECT, version), _props(Packet.DISCONNECT, version)),
        st.builds(
            codec.Connack,
            st.booleans(),
            reasons(Packet.CONNACK, V5) if version == V5 else st.integers(0, 5),
            _props(Packet.CONNACK, version),
        ),
    ]
    if version == V5:
        found.append(st.builds(codec.Auth, reasons(Packet.AUTH, V5), props(Packet.AUTH)))
    return st.one_of(found)


def reasons(kind: int, version: int) -> st.SearchStrategy[int]:
    """Reason codes of a packet."""
    return st.sampled_from(sorted(ALLOWED[Packet(kind)])) if version == V5 else st.just(0)


def wishes(version: int) -> st.SearchStrategy[codec.Wish]:
    """A filter with its options."""
    qos = st.integers(0, 2)
    if version == V311:
        return st.builds(codec.Wish, filters, qos)
    return st.builds(codec.Wish, filters, qos, st.booleans(), st.booleans(), st.integers(0, 2))


def wills(version: int) -> st.SearchStrategy[codec.Will]:
    """A will."""
    return st.builds(codec.Will, topics, octets, st.integers(0, 2), st.booleans(), _props(WILL, version))


@st.composite
def connects(draw: st.DrawFn, version: int) -> codec.Connect:
    """A CONNECT."""
    user = draw(st.none() | texts)
    password = draw(st.none() | octets) if user is not None or version == V5 else None
    found = draw(_props(Packet.CONNECT, version))
    if Prop.AUTHENTICATION_METHOD not in found:
        found.pop(Prop.AUTHENTICATION_DATA, None)
    return codec.Connect(
        draw(texts),
        draw(st.booleans()),
        draw(st.integers(0, 0xFFFF)),
        version,
        user,
        password,
        draw(st.none() | wills(version)),
        found,
    )


@st.composite
def publishes(draw: st.DrawFn, version: int) -> codec.PublishPacket:
    """A PUBLISH."""
    qos = draw(st.integers(0, 2))
    return codec.PublishPacket(
        draw(topics),
        draw(octets),
        qos,
        draw(st.booleans()),
        draw(st.booleans()) if qos else False,
        draw(ids) if qos else 0,
        draw(_props(Packet.PUBLISH, version)),
    )
