"""Thoughts beside a conversation: in memory, fetched, never pushed (spec aun-services §1.1, §1.3). State, no clock.

One head per key (who thinks, for whom, on what). A head is answered whole, so its size has a bound of its own that
stays under the frame limit of the SDKs; a thought weighs its JSON text and what its record takes in memory.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Mapping

import msgspec

from edge.contract.limit import Limit, Limits
from edge.contract.wire import dumps

RECORD_OCTETS = 512
"""What a thought takes in memory beside its text; it keeps empty thoughts from being free."""

Key = tuple[str, ...]


class Bounds(msgspec.Struct, frozen=True):
    """How many contexts of one thinker, thoughts of one context, bytes of one context, bytes in all."""

    contexts: Limit
    items: Limit
    octets: Limit
    total: Limit


class _Thought(msgspec.Struct):
    thought_id: str
    shown: Mapping[str, object]
    octets: int


class _Head(msgspec.Struct):
    items: deque[_Thought]
    octets: int = 0
    updated_ms: int = 0


class Shelf:
    """Heads, the one written to last at the end. The first `thinker` parts of a key say whose it is."""

    def __init__(self, limits: Limits, bounds: Bounds, *, thinker: int) -> None:
        self._limits, self._bounds, self._thinker = limits, bounds, thinker
        self._heads: OrderedDict[Key, _Head] = OrderedDict()
        self.octets = 0

    def __len__(self) -> int:
        return len(self._heads)

    def put(self, key: Key, thought_id: str, shown: Mapping[str, object], now_ms: int) -> int:
        """Add a thought, or replace the one with its id; the oldest give way. How many the head holds now."""
        head = self._heads.setdefault(key, _Head(deque()))
        self._heads.move_to_end(key)
        for old in [one for one in head.items if one.thought_id == thought_id]:
            self._drop(head, old)
        made = _Thought(thought_id, shown, len(dumps(shown)) + RECORD_OCTETS)
        head.items.append(made)
        head.updated_ms = now_ms
        self._grow(head, made.octets)
        self._fit_head(head)
        self._fit_contexts(key)
        self._fit_total(head)
        return len(head.items)

    def get(self, key: Key) -> tuple[list[Mapping[str, object]], int]:
        """A head's thoughts, oldest first, and when it was written to (ms); nothing and 0 without one."""
        head = self._heads.get(key)
        return ([one.shown for one in head.items], head.updated_ms) if head is not None else ([], 0)

    def _fit_head(self, head: _Head) -> None:
        while len(head.items) > self._limits[self._bounds.items]:
            self._give_way(head, self._bounds.items)
        while head.octets > self._limits[self._bounds.octets] and len(head.items) > 1:
            self._give_way(head, self._bounds.octets)

    def _fit_contexts(self, key: Key) -> None:
        mine = [one for one in self._heads if one[: self._thinker] == key[: self._thinker]]
        for old in mine[: max(0, len(mine) - self._limits[self._bounds.contexts])]:
            self._forget(old, self._bounds.contexts)

    def _fit_total(self, head: _Head) -> None:
        """The newest thought stays, whatever it weighs."""
        while self.octets > self._limits[self._bounds.total] and len(self._heads) > 1:
            self._forget(next(iter(self._heads)), self._bounds.total)
        while self.octets > self._limits[self._bounds.total] and len(head.items) > 1:
            self._give_way(head, self._bounds.total)

    def _give_way(self, head: _Head, limit: Limit) -> None:
        self._limits.hit(limit)
        self._drop(head, head.items[0])

    def _forget(self, key: Key, limit: Limit) -> None:
        self._limits.hit(limit)
        self.octets -= self._heads.pop(key).octets

    def _drop(self, head: _Head, thought: _Thought) -> None:
        head.items.remove(thought)
        self._grow(head, -thought.octets)

    def _grow(self, head: _Head, octets: int) -> None:
        head.octets += octets
        self.octets += octets
