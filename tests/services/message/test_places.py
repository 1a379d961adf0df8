"""Whose cursor a request means: the connection decides (M-6, Q-11, Q-18)."""

from __future__ import annotations

from typing import Any

import pytest

from edge.contract.errors import InvalidParams, NotPermitted
from edge.contract.op import Call
from edge.contract.principal import GUEST, Kind, Principal
from edge.services.message import records as r
from edge.services.message.places import clamp, place_of, reader_of, scope_of
from edge.store.messages import Reader
from tests.support.messaging import ALICE


def reader(asked: r.Place, device: str = "a1", slot: str = "work/inbox") -> Reader:
    who = Principal(Kind.AGENT, ALICE, device_id=device, slot=slot)
    return reader_of(Call(who=who, op="message.pull", params=asked), asked)


def test_the_connection_says_whose_cursor_it_is() -> None:
    assert reader(r.Place()) == Reader(ALICE, "a1", "work")
    assert place_of(reader(r.Place())) == ("a1", "work")


def test_m6_a_connection_without_a_device_has_one_cursor_for_its_aid_whatever_its_slot() -> None:
    assert reader(r.Place(), device="") == Reader(ALICE, "", "")


@pytest.mark.parametrize("slot", ["work", "work/other", "work:1", "work 2"])
def test_m6_what_repeats_the_connection_is_allowed_and_slots_are_compared_by_their_key(slot: str) -> None:
    assert reader(r.Place(device_id="a1", slot_id=slot)) == Reader(ALICE, "a1", "work")


@pytest.mark.parametrize("given", [{"device_id": "a2"}, {"device_id": ""}, {"slot_id": "home"}, {"slot_id": ""}])
def test_m6_what_names_another_place_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(NotPermitted):
        reader(r.Place(**given))


def test_who_speaks_for_no_aid_reads_nothing() -> None:
    with pytest.raises(NotPermitted, match="needs an AID"):
        reader_of(Call(who=GUEST, op="message.pull", params=r.Place()), r.Place())


@pytest.mark.parametrize(
    ("given", "sender"),
    [
        ({}, ""),
        ({"cursor_scope": "global"}, ""),
        ({"cursor_scope": "global", "sender_aid": ALICE}, ""),
        ({"sender_aid": ALICE}, ALICE),
        ({"cursor_scope": "peer", "sender_aid": ALICE.upper()}, ALICE),
    ],
)
def test_a_request_is_for_one_sender_when_it_names_one_and_not_the_whole_inbox(
    given: dict[str, Any], sender: str
) -> None:
    assert scope_of(r.Place(**given)) == sender


@pytest.mark.parametrize(
    "given", [{"cursor_scope": "peer"}, {"cursor_scope": "all"}, {"cursor_scope": "peer", "sender_aid": "no aid"}]
)
def test_a_scope_that_says_nothing_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(InvalidParams):
        scope_of(r.Place(**given))


@pytest.mark.parametrize(("given", "taken"), [(None, 100), (0, 1), (-5, 1), (1, 1), (200, 200), (201, 200)])
def test_q11_a_limit_out_of_range_is_clamped(given: int | None, taken: int) -> None:
    assert clamp(given, 100, 200) == taken
    assert clamp(None, 100, 50) == 50
