"""Room that a file holds: real blocks, more and less of them, and no room where there is no folder."""

from __future__ import annotations

import sys
from pathlib import Path

from edge.store.room import Held, free

PART = 16 << 10


def test_a_disk_that_says_nothing_of_its_room_has_plenty(tmp_path: Path) -> None:
    assert 0 < free(tmp_path) < sys.maxsize
    assert free(tmp_path / "nothing") == sys.maxsize


def test_a_file_holds_blocks_and_gives_some_up(tmp_path: Path) -> None:
    held = Held(tmp_path / "held")
    assert (held.octets, held.give(1)) == (0, False)
    assert held.hold(4 * PART)
    assert (tmp_path / "held").stat().st_blocks * 512 >= 4 * PART
    assert held.give(PART)
    assert held.octets == 3 * PART
    assert held.hold(2 * PART)
    assert held.octets == 2 * PART
    assert held.give(9 * PART)
    assert (held.octets, held.give(PART)) == (0, False)


def test_what_there_is_no_room_for_is_not_held_and_what_was_held_stays(tmp_path: Path) -> None:
    held = Held(tmp_path / "held")
    assert held.hold(PART)
    assert not held.hold(1 << 62)
    assert held.octets == PART
    assert not Held(tmp_path / "no folder" / "held").hold(PART)
