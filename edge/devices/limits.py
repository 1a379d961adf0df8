"""What others may ask of the devices area, by name."""

from __future__ import annotations

from edge.contract.errors import RateLimited
from edge.contract.limit import Limits, declare
from edge.protocol.discovery.record import Bounds

PACKET = "mqtt.packet_octets"
"""What a payload travels in."""

DISCOVERY_OCTETS = declare(
    "devices.discovery_octets", 65_536, "bytes", "one discovery payload; a larger one is refused", None, within=PACKET
)
DISCOVERY_DEPTH = declare("devices.discovery_depth", 16, "levels", "nesting of a discovery payload", None)
COMPONENTS = declare("devices.components", 256, "components", "in one discovery payload", None)
DEVICES_PER_PUBLISHER = declare(
    "devices.per_publisher", 1_000, "devices", "announced by one MQTT user; further ones are refused", None
)
COMPONENTS_PER_PUBLISHER = declare(
    "devices.components_per_publisher", 10_000, "capabilities", "announced by one MQTT user", None
)
CAPABILITIES_PER_DEVICE = declare(
    "devices.capabilities_per_device", 256, "capabilities", "of one device; further ones are refused", None
)
TEMPLATE = declare(
    "devices.template_length",
    1_024,
    "characters",
    "one template; a longer one is unsupported, raw values are kept",
    None,
)
OPTIONS = declare("devices.options", 128, "options", "of one choice", None)
VALUE_OCTETS = declare("devices.value_octets", 4_096, "bytes", "one value as JSON; a larger one is not kept", None)
STATE_OCTETS = declare(
    "devices.state_octets", 65_536, "bytes", "one state payload; a larger one is not read", None, within=PACKET
)
UNKNOWN_TOPICS = declare(
    "devices.unknown_topics", 1_024, "topics", "without a device whose last message is remembered", None
)
UNKNOWN_OCTETS = declare(
    "devices.unknown_octets", 4_096, "bytes", "of a message that is remembered until its device is announced", None
)
EVENT_OCTETS = declare(
    "devices.event_octets", 262_144, "bytes", "one task event of a native device", None, within=PACKET
)
COMMAND_OCTETS = declare("devices.command_octets", 4_096, "bytes", "one command value")
ANNOUNCE_OCTETS = declare(
    "devices.announce_octets", 8 << 20, "bytes", "one publisher may announce in a burst; repeats are free", None
)
ANNOUNCE_RATE = declare(
    "devices.announce_rate", 64 << 10, "bytes/s", "one publisher may announce for good; more is refused", None
)
OPEN_ORDERS = declare("devices.open_orders", 1_024, "orders", "sent to devices and not finished", RateLimited)
REPORT_TRIES = declare(
    "devices.report_tries", 60, "tries", "a second apart, of an outcome that the store refuses; then it is lost", None
)
HOLD_S = declare("devices.hold_s", 86_400, "seconds", "an order waits for a device that is offline", None)
TAP_QUEUE = declare(
    "devices.tap_queue", 1_000, "messages", "waiting for one `mqtt sub`; further ones are skipped", None
)
TAPS = declare("devices.taps", 16, "subscriptions", "of `mqtt sub` at once", RateLimited)
HISTORY_ROWS = declare("devices.history_rows", 1_000, "readings", "in one answer of `device.history`", None)
PUBLISH_OCTETS = declare("devices.publish_octets", 262_144, "bytes", "one `mqtt pub`", within=PACKET)


def bounds(limits: Limits) -> Bounds:
    """The bounds of the parsers."""
    return Bounds(
        octets=limits[DISCOVERY_OCTETS],
        depth=limits[DISCOVERY_DEPTH],
        components=limits[COMPONENTS],
        template=limits[TEMPLATE],
        value=limits[VALUE_OCTETS],
        options=limits[OPTIONS],
    )
