"""Calls whose signature is checked before anything else happens to them (spec aun-connect §7.7)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from edge.contract.op import Door, Op, Outcome
from edge.contract.principal import Kind, Principal
from edge.session.conversation import Dispatch

Check = Callable[[str, bytes, Principal], Awaitable[None]]
"""Verifies the signature in the params of a method, if there is one. Raises `SignatureInvalid`."""


class SignedCalls:
    """A dispatcher that lets no badly signed AUN call through; everything else passes."""

    def __init__(self, dispatch: Dispatch, check: Check) -> None:
        self._dispatch, self._check = dispatch, check

    def find(self, surface: str, name: str) -> Op | None:
        """The operation behind a wire name."""
        return self._dispatch.find(surface, name)

    async def call(
        self,
        surface: str,
        name: str,
        params: bytes,
        who: Principal,
        *,
        dialect: str = "",
        door: Door | None = None,
        trace: str = "",
    ) -> Outcome:
        """Check, then run. Raises `EdgeError`."""
        if surface == "aun" and who.kind is Kind.AGENT:
            await self._check(name, params, who)
        return await self._dispatch.call(surface, name, params, who, dialect=dialect, door=door, trace=trace)
