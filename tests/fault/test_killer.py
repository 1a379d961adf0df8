"""Promise P1 against kill −9, and that the loop that shows it notices a broken promise."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from pathlib import Path
from typing import cast

import pytest

from tests.fault.ingest import ALL, open_database
from tests.fault.killer import Round, kill_loop, spawn

ROOT = Path(__file__).parents[2]
ROUNDS = 12


def first_line(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == b"ACK 0\n"


def acks(process: subprocess.Popen[bytes], stop: threading.Event) -> set[int]:
    """Read what the program says until it is dead."""
    assert process.stdout is not None
    return {int(line[4:]) for line in process.stdout if line.startswith(b"ACK ") and line.endswith(b"\n")}


async def rows_of(folder: Path) -> tuple[set[int], str]:
    db = open_database(folder)
    await db.open()
    there = {cast(int, n) for (n,) in await db.read(lambda u: u.run(ALL))}
    doubt = db.doubt
    await db.close()
    return there, doubt


def test_nothing_acknowledged_is_lost_by_kills(tmp_path: Path) -> None:
    acked: set[int] = set()

    def verify(life: Round) -> None:
        assert not acked & life.loaded
        acked.update(life.loaded)
        there, doubt = asyncio.run(rows_of(tmp_path))
        assert acked <= there
        assert doubt == ""

    command = [sys.executable, "-m", "tests.fault.ingest", str(tmp_path), "FULL", "0", "20"]
    kill_loop(lambda: spawn(command, ROOT), first_line, acks, verify, rounds=ROUNDS, longest=0.4)
    assert len(acked) > 100 * ROUNDS


def test_the_loop_notices_a_program_that_acknowledges_before_it_keeps(tmp_path: Path) -> None:
    liar = "import sys, itertools\nfor n in itertools.count(): print('ACK', n, flush=True)"

    def verify(life: Round) -> None:
        assert life.loaded <= asyncio.run(rows_of(tmp_path))[0]

    with pytest.raises(AssertionError):
        kill_loop(
            lambda: spawn([sys.executable, "-c", liar], ROOT), first_line, acks, verify, rounds=1, longest=0.05, seed=7
        )
