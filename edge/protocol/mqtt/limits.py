"""Every bound of the MQTT engine, by name. Over a bound the engine closes, refuses or drops, as `about` says."""

from __future__ import annotations

from edge.contract.limit import declare

SHORT_OCTETS = 129
"""What a packet has at most whose length takes one byte; on its short way nobody looks at a limit."""

CONNECTIONS = declare("mqtt.connections", 1000, "connections", "more are closed at accept", None)
PER_ADDRESS = declare("mqtt.per_address", 100, "connections", "more from one address are closed at accept", None)
CONNECT_S = declare("mqtt.connect_s", 10, "s", "without a whole CONNECT the connection is closed", None)
CONNECT_OCTETS = declare(
    "mqtt.connect_octets",
    65_536,
    "bytes",
    "a larger first packet closes the connection; over WebSocket twice as much, with the handshake and frames",
    None,
    within="mqtt.packet_octets",
    least=SHORT_OCTETS,
)
PACKET_OCTETS = declare(
    "mqtt.packet_octets", 262_144, "bytes", "a larger packet closes the connection", None, least=SHORT_OCTETS
)
CLIENT_ID_OCTETS = declare("mqtt.client_id_octets", 512, "bytes", "a longer client id is refused", None)
TOPIC_OCTETS = declare("mqtt.topic_octets", 1024, "bytes", "a longer topic closes, a longer filter is refused", None)
TOPIC_LEVELS = declare("mqtt.topic_levels", 32, "levels", "a deeper topic closes, a deeper filter is refused", None)
INFLIGHT = declare("mqtt.inflight", 256, "messages", "sent to a client, unacknowledged; more wait in its queue", None)
RECEIVE_MAXIMUM = declare(
    "mqtt.receive_maximum", 256, "messages", "unacknowledged from a client: 5 is disconnected, 3.1.1 waits unread", None
)
UNRELEASED_OCTETS = declare(
    "mqtt.unreleased_octets",
    8_388_608,
    "bytes",
    "of a lasting session's QoS 2 messages before PUBREL, each and 256 more: 5 is refused, 3.1.1 closed",
    None,
)
QUEUE_MESSAGES = declare("mqtt.queue_messages", 1000, "messages", "waiting for a client: the least important go", None)
QUEUE_OCTETS = declare("mqtt.queue_octets", 1_048_576, "bytes", "waiting for a client: the least important go", None)
WRITE_OCTETS = declare(
    "mqtt.write_octets",
    262_144,
    "bytes",
    "unwritten to a client: QoS 0 to it is dropped; at twice as many it is left unread",
    None,
)
BLOCKED_S = declare("mqtt.blocked_s", 30, "s", "a client that takes nothing for so long is closed", None)
LINGER_S = declare("mqtt.linger_s", 5, "s", "what a closed connection has to take its last bytes", None)
RETAINED_TOPICS = declare("mqtt.retained_topics", 20_000, "topics", "a new retained topic is not kept", None)
RETAINED_OCTETS = declare("mqtt.retained_octets", 33_554_432, "bytes", "a retained message above is not kept", None)
RETAINED_TOPICS_PER_USER = declare(
    "mqtt.retained_topics_per_user", 5_000, "topics", "of one user: a new one is not kept; others have theirs", None
)
RETAINED_OCTETS_PER_USER = declare(
    "mqtt.retained_octets_per_user", 8_388_608, "bytes", "of one user's retained messages: more is not kept", None
)
SUBSCRIBE_OCTETS = declare(
    "mqtt.subscribe_octets",
    65_536,
    "bytes",
    "of a SUBSCRIBE or UNSUBSCRIBE; a larger one closes the connection",
    None,
    within="mqtt.packet_octets",
)
SUBSCRIPTIONS = declare("mqtt.subscriptions", 200, "filters", "of one client; more are refused", None)
SESSIONS = declare("mqtt.sessions", 1000, "sessions", "kept for absent clients; the one absent longest goes", None)
SESSIONS_PER_USER = declare(
    "mqtt.sessions_per_user", 50, "sessions", "kept for absent clients of one user; the one absent longest goes", None
)
SESSION_EXPIRY_S = declare("mqtt.session_expiry_s", 604_800, "s", "the longest a session is kept for", None)
HELD_ACKS = declare("mqtt.held_acks", 64, "acks", "that the store refused to keep: the connection is closed", None)
HELD_ACK_S = declare("mqtt.held_ack_s", 30, "s", "an ack waited so long for the store: the connection is closed", None)
READ_OCTETS = declare("mqtt.read_octets", 32_768, "bytes", "read from one connection before others have a turn", None)
TURN_WORK = declare(
    "mqtt.turn_work", 1_024, "packets", "of one connection in a turn (8 for one that needs more); the rest waits", None
)
KEEP_ALIVE_S = declare("mqtt.keep_alive_s", 60, "s", "longest keep-alive of a version 5 client", None)
TOPIC_ALIASES = declare("mqtt.topic_aliases", 64, "aliases", "each way of a version 5 connection", None)
ROUTES = declare("mqtt.routes", 10_000, "topics", "in the routing cache, which then starts anew", None)
WS_MESSAGE_OCTETS = declare(
    "mqtt.ws_message_octets", 1_048_576, "bytes", "of a WebSocket message; a larger one closes", None
)
RATE = declare("mqtt.rate", 0, "messages/s", "from one client; above it reading pauses; 0 is no limit", None)
