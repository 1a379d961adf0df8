from __future__ import annotations

import os
from pathlib import Path

import pytest

from edge.store import swap


def fill(folder: Path, word: str) -> None:
    """Every part of a state, each with a word in it."""
    for part in swap.PARTS:
        if "." in part and part != "config.d":
            (folder / part).write_text(word)
        else:
            (folder / part).mkdir(parents=True)
            (folder / part / "file").write_text(word)


def words(folder: Path) -> dict[str, str]:
    found = {part: folder / part for part in swap.PARTS if (folder / part).exists()}
    return {part: (path / "file" if path.is_dir() else path).read_text() for part, path in found.items()}


def all_of(word: str) -> dict[str, str]:
    return dict.fromkeys(swap.PARTS, word)


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """An old state, and a new one that was decided."""
    fill(tmp_path, "old")
    fill(tmp_path / swap.READY, "new")
    (tmp_path / swap.READY / swap.ASIDE).write_text("before-restore-1\n")
    return tmp_path


def aside(state: Path, part: str) -> None:
    place = state / "quarantine" / "before-restore-1"
    place.mkdir(parents=True, exist_ok=True)
    os.rename(state / part, place / part)


def test_without_a_restore_nothing_happens(tmp_path: Path) -> None:
    fill(tmp_path, "old")
    assert swap.finish(tmp_path) is None
    assert words(tmp_path) == all_of("old")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(swap.PARTS)


def test_what_was_not_decided_is_dropped(tmp_path: Path) -> None:
    fill(tmp_path, "old")
    fill(tmp_path / swap.STAGING, "half")
    assert swap.finish(tmp_path) is None
    assert words(tmp_path) == all_of("old")
    assert not (tmp_path / swap.STAGING).exists()


@pytest.mark.parametrize("moves", range(2 * len(swap.PARTS) + 1))
def test_what_was_decided_goes_on_wherever_it_stopped(state: Path, moves: int) -> None:
    """After each rename, another process begins anew."""
    for part in swap.PARTS[: moves // 2]:
        aside(state, part)
        (state / swap.READY / part).rename(state / part)
    if moves % 2:
        aside(state, swap.PARTS[moves // 2])
    place = swap.finish(state)
    assert place == state / "quarantine" / "before-restore-1"
    assert words(place) == all_of("old")
    assert words(state) == all_of("new")
    assert not (state / swap.READY).exists()
    assert swap.finish(state) is None


def test_it_goes_on_when_only_its_own_folder_was_left(state: Path) -> None:
    for part in swap.PARTS:
        aside(state, part)
        (state / swap.READY / part).rename(state / part)
    (state / swap.READY / swap.ASIDE).unlink()
    assert swap.finish(state) is None
    assert words(state) == all_of("new")
    assert not (state / swap.READY).exists()


def test_folders_that_a_start_made_in_between_are_not_in_the_way(state: Path) -> None:
    aside(state, "store")
    (state / "store").mkdir()
    place = swap.finish(state)
    assert place is not None
    assert words(state) == all_of("new")
    assert words(place) == all_of("old")
    assert list((place / "store-2").iterdir()) == []


def test_where_there_was_nothing_nothing_is_put_aside(tmp_path: Path) -> None:
    fill(tmp_path / swap.READY, "new")
    (tmp_path / swap.READY / swap.ASIDE).write_text("before-restore-1")
    assert swap.finish(tmp_path) is None
    assert words(tmp_path) == all_of("new")
