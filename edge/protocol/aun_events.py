"""What a connection hears: rows and events of `message.*` and `task.*` in the dialect that it announced.

Specs: aun-services §1.1 (events), §3.3 (row format), §3.4 (push), §1.8 (task events), rules C-19 and C-22. A
connection that announced `p2p_peer_pull_v1` gets V2 rows and hints, everybody else the seed's flat shape. Payloads
keep the sender's JSON text.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from edge.contract.event import Event
from edge.contract.wire import decode, dumps
from edge.protocol import aun, aun_group_events, jsonrpc

PUSHED_TWICE = 65_536
"""A payload up to this size travels in an event both flat and as an inline row (C-19); above, in the row only."""
PUSHED_ONCE = 524_288
"""Above this size a connection that pulls by peer gets a hint without the payload: two frames must fit its 2 MiB."""

FIRST_MOST = 1_045_000
"""The 0.2 SDK drops the connection at a frame above 1 MiB, for ever again at each pull: it gets a stand-in."""


TYPE_LENGTH = 128
"""A longer `type` inside a payload is not repeated beside it."""
NAME_OCTETS = 6
"""What a character of a name may take in JSON (a control character is `\\u0001`)."""
ROW_OCTETS = 400 + TYPE_LENGTH * NAME_OCTETS
"""What a row may have beside payload and names."""


class Delivery(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message on its way to a reader, and the body of `message.received`. The number is the event's.

    `devices`: who may see it (empty: every device). `prev`: number of the same sender's message before this one in
    the inbox, 0 for the first. `cursor` and `expires_ms` are set for volatile messages, which have no number.
    """

    sender: str
    to: str
    message_id: str
    payload: msgspec.Raw
    sent_ms: int
    mode: str = "fanout"
    kind: str = ""
    payload_type: str = ""
    sender_device: str = ""
    devices: tuple[str, ...] = ()
    encrypted: bool = False
    render: bool = True
    v2: bool = False
    own: bool = False
    recalled: bool = False
    targeted: bool = False
    prev: int = 0
    cursor: str = ""
    expires_ms: int = 0


