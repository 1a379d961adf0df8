"""What a caller wants to send, checked before any database is asked (M-3 to M-5, M-22, C-20)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from edge.contract.errors import (
    EdgeError,
    InvalidParams,
    NotPermitted,
    RateLimited,
    RecipientsStale,
    TooLarge,
    UnknownAid,
)
from edge.contract.limit import Limits
from edge.contract.principal import GUEST, Kind, Principal
from edge.contract.time import wall_ms
from edge.contract.wire import dumps, loads
from edge.services.message import records as r
from edge.services.message.drafts import SPACE, Draft, Drafts, sender_of
from edge.store import messages
from edge.store.messages import Spk
from tests.services.message.envelopes import envelope
from tests.support.clock import FakeClock
from tests.support.messaging import ALICE, BOB, CAROL, ISSUER
from tests.support.store import database

WHO = Principal(Kind.AGENT, ALICE, device_id="a1")
KNOWN = {ALICE, BOB, CAROL}


def drafts(**limits: int) -> Drafts:
    bounds = Limits({f"message.{name}": value for name, value in limits.items()})
    return Drafts(FakeClock(), lambda unit, aid: aid in KNOWN, ISSUER, bounds)


def make(payload: object = None, to: str = BOB, who: Principal = WHO, made: Drafts | None = None, **more: Any) -> Draft:
    raw = payload if isinstance(payload, bytes) else dumps({"type": "text"} if payload is None else payload)
    return (made or drafts()).make(who, r.Send(to=to, payload=msgspec.Raw(raw), **more))


def test_a_plain_message_is_one_part_for_every_device() -> None:
    draft = make(type="chat")
    [part] = draft.parts
    assert part is draft.message
    assert (part.sender, part.to, part.sender_device, part.devices) == (ALICE, BOB, "a1", ())
    assert (part.kind, part.payload_type, part.encrypted, part.v2) == ("chat", "text", False, False)
    assert (draft.target, draft.wrapped) == ("", None)


def test_m3_the_nodes_time_is_the_messages() -> None:
    assert make().message.sent_ms == wall_ms(FakeClock())


def test_a_message_without_an_id_is_given_one_of_its_own() -> None:
    first, second = (make().message.message_id for _ in range(2))
    assert first != second
    assert make(message_id="mine").message.message_id == "mine"


@pytest.mark.limit("message.id_length")
def test_an_id_may_be_as_long_as_the_limit() -> None:
    assert make(message_id="x" * 128).message.message_id == "x" * 128
    with pytest.raises(InvalidParams):
        make(message_id="x" * 129)


@pytest.mark.parametrize("payload", [b'"text"', b"[]", b"null", b"7", b""])
def test_m4_a_payload_is_an_object(payload: bytes) -> None:
    with pytest.raises(InvalidParams, match="must be a JSON object"):
        make(payload)


@pytest.mark.limit("message.payload_octets")
def test_m4_the_limit_is_for_compact_json_and_white_space_may_add_a_little() -> None:
    made = drafts(payload_octets=20)
    at, over = (b'{"a":"' + b"x" * count + b'"}' for count in (12, 13))
    assert make(at, made=made).message.payload == msgspec.Raw(at)
    with pytest.raises(TooLarge):
        make(over, made=made)
    assert make(b" " * SPACE + at, made=made).message.payload == msgspec.Raw(b" " * SPACE + at)
    for spread in (b" " * (SPACE + 1) + at, b" " + over):
        with pytest.raises(TooLarge):
            make(spread, made=made)


@pytest.mark.parametrize(
    ("to", "error"), [("bobb.other.example", UnknownAid), ("no aid", InvalidParams), ("", InvalidParams)]
)
def test_m5_a_recipient_is_an_aid_of_this_node(to: str, error: type[EdgeError]) -> None:
    with pytest.raises(error):
        make(to=to)
    assert make(to=BOB.upper()).message.to == BOB


@pytest.mark.parametrize(
    ("payload", "said", "encrypted"),
    [
        ({"type": "text"}, False, False),
        ({"type": "text"}, True, True),
        ({"type": "e2ee.encrypted"}, False, True),
        ({"type": 7}, False, False),
        ({}, False, False),
    ],
)
def test_c20_a_message_is_encrypted_when_it_says_so_or_when_its_payload_does(
    payload: object, said: bool, encrypted: bool
) -> None:
    assert make(payload, encrypted=said).message.encrypted is encrypted


@pytest.mark.parametrize("named", [{"device_id": "b1"}, {"to_device_id": "b1"}])
def test_a_message_for_one_device_is_for_that_device_only(named: dict[str, Any]) -> None:
    draft = make(**named)
    assert (draft.target, draft.message.devices, draft.message.targeted) == ("b1", ("b1",), True)


def test_an_envelope_is_for_the_devices_that_it_was_wrapped_for() -> None:
    draft = make(envelope(ALICE, BOB, [(BOB, "b2"), (BOB, "b1"), (ALICE, "a1"), (ALICE, "a2"), (ALICE, "")]))
    theirs, own = draft.parts
    assert (theirs.devices, theirs.v2, theirs.encrypted, theirs.own) == (("b1", "b2"), True, True, False)
    assert (own.devices, own.own, own.payload) == (("a2",), True, theirs.payload)
    assert draft.wrapped == {(BOB, "b1"), (BOB, "b2"), (ALICE, "a1"), (ALICE, "a2"), (ALICE, "")}


def test_an_envelope_for_a_whole_aid_is_for_all_its_devices() -> None:
    draft = make(envelope(ALICE, BOB, [(BOB, ""), (BOB, "b1")]))
    assert [part.devices for part in draft.parts] == [()]


def test_an_envelope_to_oneself_has_no_second_copy() -> None:
    draft = make(envelope(ALICE, ALICE, [(ALICE, "a2")]), to=ALICE)
    assert [(part.own, part.devices) for part in draft.parts] == [(False, ("a2",))]


@pytest.mark.parametrize("recipients", [None, 7, {}, "x"])
def test_an_envelope_whose_recipients_cannot_be_read_is_not_checked(recipients: object) -> None:
    assert make(envelope(ALICE, BOB, [], recipients=recipients)).wrapped is None


def test_rows_of_recipients_that_name_no_device_are_passed_over() -> None:
    rows = [[BOB], [7, "b1"], [BOB, 7], "row", [BOB, "b1", "peer"]]
    assert make(envelope(ALICE, BOB, [], recipients=rows)).wrapped == {(BOB, "b1")}


def test_an_envelope_of_another_version_is_a_message_like_any_other() -> None:
    draft = make(envelope(ALICE, BOB, [(BOB, "b1")], version="v3"))
    assert (draft.message.v2, draft.wrapped, draft.message.devices) == (False, None, ())
    assert draft.message.encrypted


@pytest.mark.limit("message.row_octets")
def test_an_envelope_must_fit_a_row_once_its_quotes_are_escaped() -> None:
    text = dumps(envelope(ALICE, BOB, [(BOB, "b1")]))
    size = len(text) + text.count(b'"')
    assert make(text, made=drafts(row_octets=size)).message.v2
    with pytest.raises(TooLarge):
        make(text, made=drafts(row_octets=size - 1))


def test_a_multi_device_message_is_one_part_for_each_copy() -> None:
    seal = {name: {"type": "e2ee.encrypted", "for": name} for name in ("b1", "all", "a2")}
    draft = make(
        {
            "type": "e2ee.multi_device",
            "recipient_copies": [{"device_id": "b1", "envelope": seal["b1"]}, {"envelope": seal["all"]}],
            "self_copies": [{"device_id": "a2", "envelope": seal["a2"]}],
        },
        message_id="m-1",
    )
    shown = [(loads(bytes(part.payload))["for"], part.devices, part.own) for part in draft.parts]
    assert shown == [("b1", ("b1",), False), ("all", (), False), ("a2", ("a2",), True)]
    assert {(part.kind, part.payload_type, part.message_id) for part in draft.parts} == {
        ("e2ee.encrypted", "e2ee.encrypted", "m-1")
    }


@pytest.mark.limit("message.devices")
def test_a_multi_device_message_has_at_most_twice_as_many_copies_as_an_aid_has_devices() -> None:
    def copies(count: int) -> list[dict[str, Any]]:
        return [{"device_id": str(at), "envelope": {}} for at in range(count)]

    made = drafts(devices=2)
    body = {"type": "e2ee.multi_device", "recipient_copies": copies(3)}
    assert len(make(body | {"self_copies": copies(1)}, made=made).parts) == 4
    with pytest.raises(RateLimited):
        make(body | {"self_copies": copies(2)}, made=made)


def test_who_has_no_aid_sends_nothing() -> None:
    assert sender_of(WHO) == ALICE
    with pytest.raises(NotPermitted, match="needs an AID"):
        make(who=GUEST)


async def test_m22_a_draft_is_accepted_when_every_device_of_its_recipient_can_read_it(tmp_path: Path) -> None:
    made = drafts()
    async with database(tmp_path) as node:

        async def accept(draft: Draft) -> None:
            await node.read(lambda unit: made.accept(unit, draft))

        await accept(make())
        with pytest.raises(UnknownAid):
            await accept(make(to=f"nobody.{ISSUER}"))
        await accept(make(envelope(ALICE, BOB, [(BOB, "b1")])))
        with pytest.raises(RecipientsStale):
            await accept(make(envelope(ALICE, BOB, [(CAROL, "")])))
        for device in ("b1", "b2"):
            spk = Spk(device, "sha256:1", "pk", "sig", 1)
            await node.commit(lambda unit, spk=spk: messages.put_spk(unit, BOB, spk, wall_ms(FakeClock())))
        with pytest.raises(RecipientsStale):
            await accept(make(envelope(ALICE, BOB, [(BOB, "b1")])))
        for wraps in ([(BOB, "b1"), (BOB, "b2")], [(BOB, "")], [(BOB, "b1"), (BOB, "b2"), (BOB, "gone")]):
            await accept(make(envelope(ALICE, BOB, wraps)))
        await accept(make(envelope(ALICE, BOB, [(BOB, "b1")]), device_id="b1"))
