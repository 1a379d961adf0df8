"""Whose cursor a request means: the connection decides, a parameter that differs is refused (M-6, Q-18)."""

from __future__ import annotations

from typing import Any

from edge.contract.errors import InvalidParams, NotPermitted
from edge.contract.op import Call
from edge.protocol import aid as aids
from edge.protocol import aun
from edge.services.message import records as r
from edge.services.message.drafts import sender_of
from edge.store.messages import Reader


def reader_of(call: Call[Any], asked: r.Place) -> Reader:
    """The place of this connection. Raises `NotPermitted` for a device or slot that is another one's (Q-18)."""
    who = call.who
    if asked.device_id is not None and asked.device_id != who.device_id:
        raise NotPermitted("device_id is not the connection's")
    slot = aun.isolation_key(who.slot)
    if asked.slot_id is not None and aun.isolation_key(asked.slot_id) != slot:
        raise NotPermitted("slot_id is not the connection's")
    return Reader(sender_of(who), who.device_id, slot if who.device_id else "")


def scope_of(asked: r.Place) -> str:
    """The sender of a request by sender, "" for the whole inbox."""
    if asked.cursor_scope not in ("", "global", "peer"):
        raise InvalidParams("cursor_scope is global or peer")
    if asked.cursor_scope == "global":
        return ""
    if asked.cursor_scope == "peer" and not asked.sender_aid:
        raise InvalidParams("cursor_scope peer needs sender_aid")
    return aids.normal(asked.sender_aid) if asked.sender_aid else ""


def clamp(given: int | None, default: int, most: int) -> int:
    """Limits out of range are clamped (Q-11)."""
    return min(default, most) if given is None else max(1, min(given, most))


def place_of(reader: Reader) -> tuple[str, str]:
    """A reader's device and slot, as the ring and volatile messages know it."""
    return reader.device, reader.slot
