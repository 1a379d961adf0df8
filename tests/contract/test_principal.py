from __future__ import annotations

from edge.contract.principal import AGENT_SCOPES, GUEST, NODE, Kind, Principal

ALICE = Principal(kind=Kind.AGENT, aid="alice.edge.test", scopes=AGENT_SCOPES)


def test_an_open_operation_is_open_to_everybody() -> None:
    assert GUEST.may("")
    assert ALICE.may("")


def test_any_means_anybody_who_is_somebody() -> None:
    assert ALICE.may("any")
    assert not GUEST.may("any")


def test_other_scopes_must_be_held() -> None:
    assert ALICE.may("message:write")
    assert not ALICE.may("device:admin")
    assert not GUEST.may("message:write")


def test_a_star_holds_every_scope() -> None:
    assert NODE.may("device:admin")