class Acked(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Body of `message.ack`: reader (`by`, device, slot) has acknowledged what `sender` sent up to `seq`."""

    by: str
    device: str = ""
    slot: str = ""
    seq: int
    sent_ms: int
    sender: str
    peer: bool = False


class Recalled(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Body of `message.recalled`. `tombstone` is the id of the notice; `seq` 0 when there are several."""

    sender: str
    to: str
    message_ids: tuple[str, ...]
    sent_ms: int
    tombstone: str
    seq: int = 0


def render(event: Event, hello: Mapping[str, Any]) -> bytes | None:
    """An event as the connection that announced `hello` reads it; None when it is not for it."""
    if event.kind.startswith("group."):
        return aun_group_events.render(event, hello)
    if event.kind.startswith(("task.", "app.", "push.")) or event.kind == "message.read_changed":
        return jsonrpc.notification(f"event/{event.kind}", event.body or b"{}")
    shown = _MESSAGE_EVENTS.get(event.kind)
    return shown(event, hello) if shown else None


def first_generation(hello: Mapping[str, Any]) -> bool:
    """Does a connection announce itself as the 0.2 SDK does?"""
    return aun.capable(hello, "e2ee") and not aun.hello(hello).peer_pull


def bearable(message: Delivery, hello: Mapping[str, Any]) -> Delivery:
    """The message, or a stand-in that says how large it is to a client which could not receive it."""
    if len(message.payload) <= FIRST_MOST or not first_generation(hello):
        return message
    notice = {"type": "message.oversize", "octets": len(message.payload)}
    return msgspec.structs.replace(message, payload=msgspec.Raw(dumps(notice)), encrypted=False)


def weight(message: Delivery) -> int:
    """What a message takes in a page at most, the escapes of an envelope aside. `store.messages` counts alike."""
    names = (message.message_id, message.kind, message.sender_device, message.sender, message.to, message.cursor)
    copies = 2 if message.cursor else 1
    return copies * len(message.payload) + ROW_OCTETS + NAME_OCTETS * sum(map(len, names))


def flat_row(message: Delivery, seq: int) -> dict[str, Any]:
    """A row of `message.pull` (seed shape)."""
    row: dict[str, Any] = {
        "message_id": message.message_id,
        "from": message.sender,
        "to": message.to,
        "timestamp": message.sent_ms,
        "payload": message.payload,
        "delivery_mode": message.mode,
        "encrypted": message.encrypted,
        "from_aid": message.sender,
        "sender_device_id": message.sender_device,
        "need_render": message.render,
    }
    if message.kind:
        row["type"] = message.kind
    return _numbered(row, message, seq)


def v2_row(message: Delivery, seq: int) -> dict[str, Any]:
    """A row of `message.v2.pull` and `message.history`, and the inline row of a push (§3.3)."""
    row: dict[str, Any] = {
        "message_id": message.message_id,
        "from_aid": message.sender,
        "sender_device_id": message.sender_device,
        "t_server": message.sent_ms,
        "type": message.kind or message.payload_type,
        "need_render": message.render,
    }
    if message.v2:
        row |= {"version": "v2", "envelope_json": bytes(message.payload).decode()}
    else:
        row |= {"version": "v1", "legacy_v1": {"to": message.to, "payload": message.payload}}
    return _numbered(row, message, seq)


def _numbered(row: dict[str, Any], message: Delivery, seq: int) -> dict[str, Any]:
    if message.own:
        row["direction"] = "outbound_sync"
    if message.cursor:
        return row | _volatile(message)
    row["seq"] = seq
    return row


def _volatile(message: Delivery) -> dict[str, Any]:
    """What every form of a volatile message has; the payload is top-level in all of them (§3.4)."""
    return {
        "storage": "volatile",
        "volatile_cursor": message.cursor,
        "created_at": message.sent_ms,
        "expires_at": message.expires_ms,
        "payload": message.payload,
    }


def _received(event: Event, hello: Mapping[str, Any]) -> bytes | None:
    """For a connection that pulls by peer, `device_id` is the *target*: the SDK drops an event for another (§3.4)."""
    message = decode(event.body, Delivery)
    device = aun.device_of(hello)
    if message.devices and device not in message.devices:
        return None
    if not aun.hello(hello).peer_pull:
        return jsonrpc.notification("event/message.received", dumps(flat_row(bearable(message, hello), event.seq)))
    target = {"device_id": device} if device else {}
    params = flat_row(message, event.seq) | {"sender_aid": message.sender, "to_aid": message.to} | target
    if message.cursor:
        if message.v2:
            params |= v2_row(message, event.seq)
    else:
        if message.v2 or len(message.payload) > PUSHED_TWICE:
            del params["payload"]
        if aun.capable(hello, "inline_realtime_payload_v1") and len(message.payload) <= PUSHED_ONCE:
            params |= {"prev_peer_seq": message.prev, "inline_message": v2_row(message, event.seq) | target}
    method = "event/peer.v2.message_received" if message.v2 else "event/message.received"
    return jsonrpc.notification(method, dumps(params))


def _acked(event: Event, hello: Mapping[str, Any]) -> bytes:
    ack = decode(event.body, Acked)
    params: dict[str, Any] = {
        "to": ack.by,
        "device_id": ack.device,
        "slot_id": ack.slot,
        "ack_seq": ack.seq,
        "timestamp": ack.sent_ms,
    }
    if ack.peer and aun.hello(hello).peer_pull:
        params |= {"cursor_scope": "peer", "sender_aid": ack.sender, "peer_ack_seq": ack.seq}
    return jsonrpc.notification("event/message.ack", dumps(params))


def _recalled(event: Event, hello: Mapping[str, Any]) -> bytes:
    recall = decode(event.body, Recalled)
    params: dict[str, Any] = {
        "type": "message.recalled",
        "from": recall.sender,
        "to": recall.to,
        "message_ids": recall.message_ids,
        "timestamp": recall.sent_ms,
        "message_id": recall.tombstone,
    }
    if recall.seq:
        params["seq"] = recall.seq
    return jsonrpc.notification("event/message.recalled", dumps(params))


def _hint(event: Event, hello: Mapping[str, Any]) -> bytes | None:
    """Backlog at connect: the current SDK asks for its catalogue; others would take it for a message.

    So would that SDK, as `event/message.received`, when the hint is faster than its own handling of the connect answer.
    """
    if not aun.hello(hello).peer_pull:
        return None
    params = {"kind": "message.online_unread_hint", "to": event.key}
    return jsonrpc.notification("event/peer.v2.message_received", dumps(params))


_MESSAGE_EVENTS: Mapping[str, Callable[[Event, Mapping[str, Any]], bytes | None]] = {
    "message.received": _received,
    "message.ack": _acked,
    "message.recalled": _recalled,
    "message.hint": _hint,
}
