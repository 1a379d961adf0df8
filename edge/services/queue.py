"""`queue.*`: what waited and what was given up. Both files' loss ledgers as one answer (promise P2)."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping

import msgspec

from edge.contract.errors import InvalidParams
from edge.contract.gap import Gap
from edge.contract.op import Call, Params, op
from edge.contract.store import Store, Unit
from edge.contract.time import SECOND, Clock
from edge.store import ledger
from edge.store.ledger import Drop

MINUTE_US = 60 * SECOND

REASONS = {
    # messages of MQTT
    "expired": "its message expiry passed before it could be delivered, or the broker of your own stayed away too long",
    "queue_full": "a lasting session had too much waiting; the oldest of the least important class went",
    "no_room": "a connected client was too slow for what has no ack, or too much volatile mail waited",
    "not_authorized": "the client may not read that topic any more",
    "too_large_for_client": "larger than the packets that its client takes",
    "retained_full": "over the limits of retained messages: delivered, not retained",
    "session_expired": "the session's expiry passed with messages waiting",
    "session_ended": "a session ended with messages waiting",
    "session_discarded": "the client began anew (clean start) with messages waiting",
    "sessions_full": "too many absent sessions: the oldest went with its messages",
    "expelled": "the user was forgotten or revoked with messages waiting",
    "unreleased": "a session ended between PUBREC and PUBREL: the message was never handed on",
    "refused_not_authorized": "published to a topic that the client may not use",
    "refused_quota_exceeded": "over a limit of what is retained, or of what waits for PUBREL",
    "refused_payload_format_invalid": "said to be UTF-8 text and is none",
    "refused_store_full": "the disk was full; the client was told so",
    # a broker of your own, amqtt
    "not_connected": "to a broker of your own that was not connected, and without an ack to wait for",
    "spool_full": "too much waited for a broker of your own",
    "broker_not_authorized": "a broker of your own does not let the node publish on that topic",
    "broker_topic_name_invalid": "a broker of your own does not take such a topic",
    "broker_packet_too_large": "larger than the packets that a broker of your own takes",
    "broker_payload_format_invalid": "a broker of your own does not take such a payload",
    "broker_quota_exceeded": "a broker of your own said, again and again, that a quota is full",
    "broker_refused": "a broker of your own refused it again and again, without a reason that says more",
    "of_nobody": "by a broker of your own, on a topic that belongs to no principal",
    "unstored": "the store did not take what an engine had already acknowledged",
    # what devices say
    "too_large": "over the size that a value, an announcement or an event may have",
    "internal": "a fault of the node; the log has it",
    "malformed": "JSON that cannot be read",
    "incomplete": "an announcement without what it needs",
    "unsupported": "an announcement of something that is not supported",
    "bad_field": "an announcement with a field that cannot be so",
    "bad_id": "an announcement with an id that cannot be so",
    "bad_topic": "an announcement with a topic that cannot be one",
    "no_command": "an order without a topic or a template to send it by",
    "announced_twice": "two capabilities of one name in one announcement",
    "foreign_topic": "an announcement that names a topic which its publisher may not use",
    "unknown_publisher": "an announcement by nobody who is known",
    "high_risk_without_tls": "something of high risk announced by `mqtt.plain_lan`",
    "too_fast": "announcements faster than they are taken",
    "too_deep": "JSON nested too deep",
    "too_many_announcements": "over what one publisher may announce",
    "too_many_capabilities": "over what one device or publisher may have",
    "too_many_components": "over what one announcement may hold",
    "too_many_devices": "over what one publisher may have",
    "too_many_options": "over the options of one choice",
    # orders
    "no_such_device": "an event of a task, by nobody who is a device",
    "another_s_task": "an event of a task that is another device's",
    "refused_report": "an event of a task that cannot be taken as said",
    "report_lost": "a report of the node's own that the store did not take",
    "report_for_an_unknown_task": "an event of a task that is not there",
    "report_by_another_device": "an event of a task that is another device's",
    "report_after_the_end": "an event of a task that was over",
    # alarms, messages, groups, readings, push
    "undeliverable": "an alarm for an owner who has no inbox here, or whose inbox is full",
    "merged": "changes of an alarm in one message instead of several",
    "queue_restart": "mail of queue mode that was in memory when the node stopped",
    "ring_full": "too much mail of queue mode for one AID: the oldest went",
    "group_full": "too many messages in one group: the oldest went",
    "events_full": "too many events of one group: the oldest went",
    "evicted": "readings over `readings.keep_mib`: the oldest went",
    "too_many_wake_ups": "over what waits for the push servers",
    "no_push_server_confirmed_it": "a wake-up that no push server took in time",
    "refused_by_the_push_server": "a wake-up that the push server refused",
    # the store itself
    "unreadable": "a damaged disk made it unreadable",
    "restored": "a backup was put back: numbers go on above all that were given out",
    "a_reader_knows_later_numbers": "an older copy was put in place: numbers go on above what readers know",
    "the_incarnation_file_is_older_than_the_database": "as above, seen at the start",
    "the_incarnation_file_is_gone": "as above, seen at the start",
    "the_file_is_behind_its_mark": "as above, seen at the start",
    "its_wal_is_gone": "a database lost its last commits, seen at the start",
    "its_wal_is_damaged": "a database hid its last commits behind damage, seen at the start",
    "its_wal_is_empty": "a database lost its last commits, seen at the start",
    "its_wal_is_shorter_than_marked": "a database lost its last commits, seen at the start",
}
"""Every reason in `queue.drops`, and what it means. A file that was damaged says so in words of its own (log `*`)."""


def spelled(reason: str) -> str:
    """A reason in the one spelling there is: small letters, digits and `_`, whoever wrote it down."""
    return "_".join(re.findall(r"[a-z0-9]+", reason.lower()))


Counters = Callable[[], Mapping[str, Mapping[str, int]]]
"""Counts since the start that have no ledger row: where they are kept → name → how often."""


class DropsAsked(Params, frozen=True, kw_only=True):
    """Which losses: of one reason, of one client, of the last `since_s` seconds (0: ever); at most `limit` lines."""

    reason: str = ""
    client: str = ""
    since_s: int = 0
    limit: int = 200


class DropLine(msgspec.Struct, omit_defaults=True):
    """Losses of one log, class (or first topic level), reason and client. `last` is the newest, µs since 1970 UTC, to
    the minute where nothing had a number; `ranges` are the newest numbered ones as `[first, last]`."""

    log: str
    klass: str = msgspec.field(name="class")
    reason: str
    client: str
    count: int
    last: int | None = None
    ranges: list[tuple[int, int]] = []


class Drops(msgspec.Struct):
    """`total` is everything ever lost by log and reason, `matching` the sum of what was asked for in the entries still
    kept one by one; `pending` losses are counted and not yet on disk; `counters` count since the start."""

    total: list[Drop]
    matching: int
    lines: list[DropLine]
    more: int
    pending: int
    counters: dict[str, dict[str, int]]


RANGES = 20
"""Numbered ranges shown on one line."""


class QueueService:
    """Reads the ledgers of both files. `pending` tells what is counted and not yet written."""

    def __init__(
        self, stores: Mapping[str, Store], clock: Clock, pending: Callable[[], int], counters: Counters
    ) -> None:
        self._stores, self._clock = dict(stores), clock
        self._pending, self._counters = pending, counters

    @op("queue.drops", scope="queue:read", raises=(InvalidParams,), wire={"edge": ("queue.drops",)})
    async def drops(self, call: Call[DropsAsked]) -> Drops:
        """What was refused, expired, evicted or dropped: by class, reason and client, from both loss ledgers."""
        asked = call.params
        found = await asyncio.gather(*(self._of(store, asked) for store in self._stores.values()))
        lines = [line for _, some in found for line in some]
        lines.sort(key=lambda line: (-line.count, line.log, line.reason, line.client))
        limit = max(0, asked.limit)
        total = _summed([drop for drops, _ in found for drop in drops])
        known = {*REASONS, *(drop.reason for drop in total)}
        if asked.reason and spelled(asked.reason) not in known:
            raise InvalidParams(f"no such reason: {asked.reason[:40]}; there are: {', '.join(sorted(known))}")
        return Drops(
            total,
            sum(line.count for line in lines),
            lines[:limit],
            max(0, len(lines) - limit),
            self._pending(),
            {place: {name: n for name, n in counts.items() if n} for place, counts in self._counters().items()},
        )

    async def _of(self, store: Store, asked: DropsAsked) -> tuple[list[Drop], list[DropLine]]:
        """One file's totals and lines."""
        wall, now = self._clock.wall, self._clock.now()
        since_us = wall(now)[0] - asked.since_s * SECOND if asked.since_s > 0 else None

        def recent(gap: Gap) -> bool:
            width = 0 if gap.last else MINUTE_US
            return since_us is None or wall(gap.at)[0] + width > since_us

        reason = spelled(asked.reason)

        def look(unit: Unit) -> tuple[list[Drop], list[DropLine]]:
            gaps = [gap for gap in ledger.matching(unit, "", asked.client) if reason in ("", spelled(gap.reason))]
            return ledger.drops(unit), _lines([gap for gap in gaps if recent(gap)], lambda gap: wall(gap.at)[0])

        return await store.read(look)


def _lines(gaps: list[Gap], moment: Callable[[Gap], int]) -> list[DropLine]:
    """Gaps, newest first, added up."""
    lines: dict[tuple[str, str, str, str], DropLine] = {}
    for gap in gaps:
        key = (gap.log, gap.key, spelled(gap.reason), gap.who)
        line = lines.get(key)
        if line is None:
            line = lines[key] = DropLine(*key, 0, moment(gap), [])
        line.count += gap.count
        if gap.last and len(line.ranges) < RANGES:
            line.ranges.append((gap.first, gap.last))
    return list(lines.values())


def _summed(drops: list[Drop]) -> list[Drop]:
    sums: dict[tuple[str, str], int] = {}
    for drop in drops:
        place = drop.log, spelled(drop.reason)
        sums[place] = sums.get(place, 0) + drop.count
    return [Drop(log, reason, count) for (log, reason), count in sorted(sums.items())]
