"""Reason codes of MQTT 5 §2.4, which packets may carry them, and what a 3.1.1 client is told instead."""

from __future__ import annotations

from enum import IntEnum


class Packet(IntEnum):
    """Packet types, MQTT 5 §2.1.2."""

    CONNECT = 1
    CONNACK = 2
    PUBLISH = 3
    PUBACK = 4
    PUBREC = 5
    PUBREL = 6
    PUBCOMP = 7
    SUBSCRIBE = 8
    SUBACK = 9
    UNSUBSCRIBE = 10
    UNSUBACK = 11
    PINGREQ = 12
    PINGRESP = 13
    DISCONNECT = 14
    AUTH = 15


REFUSED = 0x80
"""Reason codes from here on are refusals (MQTT 5 §2.4); so is 0x80 in a SUBACK of 3.1.1."""


class Reason(IntEnum):
    """MQTT 5 §2.4. 0x00 is Success, Normal disconnection and Granted QoS 0."""

    SUCCESS = 0x00
    GRANTED_QOS_1 = 0x01
    GRANTED_QOS_2 = 0x02
    DISCONNECT_WITH_WILL = 0x04
    NO_MATCHING_SUBSCRIBERS = 0x10
    NO_SUBSCRIPTION_EXISTED = 0x11
    CONTINUE_AUTHENTICATION = 0x18
    RE_AUTHENTICATE = 0x19
    UNSPECIFIED_ERROR = 0x80
    MALFORMED_PACKET = 0x81
    PROTOCOL_ERROR = 0x82
    IMPLEMENTATION_SPECIFIC = 0x83
    UNSUPPORTED_PROTOCOL_VERSION = 0x84
    CLIENT_ID_NOT_VALID = 0x85
    BAD_USER_OR_PASSWORD = 0x86
    NOT_AUTHORIZED = 0x87
    SERVER_UNAVAILABLE = 0x88
    SERVER_BUSY = 0x89
    BANNED = 0x8A
    SERVER_SHUTTING_DOWN = 0x8B
    BAD_AUTHENTICATION_METHOD = 0x8C
    KEEP_ALIVE_TIMEOUT = 0x8D
    SESSION_TAKEN_OVER = 0x8E
    TOPIC_FILTER_INVALID = 0x8F
    TOPIC_NAME_INVALID = 0x90
    PACKET_ID_IN_USE = 0x91
    PACKET_ID_NOT_FOUND = 0x92
    RECEIVE_MAXIMUM_EXCEEDED = 0x93
    TOPIC_ALIAS_INVALID = 0x94
    PACKET_TOO_LARGE = 0x95
    MESSAGE_RATE_TOO_HIGH = 0x96
    QUOTA_EXCEEDED = 0x97
    ADMINISTRATIVE_ACTION = 0x98
    PAYLOAD_FORMAT_INVALID = 0x99
    RETAIN_NOT_SUPPORTED = 0x9A
    QOS_NOT_SUPPORTED = 0x9B
    USE_ANOTHER_SERVER = 0x9C
    SERVER_MOVED = 0x9D
    SHARED_SUBSCRIPTIONS_NOT_SUPPORTED = 0x9E
    CONNECTION_RATE_EXCEEDED = 0x9F
    MAXIMUM_CONNECT_TIME = 0xA0
    SUBSCRIPTION_IDS_NOT_SUPPORTED = 0xA1
    WILDCARDS_NOT_SUPPORTED = 0xA2


def _codes(*spans: int | tuple[int, int]) -> frozenset[int]:
    return frozenset(
        code for span in spans for code in ((span,) if isinstance(span, int) else range(span[0], span[1] + 1))
    )


_PUBLISHED = _codes(0x00, 0x10, 0x80, 0x83, 0x87, 0x90, 0x91, 0x97, 0x99)
ALLOWED: dict[Packet, frozenset[int]] = {
    Packet.CONNACK: _codes(0, (0x80, 0x8A), 0x8C, 0x90, 0x95, 0x97, (0x99, 0x9D), 0x9F),
    Packet.PUBACK: _PUBLISHED,
    Packet.PUBREC: _PUBLISHED,
    Packet.PUBREL: _codes(0x00, 0x92),
    Packet.PUBCOMP: _codes(0x00, 0x92),
    Packet.SUBACK: _codes((0, 2), 0x80, 0x83, 0x87, 0x8F, 0x91, 0x97, 0x9E, 0xA1, 0xA2),
    Packet.UNSUBACK: _codes(0x00, 0x11, 0x80, 0x83, 0x87, 0x8F, 0x91),
    Packet.DISCONNECT: _codes(0x00, 0x04, (0x80, 0x83), 0x87, 0x89, 0x8B, (0x8D, 0x90), (0x93, 0x9A), (0x9B, 0xA2)),
    Packet.AUTH: _codes(0x00, 0x18, 0x19),
}
"""Reason codes by packet (MQTT 5 §2.4, table 2-6)."""

FROM_CLIENT: dict[Packet, frozenset[int]] = {
    Packet.DISCONNECT: _codes(0x00, 0x04, (0x80, 0x83), (0x90, 0x90), (0x93, 0x99)),
}
"""What a client may say where that is less (MQTT 5 §3.14.2.1)."""

CONNACK_311: dict[int, int] = {
    Reason.SUCCESS: 0,
    Reason.UNSUPPORTED_PROTOCOL_VERSION: 1,
    Reason.CLIENT_ID_NOT_VALID: 2,
    Reason.SERVER_UNAVAILABLE: 3,
    Reason.SERVER_BUSY: 3,
    Reason.QUOTA_EXCEEDED: 3,
    Reason.BAD_USER_OR_PASSWORD: 4,
    Reason.NOT_AUTHORIZED: 5,
    Reason.BANNED: 5,
}
"""Return codes of MQTT 3.1.1 §3.2.2.3; what is not here closes without a CONNACK."""
