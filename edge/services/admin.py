"""`status`, `methods`, `limits`: what the node knows about itself, for the owner at the control socket."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from edge.contract.errors import InvalidParams
from edge.contract.limit import REGISTRY, Limits
from edge.contract.op import Call, Empty, Params, op


class Reloaded(msgspec.Struct):
    """Settings that differ from those in force: taken up now, or at the next start."""

    now: list[str]
    next_start: list[str]


Facts = Callable[[], Mapping[str, Any]]
"""Read in the loop at each question; plain JSON values."""


class MethodsAsked(Params, frozen=True, kw_only=True):
    """Which surface to list; "" lists all."""

    surface: str = ""


class Method(msgspec.Struct, omit_defaults=True):
    """One operation and its names on the wires; `off` are those that `node.off` has taken away."""

    name: str
    scope: str
    wire: dict[str, list[str]]
    writes: bool
    doc: str
    errors: list[str] = []
    off: dict[str, list[str]] = {}


class LimitLine(msgspec.Struct):
    """One limit: what it allows and how often it was hit."""

    name: str
    value: int
    unit: str
    hits: int
    about: str


class AdminService:
    """Answers about the node itself. `facts`, `methods` and `reload` are handed down by the composition root."""

    def __init__(
        self, facts: Facts, methods: Callable[[], list[Method]], reload: Callable[[], Reloaded], limits: Limits
    ) -> None:
        self._facts, self._methods, self._reload, self._limits = facts, methods, reload, limits

    @op("status", scope="node:read", wire={"edge": ("status",)})
    async def status(self, call: Call[Empty]) -> dict[str, Any]:
        """What runs, since when, with what, and what is wrong."""
        return dict(self._facts())

    @op("methods", scope="node:read", wire={"edge": ("methods",)})
    async def methods(self, call: Call[MethodsAsked]) -> list[Method]:
        """Every operation of this node, with its scope, its names on each wire, and which of them are switched off."""
        asked = call.params.surface
        return [method for method in self._methods() if not asked or asked in method.wire or asked in method.off]

    @op("config.reload", scope="config:admin", raises=(InvalidParams,), wire={"edge": ("config.reload",)})
    async def reload(self, call: Call[Empty]) -> Reloaded:
        """Read the configuration again; what can change while the node runs changes now (log settings)."""
        return self._reload()

    @op("limits", scope="node:read", wire={"edge": ("limits",)})
    async def limits(self, call: Call[Empty]) -> list[LimitLine]:
        """Every limit in force and how often it was hit since the start."""
        return [
            LimitLine(name, self._limits[limit], limit.unit, self._limits.hits.get(name, 0), limit.about)
            for name, limit in sorted(REGISTRY.items())
        ]
