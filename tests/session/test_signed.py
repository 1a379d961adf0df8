from __future__ import annotations

from typing import Any

import pytest

from edge.contract.errors import SignatureInvalid
from edge.contract.op import Outcome
from edge.contract.principal import GUEST, Kind, Principal
from edge.session.signed import SignedCalls

ALICE = Principal(Kind.AGENT, "alice.edge.test")


class Behind:
    """A dispatcher that says what reached it."""

    def __init__(self) -> None:
        self.came: list[str] = []

    def find(self, surface: str, name: str) -> Any:
        return (surface, name)

    async def call(self, surface: str, name: str, params: bytes, who: Principal, **how: Any) -> Outcome:
        self.came.append(f"{surface} {name} {how['dialect']}")
        return Outcome(result=params)


async def refuse(method: str, params: bytes, who: Principal) -> None:
    raise SignatureInvalid(method)


async def test_a_badly_signed_call_reaches_nobody() -> None:
    behind = Behind()
    with pytest.raises(SignatureInvalid, match=r"message\.send"):
        await SignedCalls(behind, refuse).call("aun", "message.send", b"{}", ALICE)
    assert behind.came == []


@pytest.mark.parametrize(("surface", "who"), [("edge", ALICE), ("a2a", ALICE), ("aun", GUEST)])
async def test_other_surfaces_and_guests_sign_nothing(surface: str, who: Principal) -> None:
    behind = Behind()
    outcome = await SignedCalls(behind, refuse).call(surface, "x", b"{}", who, dialect="d")
    assert (outcome.result, behind.came) == (b"{}", [f"{surface} x d"])


async def test_names_are_looked_up_behind() -> None:
    assert SignedCalls(Behind(), refuse).find("aun", "x") == ("aun", "x")
