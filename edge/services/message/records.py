"""Params, results and limits of `message.*`."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from edge.contract.errors import InvalidParams, RateLimited, TooLarge
from edge.contract.limit import declare
from edge.contract.op import Params

PAYLOAD = declare(
    "message.payload_octets", 1_048_576, "bytes", "compact JSON of one payload", TooLarge, within="message.row_octets"
)
ROW = declare("message.row_octets", 1_900_000, "bytes", "an encrypted payload as a JSON string in a row", TooLarge)
MESSAGE_ID = declare("message.id_length", 128, "characters", "of a message_id, type or device_id", InvalidParams)
RECALLS = declare("message.recall_ids", 100, "ids", "in one message.recall", InvalidParams)
ONLINE = declare("message.online_aids", 100, "AIDs", "in one message.query_online", InvalidParams)
PAGE_ROWS = declare("message.page_rows", 200, "messages", "in one page; more is cut to it", None)
PAGE_OCTETS = declare("message.page_octets", 900_000, "bytes", "of one page with all its fields; more is cut", None)
INBOX_ROWS = declare("message.inbox_rows", 100_000, "messages", "kept for one recipient", RateLimited)
INBOX_OCTETS = declare("message.inbox_octets", 64 << 20, "bytes", "of payload kept for one recipient", RateLimited)
INBOX_SHARE = declare(
    "message.inbox_share", 50, "percent", "one sender may hold of what the others leave of these two", RateLimited
)
INBOX_SENDERS = declare(
    "message.inbox_senders", 3_000, "senders", "with messages in one inbox: one answer names them all", RateLimited
)
INBOX_RESERVE = declare(
    "message.inbox_reserve", 10, "percent", "above those two for what our devices and services say, as alarms do", None
)
TTL = declare("message.ttl_s", 86_400, "seconds", "a message is kept; then it ages out", None)
RECALL_TIME = declare("message.recall_s", 120, "seconds", "after sending in which a message can be recalled", None)
RING_ROWS = declare("message.ring_rows", 200, "messages", "of queue mode kept for one AID; the oldest is evicted", None)
RING_OCTETS = declare("message.ring_octets", 4 << 20, "bytes", "of queue mode kept for one AID; oldest evicted", None)
RING_TOTAL = declare("message.ring_total_octets", 32 << 20, "bytes", "of queue mode and volatile in all", RateLimited)
RING_SHARE = declare(
    "message.ring_share", 50, "percent", "one sender may hold of what the others leave of that", RateLimited
)
RING_TIME = declare("message.ring_s", 300, "seconds", "a queue message is kept; then it ages out", None)
AFFINITY = declare("message.affinity_s", 300, "seconds", "of silence after which a sender is routed anew", None)
AFFINITIES = declare("message.affinities", 10_000, "pairs", "of recipient and sender remembered for routing", None)
JUMPS = declare("message.jumps", 1_000, "channels", "remembered as led over a jump; the oldest is led again", None)
VOLATILE_TIME = declare("message.volatile_s", 3_600, "seconds", "the longest life of a volatile message", None)
VOLATILE_ROWS = declare("message.volatile_rows", 200, "messages", "volatile, for one AID; the oldest is evicted", None)
DEVICES = declare("message.devices", 64, "devices", "of one AID with keys; more are refused", RateLimited)
KEY_OCTETS = declare("message.key_octets", 4_096, "bytes", "of one published key record", InvalidParams)
SPK_OCTETS = declare("message.spk_octets", 1_024, "bytes", "of one signed prekey (V2), signature too", InvalidParams)

Mode = str | dict[str, Any] | None


class Send(Params, frozen=True, kw_only=True):
    """`timestamp` of the caller is not read: the node's time counts."""

    to: str
    payload: msgspec.Raw
    type: str = ""
    encrypted: bool = False
    message_id: str = ""
    delivery_mode: Mode = None
    device_id: str = ""
    to_device_id: str = ""
    ttl: int = 0
    need_render: bool = True


class Sent(msgspec.Struct, omit_defaults=True, kw_only=True):
    """`status`: sent, delivered (the recipient is online), accepted (volatile), duplicate."""

    message_id: str
    timestamp: int
    status: str
    delivery_mode: str = ""
    seq: int = 0
    storage: str = ""
    volatile_cursor: str = ""
    created_at: int = 0
    expires_at: int = 0


class Place(Params, frozen=True, kw_only=True):
    """What says whose cursor is meant; the connection decides, a param that differs is refused."""

    device_id: str | None = None
    slot_id: str | None = None
    cursor_scope: str = ""
    sender_aid: str = ""


class Pull(Place, frozen=True, kw_only=True):
    """`cursor_scope` `peer` reads one sender's messages, otherwise the whole inbox."""

    after_seq: int | None = None
    limit: int | None = None
    force: bool = False
    window_mode: str = ""
    after_volatile_cursor: str = ""
    ack_up_to_seq: int | None = None


