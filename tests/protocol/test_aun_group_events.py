"""What a connection hears of groups: spec aun-services §1.3 (events), §3.6 (rows, hints), §5.3; rules C-22, G-22."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from edge.contract.event import Event
from edge.contract.store import INCARNATION_SHIFT
from edge.contract.wire import JsonLimits, dumps, loads
from edge.protocol import aun_events
from edge.protocol.aun_group_events import (
    CHANGED,
    CREATED,
    HINT,
    PUSHED,
    RECALLED,
    UNREAD,
    GroupMessage,
    Waiting,
    flat_row,
    render,
    v2_row,
)

GID, ALICE = "g-c0ffee.edge.test", "alice.edge.test"
SEED: Mapping[str, Any] = {"device": {"id": "b1"}}
HINTED: Mapping[str, Any] = {**SEED, "capabilities": {"p2p_peer_pull_v1": True}}
INLINE: Mapping[str, Any] = {**SEED, "capabilities": {"p2p_peer_pull_v1": True, "inline_realtime_payload_v1": True}}
LIMITS = JsonLimits(octets=1 << 24)
ENVELOPE = b'{"type": "e2ee.group_encrypted", "n": 1.0}'


def said(**more: Any) -> GroupMessage:
    fields: dict[str, Any] = {
        "gid": GID,
        "sender": ALICE,
        "message_id": "gm-9",
        "payload": msgspec.Raw(b'{"type": "text", "text": "hi"}'),
        "sent_ms": 1_795_150_814_505,
        "device": "a1",
        "kind": "text",
    }
    return GroupMessage(**(fields | more))


def created(message: GroupMessage, seq: int = 13) -> Event:
    return Event("group", GID, seq, CREATED, dumps(message), frozenset({"bobb.edge.test"}))


def shown(event: Event, hello: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    frame = render(event, hello)
    assert frame is not None
    found = loads(frame, LIMITS)
    assert found["jsonrpc"] == "2.0"
    assert "id" not in found
    return found["method"], found["params"]


def test_an_earlier_client_gets_the_payload_flat() -> None:
    method, params = shown(created(said(mode="mention-only")), SEED)
    assert method == "event/group.message_created"
    assert params == {
        **params,
        "group_id": GID,
        "group_aid": GID,
        "seq": 13,
        "message_id": "gm-9",
        "from": ALICE,
        "sender_aid": ALICE,
        "payload": {"type": "text", "text": "hi"},
        "attachments": [],
        "mention_mode": "mention-only",
        "dispatch": {"mode": "broadcast", "reason": "duty_disabled"},
        "created_at": 1_795_150_814_505,
    }


def test_the_current_sdk_gets_the_row_inline_when_it_says_that_it_reads_rows() -> None:
    _, inline = shown(created(said()), INLINE)
    assert inline["inline_message"] == loads(dumps(v2_row(said(), 13)), LIMITS)
    assert "payload" not in inline
    _, hinted = shown(created(said()), HINTED)
    assert hinted["payload"] == {"type": "text", "text": "hi"}
    assert "inline_message" not in hinted
    assert "from" not in hinted


@pytest.mark.parametrize("hello", [SEED, HINTED, INLINE])
@pytest.mark.parametrize(("more", "pushed"), [(0, True), (1, False)])
def test_a_payload_above_the_limit_is_pulled_not_pushed(hello: Mapping[str, Any], more: int, pushed: bool) -> None:
    empty = len(dumps({"text": ""}))
    payload = msgspec.Raw(dumps({"text": "x" * (PUSHED - empty + more)}))
    _, params = shown(created(said(payload=payload)), hello)
    assert ("payload" in params or "inline_message" in params) is pushed
    assert (params["seq"], params["message_id"]) == (13, "gm-9")


def test_c_22_an_encrypted_message_is_a_hint_and_not_one_to_the_device_that_sent_it() -> None:
    message = said(v2=True, encrypted=True, payload=msgspec.Raw(ENVELOPE))
    method, params = shown(created(message), HINTED)
    assert method == "event/group.v2.message_created"
    assert params["seq"] == 13
    assert "payload" not in params
    assert render(created(msgspec.structs.replace(message, device="b1")), HINTED) is None
    assert render(created(msgspec.structs.replace(message, device="")), {**HINTED, "device": {}}) is not None
    method, params = shown(created(message), SEED)
    assert method == "event/group.message_created"
    assert params["dispatch"] == {"mode": "broadcast", "reason": "duty_disabled"}
    assert "payload" not in params


@pytest.mark.parametrize("device", [None, 7, "b1", {"id": 7}, {}])
def test_a_device_that_is_no_text_is_no_device(device: object) -> None:
    message = said(v2=True, payload=msgspec.Raw(ENVELOPE), device="b1")
    assert render(created(message), {**HINTED, "device": device}) is not None


def test_a_flat_row_names_everything_twice_for_both_generations() -> None:
    row = flat_row(said(encrypted=True, render=False), 4)
    assert (row["sender_aid"], row["message_type"], row["created_at"]) == (row["from"], row["type"], row["timestamp"])
    assert (row["seq"], row["encrypted"], row["need_render"]) == (4, True, False)


def test_a_plain_v2_row_has_attachments_only_when_there_are_some() -> None:
    assert "attachments" not in v2_row(said(), 4)
    row = v2_row(said(attachments=msgspec.Raw(b'[{"name":"a"}]')), 4)
    assert (row["version"], bytes(row["attachments"])) == ("v1", b'[{"name":"a"}]')


def test_an_encrypted_row_is_the_senders_text_with_the_readers_own_wrap_and_proof() -> None:
    own = {"aid": "bobb.edge.test", "device_id": "b1"}
    proof = [{"sibling": "00", "position": "L"}]
    row = v2_row(said(v2=True, payload=msgspec.Raw(ENVELOPE), wrap=own, proof=proof), 4)
    assert row["version"] == "v2"
    assert row["envelope_json"].startswith('{"type": "e2ee.group_encrypted", "n": 1.0')
    read = loads(row["envelope_json"], LIMITS)
    assert (read["recipient"], read["merkle_proof"]) == (own, proof)
    unproven = v2_row(said(v2=True, payload=msgspec.Raw(ENVELOPE), wrap=own), 4)
    assert loads(unproven["envelope_json"], LIMITS)["merkle_proof"] == []


def test_other_events_of_groups_pass_as_they_are() -> None:
    body = dumps({"group_id": GID, "invite_id": "i1"})
    for kind in (RECALLED, "group.invite_created"):
        assert shown(Event("group_event", GID, 2, kind, body), SEED) == (f"event/{kind}", loads(body, LIMITS))


def test_the_first_sdk_is_not_shown_a_jump_of_event_numbers() -> None:
    body = {"group_id": GID, "action": "member_added", "event_seq": (1 << INCARNATION_SHIFT) + 1}
    low, high = (Event("group_event", GID, seq, CHANGED, dumps(body)) for seq in (7, (1 << INCARNATION_SHIFT) + 1))
    assert shown(low, SEED) == ("event/group.changed", body)
    assert shown(high, HINTED) == ("event/group.changed", body)
    assert shown(high, SEED)[1] == {"group_id": GID, "action": "member_added"}


def test_g_22_a_hint_names_the_head_of_what_waits() -> None:
    def hint(waiting: Waiting) -> Event:
        return Event("group", GID, 0, HINT, dumps(waiting))

    common = {"module_id": "group", "kind": UNREAD, "group_id": GID, "group_aid": GID}
    assert shown(hint(Waiting(seq=9)), HINTED) == ("event/group.v2.message_created", common | {"seq": 9})
    assert shown(hint(Waiting(event_seq=4)), HINTED) == ("event/group.changed", common | {"event_seq": 4})
    assert render(hint(Waiting(seq=9)), SEED) is None


def test_events_of_groups_come_through_the_renderer_of_connections() -> None:
    event = created(said())
    for hello in (SEED, HINTED, INLINE):
        assert aun_events.render(event, hello) == render(event, hello)
