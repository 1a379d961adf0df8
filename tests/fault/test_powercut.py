"""Promise P1 against power cuts: whatever was acknowledged is there, at any moment the power may go."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.fault import trace
from tests.fault.ingest import ALL, open_database

CUTS = int(os.environ.get("AUN_EDGE_CUTS", "200"))
ROOT = Path(__file__).parents[2]


class Verdict(NamedTuple):
    """What the cuts of one run showed."""

    cuts: int
    with_loss: int
    damaged: int
    doubted: int
    most_acked: int


@pytest.fixture(scope="module", autouse=True)
def _strace() -> None:
    if shutil.which("strace") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("NOT RUN: strace is missing")
        pytest.skip("NOT RUN: strace is missing")


def experiment(scratch: Path, synchronous: str, rows: int, in_flight: int, cuts: int) -> Verdict:
    """Run the ingest once under strace; then cut the power at `cuts` random moments and open what is left."""
    folder, log = scratch / "state", scratch / "trace"
    folder.mkdir()
    command = [trace.PYTHON, "-m", "tests.fault.ingest", str(folder), synchronous, str(rows), str(in_flight)]
    trace.record(command, log, {"PYTHONPATH": str(ROOT)})
    ops = trace.read(log, folder)
    log.unlink()
    coin = random.Random(20250620)  # the same cuts each time
    moments = set(coin.sample(range(len(ops)), min(cuts, len(ops))))
    medium, verdicts = trace.Medium(), []
    for moment, op in enumerate(ops):
        medium.apply(op)
        if moment in moments:
            left = scratch / "left"
            medium.cut(left, coin)
            verdicts.append(asyncio.run(_look(left, medium.acked)))
            shutil.rmtree(left)
    assert len(medium.acked) == rows + 1
    lost, damaged, doubted = (sum(column) for column in zip(*verdicts, strict=True))
    return Verdict(len(verdicts), lost, damaged, doubted, len(medium.acked))


async def _look(folder: Path, acked: set[int]) -> tuple[bool, bool, bool]:
    """Rows lost? File damaged? Commits doubted?"""
    db = open_database(folder)
    await db.open()
    there = {n for (n,) in await db.read(lambda u: u.run(ALL))}
    [(verdict,)] = await db.read(lambda u: u.run("PRAGMA integrity_check"))
    await db.close()
    return bool(acked - {0} - there), bool(db.damage) or verdict != "ok", bool(db.doubt)


@pytest.mark.parametrize(("rows", "in_flight"), [(400, 1), (2000, 50)])
def test_no_power_cut_loses_an_acknowledged_row(tmp_path: Path, rows: int, in_flight: int) -> None:
    verdict = experiment(tmp_path, "FULL", rows, in_flight, CUTS)
    assert verdict == Verdict(min(CUTS, verdict.cuts), 0, 0, 0, rows + 1)
    assert verdict.cuts >= min(CUTS, 100)


def test_the_same_experiment_shows_what_synchronous_normal_would_lose(tmp_path: Path) -> None:
    verdict = experiment(tmp_path, "NORMAL", 400, 1, min(CUTS, 40))
    assert verdict.with_loss > verdict.cuts // 4
