"""Who may register which name (design §6): `auth.registration` is invited, window or open."""

from __future__ import annotations

from edge.contract.errors import InvalidParams, NameTaken, RegistrationClosed
from edge.contract.store import Unit
from edge.contract.time import SECOND, Clock
from edge.protocol import aid as names
from edge.store import identity as tables

RESERVED_MINUTES = 60


class Registration:
    """Decides whether a key may have a name. Loop state is only the window."""

    def __init__(self, clock: Clock, issuer: str, policy: str) -> None:
        self._clock, self._issuer, self._policy = clock, issuer, policy
        self._open_until_us = 0

    def open_for(self, minutes: int) -> None:
        """Let any free name register for some minutes; 0 closes."""
        self._open_until_us = self._clock.now().mono_us + minutes * 60 * SECOND if minutes else 0

    def name(self, aid: str) -> tuple[str, str]:
        """The AID in lower case, and its name. Raises `InvalidParams` for bad syntax, ours, or a foreign issuer."""
        name, dot, issuer = aid.strip().lower().partition(".")
        if not dot or not names.valid_issuer(issuer):
            raise InvalidParams(f"not an AID: {aid[:80]!r}")
        if issuer != self._issuer:
            raise InvalidParams(f"this node registers names of {self._issuer}, not of {issuer[:80]}")
        names.new_name(name)
        return f"{name}.{issuer}", name

    def decide(self, unit: Unit, aid: str, spki: bytes) -> tables.Certificate | None:
        """The certificate that this very key already has, or None: make one.

        Raises `NameTaken`, `RegistrationClosed`.
        """
        name = aid.partition(".")[0]
        known = tables.aid(unit, aid)
        if known is not None and known.state == "active":
            if known.spki == spki and (found := tables.current(unit, aid)) is not None:
                return found
            raise NameTaken(f"aid already exists: {aid}")
        if known is not None and known.kind == "group":
            raise NameTaken(f"aid already exists: {aid}")
        if not self._reserved(unit, name) and not self._open():
            raise RegistrationClosed(f"registration is closed: aun-edge agent add {name}")
        return None

    def _open(self) -> bool:
        return self._policy == "open" or self._clock.now().mono_us < self._open_until_us

    def _reserved(self, unit: Unit, name: str) -> bool:
        kept = tables.reservation(unit, name)
        return kept is not None and not over(unit, self._clock, kept)


def over(unit: Unit, clock: Clock, kept: tables.Reservation) -> bool:
    """Whether the time of a reservation is over."""
    return unit.wall_us - clock.wall(kept.made)[0] > kept.minutes * 60 * SECOND
