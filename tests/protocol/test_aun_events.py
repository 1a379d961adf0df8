"""What a connection hears: spec aun-services §1.1 (events), §3.4, §1.8; rules C-19, C-22."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from edge.contract.event import Event
from edge.contract.wire import JsonLimits, dumps, loads
from edge.protocol.aun_events import (
    FIRST_MOST,
    PUSHED_ONCE,
    PUSHED_TWICE,
    TYPE_LENGTH,
    Acked,
    Delivery,
    Recalled,
    flat_row,
    render,
    v2_row,
    weight,
)

SEED = {"device": {"id": "b1"}}
PEER = {**SEED, "capabilities": {"p2p_peer_pull_v1": True, "inline_realtime_payload_v1": True}}
HINTED = {**SEED, "capabilities": {"p2p_peer_pull_v1": True}}
LIMITS = JsonLimits(octets=1 << 24)


def delivery(text: str = "hi", **more: Any) -> Delivery:
    fields: dict[str, Any] = {
        "sender": "alice.edge.test",
        "to": "bobb.edge.test",
        "message_id": "m-9",
        "payload": msgspec.Raw(dumps({"type": "text", "text": text})),
        "sent_ms": 1_795_150_814_505,
        "payload_type": "text",
        "sender_device": "d7",
        "prev": 12,
    }
    return Delivery(**(fields | more))


def event(body: object, kind: str = "message.received", seq: int = 13) -> Event:
    return Event("inbox", "bobb.edge.test", seq, kind, dumps(body), frozenset({"bobb.edge.test"}))


def shown(event: Event, hello: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    frame = render(event, hello)
    assert frame is not None
    found = loads(frame, LIMITS)
    assert found["jsonrpc"] == "2.0"
    assert "id" not in found
    return found["method"], found["params"]


@pytest.mark.seed("S0-048")
def test_the_seed_gets_the_payload_flat() -> None:
    method, params = shown(event(delivery()), SEED)
    assert method == "event/message.received"
    assert params == {
        **params,
        "from": "alice.edge.test",
        "to": "bobb.edge.test",
        "message_id": "m-9",
        "seq": 13,
        "payload": {"type": "text", "text": "hi"},
        "timestamp": 1_795_150_814_505,
        "delivery_mode": "fanout",
        "encrypted": False,
    }
    assert "device_id" not in params


def test_the_current_sdk_gets_the_row_inline_and_the_seeds_fields_beside_it() -> None:
    method, params = shown(event(delivery()), PEER)
    assert method == "event/message.received"
    assert (params["prev_peer_seq"], params["seq"], params["device_id"]) == (12, 13, "b1")
    assert params["payload"] == {"type": "text", "text": "hi"}
    assert params["inline_message"] == {
        "version": "v1",
        "seq": 13,
        "message_id": "m-9",
        "from_aid": "alice.edge.test",
        "sender_device_id": "d7",
        "device_id": "b1",
        "t_server": 1_795_150_814_505,
        "type": "text",
        "need_render": True,
        "legacy_v1": {"to": "bobb.edge.test", "payload": {"type": "text", "text": "hi"}},
    }


def test_a_v2_envelope_is_an_event_of_its_own_for_the_current_sdk_only() -> None:
    text = b'{"type": "e2ee.p2p_encrypted", "n": 1.0}'
    body = delivery(payload=msgspec.Raw(text), v2=True, encrypted=True)
    method, params = shown(event(body), PEER)
    assert method == "event/peer.v2.message_received"
    assert "payload" not in params
    assert params["to_aid"] == "bobb.edge.test"
    assert params["inline_message"]["version"] == "v2"
    assert params["inline_message"]["envelope_json"].encode() == text
    method, params = shown(event(body), SEED)
    assert (method, params["encrypted"], params["payload"]["n"]) == ("event/message.received", True, 1)


@pytest.mark.parametrize(
    ("size", "flat", "inline"),
    [
        (PUSHED_TWICE, True, True),
        (PUSHED_TWICE + 1, False, True),
        (PUSHED_ONCE, False, True),
        (PUSHED_ONCE + 1, False, False),
    ],
)
def test_a_large_payload_is_pushed_once_or_not_at_all(size: int, flat: bool, inline: bool) -> None:
    empty = len(delivery("").payload)
    _, params = shown(event(delivery("x" * (size - empty))), PEER)
    assert ("payload" in params, "inline_message" in params) == (flat, inline)
    _, params = shown(event(delivery("x" * (size - empty))), SEED)
    assert "payload" in params


def test_the_first_sdk_gets_a_stand_in_for_a_frame_it_could_not_read() -> None:
    first = {**SEED, "capabilities": {"e2ee": True}}
    empty = len(delivery("").payload)
    largest, too_large = (event(delivery("x" * (FIRST_MOST - empty + more))) for more in (0, 1))
    frame = render(largest, first)
    assert frame is not None
    assert FIRST_MOST < len(frame) < 1 << 20
    _, params = shown(too_large, first)
    assert params["payload"] == {"type": "message.oversize", "octets": FIRST_MOST + 1}
    assert (params["seq"], params["message_id"]) == (13, "m-9")
    for hello in (SEED, PEER):
        assert "oversize" not in str(shown(too_large, hello)[1])[:500]


def test_without_the_inline_capability_the_push_is_a_hint() -> None:
    _, params = shown(event(delivery()), HINTED)
    assert "inline_message" not in params
    assert "prev_peer_seq" not in params
    assert (params["from_aid"], params["seq"]) == ("alice.edge.test", 13)


@pytest.mark.parametrize(("hello", "heard"), [(SEED, True), ({"device": {"id": "b2"}}, False), ({}, False)])
def test_a_message_for_some_devices_is_heard_by_those_only(hello: Mapping[str, Any], heard: bool) -> None:
    assert (render(event(delivery(devices=("b1", "b3"))), hello) is not None) is heard


def test_a_volatile_message_has_a_cursor_instead_of_a_number() -> None:
    body = delivery(cursor="v1:e:1", expires_ms=1_795_150_874_505)
    for hello in (SEED, PEER):
        _, params = shown(event(body, seq=0), hello)
        assert "seq" not in params
        assert "prev_peer_seq" not in params
        assert params == {
            **params,
            "storage": "volatile",
            "volatile_cursor": "v1:e:1",
            "created_at": 1_795_150_814_505,
            "expires_at": 1_795_150_874_505,
            "payload": {"type": "text", "text": "hi"},
        }


@pytest.mark.seed("S0-049")
def test_an_ack_names_who_acknowledged_what() -> None:
    body = Acked(
        by="bobb.edge.test",
        device="b1",
        slot="work",
        seq=43,
        sent_ms=1_709_712_003_000,
        sender="alice.edge.test",
        peer=True,
    )
    seed = {
        "to": "bobb.edge.test",
        "device_id": "b1",
        "slot_id": "work",
        "ack_seq": 43,
        "timestamp": 1_709_712_003_000,
    }
    assert shown(event(body, "message.ack"), SEED) == ("event/message.ack", seed)
    by_sender = {"cursor_scope": "peer", "sender_aid": "alice.edge.test", "peer_ack_seq": 43}
    assert shown(event(body, "message.ack"), PEER) == ("event/message.ack", seed | by_sender)
    whole = msgspec.structs.replace(body, peer=False)
    assert shown(event(whole, "message.ack"), PEER) == ("event/message.ack", seed)


@pytest.mark.seed("S0-050")
def test_a_recall_names_what_is_gone() -> None:
    body = Recalled(
        sender="alice.edge.test",
        to="bobb.edge.test",
        message_ids=("m-1",),
        sent_ms=1_709_712_000_000,
        tombstone="r-1",
        seq=7,
    )
    method, params = shown(event(body, "message.recalled"), SEED)
    assert method == "event/message.recalled"
    assert params == {
        "type": "message.recalled",
        "from": "alice.edge.test",
        "to": "bobb.edge.test",
        "message_ids": ["m-1"],
        "timestamp": 1_709_712_000_000,
        "message_id": "r-1",
        "seq": 7,
    }
    several = msgspec.structs.replace(body, message_ids=("m-1", "m-2"), seq=0)
    assert "seq" not in shown(event(several, "message.recalled"), PEER)[1]


def test_the_backlog_hint_is_for_those_who_read_a_catalogue() -> None:
    hint = Event("inbox", "bobb.edge.test", 0, "message.hint", b"{}")
    method, params = shown(hint, PEER)
    assert (method, params["kind"]) == ("event/peer.v2.message_received", "message.online_unread_hint")
    assert render(hint, SEED) is None


@pytest.mark.parametrize("kind", ["updated", "completed", "failed", "artifact", "delegated"])
def test_task_events_pass_as_they_are(kind: str) -> None:
    body = {"task_id": "01", "status": "working"}
    assert shown(event(body, f"task.{kind}"), SEED) == (f"event/task.{kind}", body)


@pytest.mark.parametrize("kind", ["reading", "device.added", "", "message.unheard-of"])
def test_what_aun_has_no_event_for_is_not_shown(kind: str) -> None:
    assert render(event({}, kind), PEER) is None


@pytest.mark.parametrize("kind", ["app.hello", "push.bound", "message.read_changed"])
def test_events_of_applications_push_and_reading_pass_as_they_are(kind: str) -> None:
    assert shown(event({"n": 1}, kind), SEED) == (f"event/{kind}", {"n": 1})
    assert shown(Event("inbox", "bobb.edge.test", 0, kind), SEED) == (f"event/{kind}", {})


def test_an_encrypted_volatile_message_is_pushed_with_its_payload_and_its_envelope() -> None:
    body = delivery(cursor="v1:e:1", expires_ms=1, v2=True, payload=msgspec.Raw(b'{"type": "e2ee.p2p_encrypted"}'))
    method, params = shown(event(body, seq=0), PEER)
    assert method == "event/peer.v2.message_received"
    assert params["payload"] == {"type": "e2ee.p2p_encrypted"}
    assert (params["version"], params["envelope_json"]) == ("v2", '{"type": "e2ee.p2p_encrypted"}')


def test_hostile_announcements_are_read_as_nothing() -> None:
    for hello in (
        {"device": 7, "capabilities": []},
        {"device": {"id": 7}, "capabilities": {"p2p_peer_pull_v1": "yes"}},
    ):
        _, params = shown(event(delivery()), hello)
        assert "device_id" not in params


def test_rows_say_when_they_are_the_senders_own() -> None:
    assert v2_row(delivery(own=True), 3)["direction"] == "outbound_sync"
    assert "direction" not in v2_row(delivery(), 3)
    assert flat_row(delivery(kind="e2ee.encrypted"), 3)["type"] == "e2ee.encrypted"
    assert "type" not in flat_row(delivery(), 3)


@pytest.mark.parametrize("v2", [False, True])
@pytest.mark.parametrize("cursor", ["", "epoch:7"])
@pytest.mark.parametrize("name", ["", "\x01" * 128, "é" * 128, "x"])
def test_no_row_is_heavier_than_its_weight(name: str, cursor: str, v2: bool) -> None:
    """But for the escapes of an envelope, which is a text inside a text."""
    payload = msgspec.Raw(b'{"t":[' + b",".join([b"1"] * 1_000) + b"]}")
    message = Delivery(
        sender="a" * 200 + ".edge.test",
        to="b" * 200 + ".edge.test",
        message_id=name,
        payload=payload,
        sent_ms=1 << 52,
        kind=name,
        payload_type="\x01" * TYPE_LENGTH,
        sender_device=name,
        encrypted=True,
        render=False,
        v2=v2,
        own=True,
        cursor=cursor,
        expires_ms=1 << 52 if cursor else 0,
    )
    for row in (flat_row(message, 1 << 52), v2_row(message, 1 << 52)):
        assert len(dumps(row)) <= weight(message)
