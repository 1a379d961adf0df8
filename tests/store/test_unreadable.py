"""Rows that cannot be read: what counts as one, and that a read goes on behind it."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge.contract.store import Unit
from edge.store import ledger
from edge.store.database import MENDS
from edge.store.unit import ReadUnit
from edge.store.unreadable import REASON, Unreadable, is_array, is_object, lose
from tests.support.store import database


@pytest.mark.parametrize("text", [b"{}", b'{"a":{"b":["\xc3\xa9"]}}', b' {"a": 1.0} '])
def test_an_object_is_an_object(text: bytes) -> None:
    assert is_object(text)
    assert not is_array(text)


@pytest.mark.parametrize("text", [b"", b"{", b'{"a":"\xff"}', b'{"\xff":1}', b'{"a":\x00}', b"[1]", b"1", b"\xff"])
def test_what_a_flipped_bit_leaves_is_none(text: bytes) -> None:
    assert not is_object(text)


def test_an_array_is_an_array() -> None:
    assert is_array(b'[{"a": "\xc3\xa9"}, 2]')
    assert is_array(b"[]")
    for text in (b"", b"[", b'["\xff"]', b"{}", b'["\x00"]'):
        assert not is_array(text)


async def test_a_read_declares_what_it_cannot_read_and_goes_on(tmp_path: Path) -> None:
    async with database(tmp_path) as node:

        def mend(unit: Unit) -> int:
            lose(unit, "inbox", "bobb", 7)
            return 1

        def work(unit: Unit) -> str:
            if not ledger.recent(unit):
                raise Unreadable(mend)
            return "read"

        assert await node.read(work) == "read"
        [gap] = await node.read(ledger.recent)
        assert (gap.log, gap.key, gap.first, gap.last, gap.count, gap.reason) == ("inbox", "bobb", 7, 7, 1, REASON)


async def test_a_read_that_never_mends_ends(tmp_path: Path) -> None:
    async with database(tmp_path) as node:
        tries = 0

        def work(unit: Unit) -> None:
            nonlocal tries
            tries += 1
            raise Unreadable(lambda unit: 0)

        with pytest.raises(Unreadable):
            await node.read(work)
        assert tries == 2 * MENDS + 1


async def test_what_only_a_readers_memory_has_wrong_is_not_lost(tmp_path: Path) -> None:
    async with database(tmp_path) as node:

        def work(unit: Unit) -> str:
            if isinstance(unit, ReadUnit):
                raise Unreadable(lambda unit: 1)
            return "read"

        assert await node.read(work) == "read"
        assert await node.read(ledger.recent) == []
