"""The codec reads what it writes, and of everything else says what is wrong with it."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.protocol.mqtt import codec
from edge.protocol.mqtt.codec import V5, V311, Frame
from edge.protocol.mqtt.fields import Fault
from edge.protocol.mqtt.reasons import Reason
from tests.protocol.mqtt.packets import packets

VERSIONS = st.sampled_from([V311, V5])


def read(data: bytes, version: int) -> codec.AnyPacket:
    """The one packet in some bytes."""
    found = codec.split(data, strict=version == V5)
    assert isinstance(found, Frame)
    assert found.end == len(data)
    return codec.decode(found.first, data, found.start, found.end, version)


@given(st.data(), VERSIONS)
def test_every_packet_survives_the_way_to_bytes_and_back(data: st.DataObject, version: int) -> None:
    packet = data.draw(packets(version))
    assert read(codec.encode(packet, version), version) == packet


@given(st.data(), VERSIONS)
def test_a_packet_is_known_only_when_its_last_byte_is_there(data: st.DataObject, version: int) -> None:
    raw = codec.encode(data.draw(packets(version)), version)
    cut = data.draw(st.integers(0, len(raw) - 1))
    wanted = codec.split(raw[:cut])
    assert isinstance(wanted, int)
    assert cut < wanted <= len(raw)


@given(st.binary(max_size=64), VERSIONS)
def test_random_bytes_raise_nothing_but_a_fault(raw: bytes, version: int) -> None:
    with suppress(Fault):
        found = codec.split(raw, limit=64)
        if isinstance(found, Frame):
            codec.decode(found.first, raw, found.start, found.end, version)


@given(st.data(), VERSIONS)
def test_a_damaged_packet_raises_nothing_but_a_fault(data: st.DataObject, version: int) -> None:
    raw = bytearray(codec.encode(data.draw(packets(version)), version))
    for _ in range(data.draw(st.integers(1, 3))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    with suppress(Fault):
        found = codec.split(bytes(raw))
        if isinstance(found, Frame):
            codec.decode(found.first, bytes(raw), found.start, found.end, version)


BAD = [
    # (clause, version, bytes, reason)
    ("MQTT-2.1.3-1: reserved type 0", V311, "00 00", Reason.MALFORMED_PACKET),
    ("3.1.1 §2.2.1: reserved type 15", V311, "f0 00", Reason.PROTOCOL_ERROR),
    ("MQTT-2.2.2-2 PINGREQ flags", V311, "c1 00", Reason.MALFORMED_PACKET),
    ("MQTT-2.2.2-2 SUBSCRIBE flags", V311, "80 06 0001 0001 61 00", Reason.MALFORMED_PACKET),
    ("MQTT-3.6.1-1 PUBREL flags", V311, "60 02 0001", Reason.MALFORMED_PACKET),
    ("MQTT-3.10.1-1 UNSUBSCRIBE flags", V311, "a0 05 0001 0001 61", Reason.MALFORMED_PACKET),
    ("MQTT-3.14.1-1 DISCONNECT flags", V311, "e1 00", Reason.MALFORMED_PACKET),
    ("PINGREQ with a body", V311, "c0 01 00", Reason.MALFORMED_PACKET),
    ("DISCONNECT with a body in 3.1.1", V311, "e0 01 00", Reason.MALFORMED_PACKET),
    ("MQTT-3.1.2-1 protocol name", V311, "10 0c 0004 4d515458 04 02 0000 0000", Reason.PROTOCOL_ERROR),
    ("MQTT-3.1.2-2 level 6", V311, "10 0c 0004 4d515454 06 02 0000 0000", Reason.UNSUPPORTED_PROTOCOL_VERSION),
    ("MQTT 3.1", V311, "10 0e 0006 4d5149736470 03 02 0000 0000", Reason.UNSUPPORTED_PROTOCOL_VERSION),
    ("MQTT-3.1.2-3 reserved flag", V311, "10 0c 0004 4d515454 04 03 0000 0000", Reason.MALFORMED_PACKET),
    ("MQTT-3.1.2-13 will QoS without will", V311, "10 0c 0004 4d515454 04 0a 0000 0000", Reason.MALFORMED_PACKET),
    ("MQTT-3.1.2-15 will retain without will", V311, "10 0c 0004 4d515454 04 22 0000 0000", Reason.MALFORMED_PACKET),
    (
        "MQTT-3.1.2-14 will QoS 3",
        V311,
        "10 11 0004 4d515454 04 1e 0000 0000 0001 61 0000",
        Reason.MALFORMED_PACKET,
    ),
    ("MQTT-3.1.2-22 password without user", V311, "10 0e 0004 4d515454 04 42 0000 0000 0000", Reason.MALFORMED_PACKET),
    ("client id past the end", V311, "10 0c 0004 4d515454 04 02 0000 0001", Reason.MALFORMED_PACKET),
    ("bytes after the CONNECT", V311, "10 0d 0004 4d515454 04 02 0000 0000 00", Reason.MALFORMED_PACKET),
    ("will topic empty", V311, "10 10 0004 4d515454 04 06 0000 0000 0000 0000", Reason.TOPIC_NAME_INVALID),
    ("will topic with a wildcard", V311, "10 11 0004 4d515454 04 06 0000 0000 0001 23 0000", Reason.TOPIC_NAME_INVALID),
    ("MQTT-1.5.3-1 ill-formed UTF-8", V311, "30 04 0002 c328", Reason.MALFORMED_PACKET),
    ("MQTT-1.5.3-1 surrogate", V311, "30 05 0003 eda080", Reason.MALFORMED_PACKET),
    ("MQTT-1.5.3-2 U+0000", V311, "30 05 0003 610062", Reason.MALFORMED_PACKET),
    ("MQTT-3.3.1-4 QoS 3", V311, "36 05 0001 61 0001", Reason.MALFORMED_PACKET),
    ("MQTT-3.3.1-2 DUP with QoS 0", V311, "38 03 0001 61", Reason.MALFORMED_PACKET),
    ("topic longer than the packet", V311, "30 04 0009 6162", Reason.MALFORMED_PACKET),
    ("MQTT-3.3.2-2 + in a topic", V311, "30 05 0003 612f2b", Reason.TOPIC_NAME_INVALID),
    ("MQTT-3.3.2-2 # in a topic", V311, "30 03 0001 23", Reason.TOPIC_NAME_INVALID),
    ("MQTT-4.7.3-1 empty topic", V311, "30 02 0000", Reason.PROTOCOL_ERROR),
    ("MQTT-2.3.1-1 packet id 0", V311, "32 05 0001 61 0000", Reason.PROTOCOL_ERROR),
    ("packet id past the end", V311, "32 04 0001 61 00", Reason.MALFORMED_PACKET),
    ("PUBACK with packet id 0", V311, "40 02 0000", Reason.PROTOCOL_ERROR),
    ("PUBACK with a reason in 3.1.1", V311, "40 03 0001 00", Reason.MALFORMED_PACKET),
    ("MQTT-3.8.3-3 SUBSCRIBE without a filter", V311, "82 02 0001", Reason.PROTOCOL_ERROR),
    ("MQTT-3.8.3-4 QoS 3 asked", V311, "82 06 0001 0001 61 03", Reason.MALFORMED_PACKET),
    ("MQTT-3.8.3-4 reserved bits in 3.1.1", V311, "82 06 0001 0001 61 04", Reason.MALFORMED_PACKET),
    ("filter without options", V311, "82 05 0001 0001 61", Reason.MALFORMED_PACKET),
    ("empty filter", V311, "82 05 0001 0000 00", Reason.TOPIC_FILTER_INVALID),
    ("MQTT-4.7.1-2 a#", V311, "82 07 0001 0002 6123 00", Reason.TOPIC_FILTER_INVALID),
    ("MQTT-4.7.1-3 a+", V311, "82 07 0001 0002 612b 00", Reason.TOPIC_FILTER_INVALID),
    ("MQTT-3.10.3-2 UNSUBSCRIBE without a filter", V311, "a2 02 0001", Reason.PROTOCOL_ERROR),
    ("MQTT-3.2.2-1 CONNACK flags", V311, "20 02 02 00", Reason.MALFORMED_PACKET),
    ("MQTT-3.9.3-2 SUBACK code 3", V311, "90 03 0001 03", Reason.MALFORMED_PACKET),
    ("SUBACK without codes", V311, "90 02 0001", Reason.MALFORMED_PACKET),
    ("UNSUBACK without codes in 5", V5, "b0 03 0001 00", Reason.MALFORMED_PACKET),
    ("four byte integer past the end", V5, "30 08 0001 61 04 02000000", Reason.MALFORMED_PACKET),
    ("MQTT 5 §2.2.2.2 unknown property", V5, "30 06 0001 61 02 0400", Reason.MALFORMED_PACKET),
    ("MQTT 5 §2.2.2.2 property of another packet", V5, "30 09 0001 61 05 1100000000", Reason.MALFORMED_PACKET),
    ("MQTT 5 §2.2.2.2 property twice", V5, "30 08 0001 61 04 01010101", Reason.PROTOCOL_ERROR),
    ("MQTT 5 payload format 2", V5, "30 06 0001 61 02 0102", Reason.PROTOCOL_ERROR),
    ("properties past the end", V5, "30 04 0001 61 09", Reason.MALFORMED_PACKET),
    ("no property length", V5, "30 03 0001 61", Reason.MALFORMED_PACKET),
    ("MQTT-1.5.5-1 property length too long", V5, "30 05 0001 61 8000", Reason.MALFORMED_PACKET),
    ("MQTT-3.3.4-6 subscription identifier 0", V5, "30 06 0001 61 02 0b00", Reason.PROTOCOL_ERROR),
    ("MQTT-3.3.2-14 response topic with wildcard", V5, "30 08 0001 61 04 08000123", Reason.PROTOCOL_ERROR),
    ("MQTT 5 §3.3.2.1 no topic, no alias", V5, "30 03 0000 00", Reason.PROTOCOL_ERROR),
    ("MQTT-3.8.3-5 reserved option bits", V5, "82 07 0001 00 0001 61 40", Reason.MALFORMED_PACKET),
    ("MQTT 5 §3.8.3.1 retain handling 3", V5, "82 07 0001 00 0001 61 30", Reason.MALFORMED_PACKET),
    ("MQTT-3.8.3-4 No Local and shared", V5, "82 10 0001 00 000a 2473686172652f672f61 04", Reason.PROTOCOL_ERROR),
    ("MQTT 5 §3.4.2.1 reason of another packet", V5, "40 03 0001 8e", Reason.MALFORMED_PACKET),
    ("MQTT 5 receive maximum 0", V5, "10 10 0004 4d515454 05 02 0000 03 210000 0000", Reason.PROTOCOL_ERROR),
    ("MQTT 5 maximum packet size 0", V5, "10 12 0004 4d515454 05 02 0000 05 2700000000 0000", Reason.PROTOCOL_ERROR),
    (
        "MQTT 5 §3.1.2.11.10 data without method",
        V5,
        "10 10 0004 4d515454 05 02 0000 03 160000 0000",
        Reason.PROTOCOL_ERROR,
    ),
]


@pytest.mark.parametrize(("clause", "version", "raw", "reason"), BAD, ids=[row[0] for row in BAD])
def test_what_breaks_a_clause_is_named(clause: str, version: int, raw: str, reason: Reason) -> None:
    with pytest.raises(Fault) as caught:
        read(bytes.fromhex(raw), version)
    assert caught.value.reason is reason


def test_a_header_of_five_bytes_is_malformed_at_once() -> None:
    with pytest.raises(Fault) as caught:
        codec.split(b"\x30\xff\xff\xff\xff")
    assert caught.value.reason is Reason.MALFORMED_PACKET


def test_a_remaining_length_that_is_not_the_shortest_is_malformed_in_5_only() -> None:
    raw = b"\xc0\x80\x00"
    assert codec.split(raw) == Frame(0xC0, 3, 3)
    with pytest.raises(Fault, match="shortest"):
        codec.split(raw, strict=True)


def test_a_packet_over_the_limit_is_refused_by_its_header_alone() -> None:
    assert codec.split(b"\x30\x62", limit=100) == 100
    with pytest.raises(Fault) as caught:
        codec.split(b"\x30\x63", limit=100)
    assert caught.value.reason is Reason.PACKET_TOO_LARGE


def test_a_topic_in_an_acknowledged_frame_keeps_its_byte_order_mark() -> None:
    """MQTT-1.5.4-3: 0xEF 0xBB 0xBF is U+FEFF and must not be skipped."""
    packet = read(b"\x30\x06\x00\x04\xef\xbb\xbfa", V311)
    assert isinstance(packet, codec.PublishPacket)
    assert packet.topic == "\ufeffa"


def test_what_does_not_fit_its_place_is_not_written() -> None:
    with pytest.raises(ValueError, match="65535"):
        codec.encode(codec.PublishPacket("a" * 70_000), V311)


def test_acks_of_5_leave_out_success_without_properties() -> None:
    """MQTT 5 §3.4.2.1."""
    assert codec.encode(codec.Ack(4, 1), V5) == b"\x40\x02\x00\x01"
    assert codec.encode(codec.Ack(4, 1, 0x87), V5) == b"\x40\x03\x00\x01\x87"
    assert codec.encode(codec.Disconnect(), V5) == b"\xe0\x00"
