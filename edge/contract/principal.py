"""Who asks, what they may, and by which door they came (design D20)."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

import msgspec


class Kind(StrEnum):
    """What sort of caller a principal is."""

    OPERATOR = "operator"
    DEVICE = "device"
    AGENT = "agent"
    NODE = "node"
    GUEST = "guest"


PLAIN_LAN = "mqtt_plain"
"""The door of `mqtt.plain_lan`: MQTT without TLS, from the owner's own network (settled G14). What comes in by it has
nothing to do with capabilities of high risk."""


class Principal(msgspec.Struct, frozen=True):
    """An authenticated caller. Below `session` nobody sees a token, a socket or a certificate.

    `scopes` are `<area>:<read|write|act|admin>`; `*` is every scope. `via` names the door
    (`control`, `mqtt`, `mqtt_plain`, `aun`, `token`, `local`, `node`).
    """

    kind: Kind
    aid: str
    scopes: frozenset[str] = frozenset()
    via: str = ""
    device_id: str = ""
    slot: str = ""

    def may(self, scope: str) -> bool:
        """Whether `scope` is held; "" is open to everybody, `any` to everybody who is somebody."""
        if not scope or "*" in self.scopes:
            return True
        if scope == "any":
            return self.kind is not Kind.GUEST
        return scope in self.scopes


AGENT_SCOPES = frozenset(
    {
        "group:read",
        "group:write",
        "message:read",
        "message:write",
        "task:read",
        "task:write",
        "cap:read",
        "cap:act",
        "meta:read",
        "agent_md:read",
        "agent_md:write",
    }
)
"""What an agent starts with (design §4): messages, groups, tasks, reading caps, acting on caps of no high risk."""

GUEST = Principal(kind=Kind.GUEST, aid="")
"""Somebody who has not said who they are."""

NODE = Principal(kind=Kind.NODE, aid="", scopes=frozenset({"*"}), via="node")
"""The node itself, for work it does on its own account."""


class Tokens(Protocol):
    """Turns a bearer token (AUN access token or node token) into its principal."""

    async def principal(self, token: str) -> Principal:
        """Raises `NotAuthenticated` or `TokenExpired`."""
        ...
