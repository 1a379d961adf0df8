"""A CONNECT as the gatekeeper sees it, and what it says."""

from __future__ import annotations

from typing import Any

from edge.contract.bus import Admission, Gatekeeper, Login, Refusal


def ask(
    keeper: Gatekeeper, user: str, password: bytes | None, address: str = "192.0.2.1", **more: Any
) -> list[Admission | Refusal]:
    """What is said: empty while it is still to come."""
    said: list[Admission | Refusal] = []
    keeper.admit(Login(user=user, password=password, address=address, **more), said.append)
    return said


def let_in(
    keeper: Gatekeeper, user: str, password: bytes | None, address: str = "192.0.2.1", **more: Any
) -> Admission | None:
    """The admission, when it is given at once."""
    said = ask(keeper, user, password, address, **more)
    return said[0] if said and isinstance(said[0], Admission) else None