class Page(msgspec.Struct, omit_defaults=True, kw_only=True):
    """Messages, and the proof of what they cover. Which fields are there depends on the scope asked for."""

    messages: list[dict[str, Any]]
    count: int | UnsetType = UNSET
    latest_seq: int | UnsetType = UNSET
    ephemeral_earliest_available_seq: int | UnsetType | None = UNSET
    ephemeral_dropped_count: int | UnsetType = UNSET
    cursor_scope: str | UnsetType = UNSET
    sender_aid: str | UnsetType = UNSET
    scan_after_seq: int | UnsetType = UNSET
    covered_through_seq: int | UnsetType = UNSET
    next_after_seq: int | UnsetType = UNSET
    head_seq: int | UnsetType = UNSET
    window_start_seq: int | UnsetType | None = UNSET
    next_before_seq: int | UnsetType | None = UNSET
    has_older: bool | UnsetType = UNSET
    persistent_has_more: bool | UnsetType = UNSET
    volatile_has_more: bool | UnsetType = UNSET
    has_more: bool | UnsetType = UNSET
    server_ack_seq: int | UnsetType = UNSET
    retention_floor_seq: int | UnsetType = UNSET
    earliest_available_seq: int | UnsetType | None = UNSET
    latest_volatile_cursor: str | UnsetType | None = UNSET
    volatile_dropped_count: int | UnsetType = UNSET


class Ack(Place, frozen=True, kw_only=True):
    """`seq` (inbox) or `up_to_seq` (one sender), volatile messages by cursor or id, or both."""

    seq: int | None = None
    up_to_seq: int | None = None
    volatile_cursor: str = ""
    volatile_cursors: tuple[str, ...] = ()
    volatile_ids: tuple[str, ...] = ()


class VolatileAck(msgspec.Struct):
    """How many of the named volatile messages were still there, and how many were not."""

    accepted: int
    expired: int


class AckResult(msgspec.Struct, omit_defaults=True, kw_only=True):
    """Where the cursor stands now."""

    success: bool
    ack_seq: int | UnsetType = UNSET
    cursor_scope: str | UnsetType = UNSET
    sender_aid: str | UnsetType = UNSET
    peer_ack_seq: int | UnsetType = UNSET
    effective_ack_seq: int | UnsetType = UNSET
    volatile_ack: VolatileAck | UnsetType = UNSET


class Recall(Params, frozen=True, kw_only=True):
    """Only the sender's own, only within two minutes, only fanout."""

    message_ids: tuple[str, ...]


class RecallFailure(msgspec.Struct):
    """`not_found`, `not_sender`, `already_recalled` or `expired`."""

    message_id: str
    error: str


class RecallResult(msgspec.Struct):
    """`accepted` ids were looked at, `recalled` of them are gone; `errors` is null when all are."""

    success: bool
    accepted: int
    recalled: int
    errors: list[RecallFailure] | None


class QueryOnline(Params, frozen=True, kw_only=True):
    """Which AIDs to ask for."""

    aids: tuple[str, ...]


class Online(msgspec.Struct):
    """Unknown and unreachable AIDs are offline, never an error."""

    online: dict[str, bool]


class Peers(Params, frozen=True, kw_only=True):
    """`pending` is complete in one answer; `all` is paged."""

    filter: str = "pending"
    limit: int | None = None
    page_token: str | None = None


class PeerEntry(msgspec.Struct, omit_defaults=True, kw_only=True):
    """One sender with messages in the inbox."""

    sender_aid: str
    head_seq: int
    server_ack_seq: int
    initial_after_seq: int
    initialization_source: str
    next_pending_seq: int | UnsetType = UNSET
    volatile_has_more: bool
    retention_floor_seq: int
    earliest_available_seq: int | None


class Catalogue(msgspec.Struct, omit_defaults=True, kw_only=True):
    """Who wrote, and how far this reader has read each of them."""

    cursor_scope: str
    receiver_aid: str
    device_id: str
    bootstrap_floor_seq: int
    catalog_ready: bool
    catalog_revision: int
    peers: list[PeerEntry]
    filter: str
    has_more: bool | UnsetType = UNSET
    next_page_token: str | UnsetType = UNSET


class History(Place, frozen=True, kw_only=True):
    """Pages backwards from below `before_seq`."""

    before_seq: int
    limit: int | None = None


class PutPeerKey(Params, frozen=True, kw_only=True):
    """A device's signed prekey (V2)."""

    peer_aid: str
    key_source: str = "peer_device_prekey"
    spk_id: str
    spk_pk: str
    spk_signature: str
    spk_timestamp: int


class Stored(msgspec.Struct):
    """It is on disk."""

    ok: bool = True


class Bootstrap(Params, frozen=True, kw_only=True):
    """Whose devices to encrypt for."""

    peer_aid: str


class DeviceKey(msgspec.Struct, omit_defaults=True, kw_only=True):
    """One device's keys; a row without `spk_id` stands for an AID that never published any (1DH wrap)."""

    aid: str
    device_id: str
    key_source: str | UnsetType = UNSET
    spk_id: str | UnsetType = UNSET
    spk_pk: str | UnsetType = UNSET
    spk_signature: str | UnsetType = UNSET
    spk_timestamp: int | UnsetType = UNSET


class Bootstrapped(msgspec.Struct, kw_only=True):
    """`e2ee_wrap_policy` null leaves the choice to the client."""

    peer_devices: list[DeviceKey]
    self_devices: list[DeviceKey]
    audit_recipients: list[DeviceKey]
    e2ee_wrap_policy: dict[str, str] | None


class PutPrekey(Params, frozen=True, kw_only=True):
    """A device's prekey (first generation)."""

    prekey_id: str
    public_key: str
    signature: str
    created_at: int
    cert_fingerprint: str = ""
    device_id: str = ""
    device_name: str = ""


class GetPrekey(Params, frozen=True, kw_only=True):
    """Whose prekeys."""

    aid: str


class Prekeys(msgspec.Struct, omit_defaults=True):
    """`prekey` repeats the first of `device_prekeys` for older clients."""

    found: bool
    device_prekeys: list[dict[str, Any]]
    prekey: dict[str, Any] | UnsetType = UNSET
