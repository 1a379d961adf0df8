"""Rows that SQLite takes for good and nobody can read: a flipped bit inside a stored text.

A read that meets some raises `Unreadable` and so says how they are removed and declared lost; the database does that
(`Database.read`) and reads again. So one such row costs itself, not the inbox or the group it lies in (P2, P3).
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from edge.contract.gap import Gap
from edge.contract.store import Unit

REASON = "unreadable"
"""What the loss ledger says of such rows."""


class Unreadable(Exception):
    """`mend` removes the rows and declares them lost, in one unit; it answers how many."""

    def __init__(self, mend: Callable[[Unit], int]) -> None:
        self.mend = mend
        super().__init__("stored rows cannot be read")


class Mended(msgspec.Struct, frozen=True):
    """How many rows a `mend` declared lost."""

    lost: int


class _Object(msgspec.Struct):
    """Any JSON object."""


_OBJECT = msgspec.json.Decoder(_Object)
_ARRAY = msgspec.json.Decoder(list[msgspec.Raw])


def is_object(text: bytes) -> bool:
    """Is this still JSON text of an object in clean UTF-8, as it was when it was stored?"""
    return _reads(_OBJECT, text)


def is_array(text: bytes) -> bool:
    """Is this still JSON text of an array in clean UTF-8?"""
    return _reads(_ARRAY, text)


def _reads(decoder: msgspec.json.Decoder[_Object] | msgspec.json.Decoder[list[msgspec.Raw]], text: bytes) -> bool:
    try:
        text.decode()  # the decoder skips what it is not asked for without looking at its UTF-8
        decoder.decode(text)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return False
    return True


def lose(unit: Unit, log: str, key: str, seq: int) -> None:
    """Declare one numbered row lost."""
    unit.lose(Gap(log, key, seq, seq, 1, REASON, "store", unit.at))
