"""Sealed messages to and from the AIDs whose key the node holds: devices and services (settled G19, spec §5.2).

Such an AID lives here, so the node is its end of the encryption. Nobody else's messages can be read here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from edge.contract.errors import EdgeError, Unavailable, UnknownAid
from edge.contract.store import Store, Unit
from edge.contract.time import Clock, wall_ms
from edge.protocol import sealed
from edge.store import identity, messages
from edge.store.messages import V2, Message, Spk

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ec

KeyOf = Callable[[str, int], "ec.EllipticCurvePrivateKey"]
"""The key of a hosted AID by name and generation."""


HOSTED = ("device", "service")
"""Kinds of AIDs whose key is derived here."""


class _Pair(msgspec.Struct, frozen=True):
    """A hosted AID and the agent it talks with, as their certificates say."""

    generation: int
    theirs: bytes
    spks: list[Spk]


class Letters:
    """Opens what came sealed to a hosted AID, and seals what it answers."""

    def __init__(self, node: Store, clock: Clock, key_of: KeyOf) -> None:
        self._node, self._clock, self._key_of = node, clock, key_of

    async def open(self, row: Message) -> dict[str, Any] | None:
        """The payload of a sealed row in a hosted AID's inbox; None when it cannot be read here.

        Raises `Unavailable`.
        """
        if not row.flags & V2:
            return None
        try:
            pair = await self._node.read(lambda unit: _pair(unit, row.aid, row.sender))
            return await asyncio.to_thread(self._open, row, pair)
        except Unavailable:
            raise
        except EdgeError:
            return None

    def _open(self, row: Message, pair: _Pair) -> dict[str, Any]:
        key = self._key_of(row.aid, pair.generation)
        return sealed.open_sealed(row.payload, row.aid, key, row.sender, pair.theirs, row.message_id)

    async def seal(self, aid: str, to: str, message_id: str, payload: Mapping[str, Any]) -> dict[str, Any]:
        """The payload in an envelope for every device of `to`. Raises `UnknownAid` without keys, `Unavailable`."""
        pair = await self._node.read(lambda unit: _pair(unit, aid, to))
        return await asyncio.to_thread(self._seal, aid, to, message_id, dict(payload), pair)

    def _seal(self, aid: str, to: str, message_id: str, payload: dict[str, Any], pair: _Pair) -> dict[str, Any]:
        readers = [_reader(to, pair.theirs, spk) for spk in pair.spks] or [sealed.Reader(to, "", pair.theirs)]
        key = self._key_of(aid, pair.generation)
        return sealed.seal(payload, aid, key, readers, message_id, wall_ms(self._clock))


def _pair(unit: Unit, aid: str, other: str) -> _Pair:
    mine, theirs = identity.aid(unit, aid), identity.aid(unit, other)
    if mine is None or theirs is None or mine.kind not in HOSTED or theirs.state != "active":
        raise UnknownAid(f"{aid} and {other} have no keys for each other")
    return _Pair(mine.generation, theirs.spki, messages.spks(unit, other))


def _reader(aid: str, key: bytes, spk: Spk) -> sealed.Reader:
    """A device; its prekey counts only when the AID's key signed it."""
    try:
        prekey = sealed.prekey_of(key, spk.spk_id, spk.spk_pk, spk.made_s, spk.signature)
    except EdgeError:
        return sealed.Reader(aid, spk.device, key)
    return sealed.Reader(aid, spk.device, key, spk.spk_id, prekey)
