"""The data types of MQTT (5 §1.5): integers, strings, binary, variable byte integers; strict, inside one frame."""

from __future__ import annotations

from edge.protocol.mqtt.reasons import Reason

MAX_VARINT = 268_435_455
"""Largest variable byte integer (MQTT 5 §1.5.5)."""


class Fault(Exception):
    """What a peer sent breaks the protocol; `reason` says how (MQTT 5), `clause` where it is written."""

    def __init__(self, reason: Reason, clause: str) -> None:
        super().__init__(f"{reason.name.lower()}: {clause}")
        self.reason = reason
        self.clause = clause
        self.version = 0
        """Of the CONNECT that it was found in, where that can be answered (5)."""


def malformed(clause: str) -> Fault:
    """A packet that cannot be parsed."""
    return Fault(Reason.MALFORMED_PACKET, clause)


def violation(clause: str) -> Fault:
    """A packet that can be parsed and is not allowed."""
    return Fault(Reason.PROTOCOL_ERROR, clause)


def u16(data: bytes, pos: int, end: int) -> tuple[int, int]:
    """Two byte integer."""
    if pos + 2 > end:
        raise malformed("§1.5.2 integer past the end of the packet")
    return data[pos] << 8 | data[pos + 1], pos + 2


def u32(data: bytes, pos: int, end: int) -> tuple[int, int]:
    """Four byte integer."""
    if pos + 4 > end:
        raise malformed("§1.5.3 integer past the end of the packet")
    return int.from_bytes(data[pos : pos + 4], "big"), pos + 4


def u8(data: bytes, pos: int, end: int) -> tuple[int, int]:
    """One byte."""
    if pos >= end:
        raise malformed("byte past the end of the packet")
    return data[pos], pos + 1


def varint(data: bytes, pos: int, end: int) -> tuple[int, int]:
    """Variable byte integer in its shortest form (MQTT-1.5.5-1)."""
    value = shift = 0
    for at in range(pos, min(pos + 4, end)):
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if byte == 0 and shift:
                raise malformed("MQTT-1.5.5-1 not the shortest form")
            return value, at + 1
        shift += 7
    raise malformed("§1.5.5 variable byte integer")


def binary(data: bytes, pos: int, end: int) -> tuple[bytes, int]:
    """Binary data with its length before it."""
    length, pos = u16(data, pos, end)
    if pos + length > end:
        raise malformed("§1.5.6 length past the end of the packet")
    return data[pos : pos + length], pos + length


def text(data: bytes, pos: int, end: int) -> tuple[str, int]:
    """UTF-8 string: well formed, no surrogates (MQTT-1.5.4-1), no U+0000 (MQTT-1.5.4-2)."""
    raw, pos = binary(data, pos, end)
    return to_text(raw), pos


def to_text(raw: bytes) -> str:
    """Checked UTF-8."""
    if 0 in raw:
        raise malformed("MQTT-1.5.4-2 U+0000 in a string")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        raise malformed("MQTT-1.5.4-1 ill-formed UTF-8") from None


def put_varint(value: int) -> bytes:
    """Shortest form. Raises `ValueError` above 268 435 455."""
    if value < 0x80:
        return bytes((value,))
    if value > MAX_VARINT:
        raise ValueError("above the largest variable byte integer")
    out = bytearray()
    while True:
        value, low = value >> 7, value & 0x7F
        out.append(low | 0x80 if value else low)
        if not value:
            return bytes(out)


def put_binary(raw: bytes) -> bytes:
    """Binary data with its length before it. Raises `ValueError` above 65 535 bytes."""
    if len(raw) > 0xFFFF:
        raise ValueError("longer than 65535 bytes")
    return len(raw).to_bytes(2, "big") + raw


def put_text(value: str) -> bytes:
    """UTF-8 string."""
    return put_binary(value.encode())
