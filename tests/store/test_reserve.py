"""Room held back for alarms: taken whole, given up in steps, had back as far as there is room."""

from __future__ import annotations

import os
from pathlib import Path

from edge.store.reserve import STEP_OCTETS, Reserve
from edge.store.room import free
from tests.support.disk import fill


def test_it_is_held_whole_and_given_up_in_steps(tmp_path: Path) -> None:
    held = Reserve(tmp_path / "hot.db", octets=2 * STEP_OCTETS)
    assert held.octets == 0
    assert not held.give()
    assert held.hold()
    assert (tmp_path / ".hot.db.reserve").stat().st_blocks * 512 >= 2 * STEP_OCTETS
    assert [held.give(), held.octets, held.give(), held.octets, held.give()] == [True, STEP_OCTETS, True, 0, False]
    assert held.hold()
    assert held.octets == 2 * STEP_OCTETS
    assert held.give(STEP_OCTETS + 1)
    assert held.octets == 0


def test_without_room_for_all_of_it_what_was_held_stays(small_disk: Path) -> None:
    held = Reserve(small_disk / "hot.db", octets=4 * STEP_OCTETS)
    assert held.hold()
    assert held.give()
    fill(small_disk / "other")
    assert not held.hold()
    assert held.octets == 3 * STEP_OCTETS
    (small_disk / "other").unlink()
    assert held.hold()


def test_what_there_is_of_it_is_held_and_something_left_to_others(small_disk: Path) -> None:
    held = Reserve(small_disk / "hot.db", octets=8 * STEP_OCTETS)
    assert held.hold()
    assert held.give(6 * STEP_OCTETS)
    fill(small_disk / "other")
    held.hold_some(0)
    assert held.octets == 2 * STEP_OCTETS
    os.truncate(small_disk / "other", (small_disk / "other").stat().st_size - 5 * STEP_OCTETS)
    held.hold_some(2 * STEP_OCTETS)
    assert held.octets == 5 * STEP_OCTETS
    assert free(small_disk) >= 2 * STEP_OCTETS
    assert held.missing == 3 * STEP_OCTETS
    (small_disk / "other").unlink()
    held.hold_some(0)
    assert (held.octets, held.missing) == (8 * STEP_OCTETS, 0)
