"""What a connection hears of groups, and the rows of group pulls, in the dialect that it announced.

Specs: aun-services §1.3 (events), §3.6 (rows, hints), rule C-22. A connection that announced `p2p_peer_pull_v1` gets
V2 rows and hints, everybody else flat rows with their payload. Payloads keep the sender's JSON text.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from edge.contract.event import Event
from edge.contract.store import INCARNATION_SHIFT
from edge.contract.wire import decode, dumps
from edge.protocol import aun, jsonrpc

CREATED, RECALLED, CHANGED, HINT = (
    "group.message_created",
    "group.message_recalled",
    "group.changed",
    "group.hint",
)
PUSHED = 262_144
"""A payload above this size is not pushed: its readers are told to pull."""

DISPATCH = {"mode": "broadcast", "reason": "duty_disabled"}
UNREAD = "group.online_unread_hint"


class GroupMessage(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A message of a group on its way to a reader, and the body of `group.message_created`. The number is the event's.

    `mode` is the mention mode that was in force. Of a V2 message the payload is the envelope without its recipients;
    `wrap` (a recipient row) and `proof` are the reader's own, and are there in answers to pulls only.
    """

    gid: str
    sender: str
    message_id: str
    payload: msgspec.Raw
    sent_ms: int
    device: str = ""
    kind: str = ""
    mode: str = "disabled"
    attachments: msgspec.Raw = msgspec.Raw(b"[]")
    encrypted: bool = False
    render: bool = True
    v2: bool = False
    wrap: dict[str, Any] = {}
    proof: list[dict[str, str]] | None = None


class Waiting(msgspec.Struct, frozen=True):
    """Body of a hint at connect: the heads of what a device has not read; 0 for nothing."""

    seq: int = 0
    event_seq: int = 0


def flat_row(message: GroupMessage, seq: int) -> dict[str, Any]:
    """A row of `group.pull`, and `message` in the answer to `group.send`."""
    return {
        "group_id": message.gid,
        "group_aid": message.gid,
        "seq": seq,
        "message_id": message.message_id,
        "sender_aid": message.sender,
        "from": message.sender,
        "sender_device_id": message.device,
        "message_type": message.kind,
        "type": message.kind,
        "payload": message.payload,
        "attachments": message.attachments,
        "encrypted": message.encrypted,
        "need_render": message.render,
        "mention_mode": message.mode,
        "created_at": message.sent_ms,
        "timestamp": message.sent_ms,
    }


def v2_row(message: GroupMessage, seq: int) -> dict[str, Any]:
    """A row of `group.v2.pull` and `group.history`, and the inline row of a push."""
    row: dict[str, Any] = {
        "group_id": message.gid,
        "seq": seq,
        "message_id": message.message_id,
        "from_aid": message.sender,
        "sender_device_id": message.device,
        "t_server": message.sent_ms,
        "type": message.kind,
        "need_render": message.render,
        "mention_mode": message.mode,
    }
    if message.v2:
        return row | {"version": "v2", "envelope_json": _envelope(message)}
    row |= {"version": "v1", "payload": message.payload}
    if bytes(message.attachments) not in (b"", b"[]"):
        row["attachments"] = message.attachments
    return row


def render(event: Event, hello: Mapping[str, Any]) -> bytes | None:
    """An event of `group.*` as the connection that announced `hello` reads it; None when it is not for it."""
    if event.kind == CREATED:
        return _created(event, hello)
    if event.kind == HINT:
        return _hint(event, hello)
    if event.kind == CHANGED:
        return jsonrpc.notification("event/group.changed", _changed(event, hello))
    return jsonrpc.notification(f"event/{event.kind}", event.body)


def _envelope(message: GroupMessage) -> str:
    """The stored envelope with the reader's own row and its proof in place of all rows."""
    body = bytes(message.payload)
    own = dumps({"recipient": message.wrap, "merkle_proof": message.proof or []})
    return (body[: body.rindex(b"}")] + b"," + own[1:]).decode()


def _created(event: Event, hello: Mapping[str, Any]) -> bytes | None:
    message = decode(event.body, GroupMessage)
    peer = aun.hello(hello).peer_pull
    head = {
        "module_id": "group",
        "group_id": message.gid,
        "group_aid": message.gid,
        "seq": event.seq,
        "message_id": message.message_id,
        "sender_aid": message.sender,
        "sender_device_id": message.device,
        "type": message.kind,
        "mention_mode": message.mode,
        "need_render": message.render,
        "timestamp": message.sent_ms,
    }
    if message.v2:
        if peer:
            own = message.device and message.device == aun.device_of(hello)
            return None if own else jsonrpc.notification("event/group.v2.message_created", dumps(head))
        return jsonrpc.notification("event/group.message_created", dumps(head | {"dispatch": DISPATCH}))
    head |= {"dispatch": DISPATCH, "kind": "group.broadcast"}
    if len(message.payload) <= PUSHED:
        if not peer:
            head |= {"from": message.sender, "payload": message.payload, "attachments": message.attachments}
            head |= {"encrypted": message.encrypted, "created_at": message.sent_ms}
        elif aun.capable(hello, "inline_realtime_payload_v1"):
            head["inline_message"] = v2_row(message, event.seq)
        else:
            head["payload"] = message.payload
    return jsonrpc.notification("event/group.message_created", dumps(head))


def _changed(event: Event, hello: Mapping[str, Any]) -> bytes:
    """The first SDK lists every number of a gap: a jump to a new incarnation must not look like one."""
    if event.seq >> INCARNATION_SHIFT == 0 or aun.hello(hello).peer_pull:
        return event.body
    fields = decode(event.body, dict[str, msgspec.Raw])
    return dumps({name: value for name, value in fields.items() if name not in ("event_seq", "seq")})


def _hint(event: Event, hello: Mapping[str, Any]) -> bytes | None:
    """Backlog at connect, messages or events; only the current SDK knows hints."""
    if not aun.hello(hello).peer_pull:
        return None
    waiting = decode(event.body, Waiting)
    params: dict[str, Any] = {"module_id": "group", "kind": UNREAD, "group_id": event.key, "group_aid": event.key}
    if waiting.seq:
        return jsonrpc.notification("event/group.v2.message_created", dumps(params | {"seq": waiting.seq}))
    return jsonrpc.notification("event/group.changed", dumps(params | {"event_seq": waiting.event_seq}))
