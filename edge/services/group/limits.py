"""Limits of `group.*`."""

from __future__ import annotations

from edge.contract.errors import InvalidParams, MemberLimit, RateLimited, TooLarge
from edge.contract.limit import declare

GROUPS = declare("group.created", 100, "groups", "that one AID created and that still exist", RateLimited)
EVER = declare("group.ever", 10_000, "groups", "that one AID ever created: their names stay taken", RateLimited)
JOINED = declare("group.joined", 500, "groups", "that one AID is in", RateLimited)
MEMBERS = declare("group.members", 500, "members", "of one group", MemberLimit)
NAME = declare("group.name_length", 128, "characters", "of a group's name", InvalidParams)
TEXT = declare(
    "group.text_length", 4_000, "characters", "of a description, announcement, question or note", InvalidParams
)
METADATA = declare("group.metadata_octets", 16_384, "bytes", "of a group's metadata", TooLarge)
REASON = declare("group.reason_length", 255, "characters", "of a reason", InvalidParams)
STATUS = declare("group.status_length", 64, "characters", "of a member's online or work status", InvalidParams)
PAGE = declare("group.page_rows", 200, "rows", "in one page of anything; more is cut to it", None)
PAGE_OCTETS = declare("group.page_octets", 786_432, "bytes", "of one page with all its fields; more is cut", None)

PAYLOAD = declare("group.payload_octets", 786_432, "bytes", "compact JSON of one payload or envelope", TooLarge)
ATTACHMENTS = declare("group.attachments_octets", 16_384, "bytes", "of the attachments of one message", TooLarge)
MESSAGE_ID = declare("group.id_length", 128, "characters", "of a message_id or type", InvalidParams)
WRAPS = declare("group.recipients", 2_000, "devices", "that one encrypted message is for", TooLarge)
WRAP = declare("group.wrap_octets", 2_048, "bytes", "of one recipient's row of an encrypted message", TooLarge)
ROWS = declare("group.rows", 50_000, "messages", "kept of one group; the oldest are evicted", None)
OCTETS = declare("group.octets", 64 << 20, "bytes", "of messages and their keys kept of one group; the oldest go", None)
TTL = declare("group.ttl_s", 30 * 86_400, "seconds", "a group message is kept; then it ages out", None)
EVENT_OCTETS = declare("group.event_octets", 4 << 20, "bytes", "of events kept of one group; the oldest go", None)
RECALLS = declare("group.recall_ids", 100, "ids", "in one group.recall", InvalidParams)
RECALL_TIME = declare("group.recall_s", 120, "seconds", "after sending in which a message can be recalled", None)
UNREAD = declare("group.unread", 1_000, "messages", "counted as unread; more are shown as this many", None)
CURSORS = declare("group.cursors", 64, "places", "of one member that keep cursors; the stalest is forgotten", None)
LED = declare(
    "group.led", 1_000, "pairs", "of connection and group remembered as led over a jump; the oldest is led again", None
)
LED_ROWS = declare("group.led_rows", 200, "messages", "pushed when led; the rest waits for a pull", None)

INVITES = declare("group.invites", 500, "invites", "that wait, of one group", RateLimited)
CODES = declare("group.codes", 100, "codes", "kept of one group", RateLimited)
SHUTS = declare("group.bans", 1_000, "rows", "of bans or blocks of one group", RateLimited)
CODE_USES = declare("group.code_uses", 10_000, "uses", "of one invite code", InvalidParams)
CODE_TIME = declare("group.code_s", 30 * 86_400, "seconds", "the longest life of an invite code", InvalidParams)
CODE_LENGTH = declare("group.code_length", 64, "characters", "of an invite code", InvalidParams)
KEPT = declare("group.kept_s", 30 * 86_400, "seconds", "ended invites, requests, departures are remembered", None)

SETTINGS = declare("group.settings", 200, "settings", "of one group", RateLimited)
SETTING = declare("group.setting_octets", 65_536, "bytes", "of one setting", TooLarge)
SETTINGS_OCTETS = declare(
    "group.settings_octets", 786_432, "bytes", "of all settings of one group: one answer holds them", TooLarge
)
READS = declare("group.read_topics", 5_000, "positions", "that one AID has read to, all groups", RateLimited)
READ_NAME = declare("group.read_length", 128, "characters", "of a topic or message id that was read", InvalidParams)
READ_BATCH = declare("group.read_batch", 100, "positions", "in one group.read", InvalidParams)

DEVICES = declare("group.devices", 64, "devices", "of one member with group keys", RateLimited)
LISTED = declare(
    "group.listed_devices",
    2_000,
    "devices",
    "named in one group.v2.bootstrap; of more the newest, evenly of each member",
    None,
    within="group.recipients",
)
LISTED_OCTETS = declare(
    "group.listed_octets", 900_000, "bytes", "of those devices with their keys; of more the newest, evenly", None
)
KEY_OCTETS = declare("group.key_octets", 1_024, "bytes", "of one published key record", InvalidParams)
SNAPSHOT = declare("group.snapshot_octets", 262_144, "bytes", "of a proposed state", TooLarge)
PROPOSALS = declare("group.proposals", 16, "proposals", "that wait, of one group", RateLimited)
AUTO_CONFIRM = declare("group.auto_confirm_s", 3_600, "seconds", "the longest a proposal may wait", None)
ROTATION_LEASE = declare("group.rotation_lease_ms", 600_000, "ms", "the longest lease of a key rotation", None)
ROTATIONS = declare("group.rotations", 8, "rotations", "remembered of one group", None)
PROOF_SKEW = declare(
    "group.proof_skew_s", 300, "seconds", "between a proof of transfer or renewal and our time", InvalidParams
)

CONTEXTS = declare("group.thought_contexts", 100, "contexts", "of one sender in one group; the oldest goes", None)
THOUGHTS = declare("group.thoughts", 100, "thoughts", "of one context; the oldest goes", None)
THOUGHT_CONTEXT_OCTETS = declare(
    "group.thought_context_octets",
    1_200_000,
    "bytes",
    "of one context, as one answer holds it; the oldest thought goes",
    None,
)
THOUGHT_OCTETS = declare("group.thought_octets", 8 << 20, "bytes", "of all thoughts; the oldest context goes", None)
