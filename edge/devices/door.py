"""Who is let in by the MQTT door: what the services of devices and of users ask of it."""

from __future__ import annotations

from typing import Protocol

from edge.contract.bus import Admission
from edge.store.credentials import Credential
from edge.store.persons import Person


class Door(Protocol):
    """The gatekeeper as this area needs it (implemented by the session)."""

    def enrol(self, one: Credential) -> None:
        """Let a device in from now on."""
        ...

    def enrol_person(self, one: Person) -> None:
        """Let a user in from now on, with this password and no other."""
        ...

    def dismiss(self, user: str) -> None:
        """Let a device or a user in no more."""
        ...

    def user(self, name: str) -> Admission | None:
        """What a device or a user may do; None for nobody's name."""
        ...
