"""A sync that failed is not tried again as if nothing had been: no ack after it, and nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

from tests.fault.ingest import ALL, open_database

ROOT = Path(__file__).parents[2]
FAILING = "inject=fsync,fdatasync:error=EIO:when=30"
"""strace answers EIO to the 30th sync of each thread, and lets every later one succeed."""


async def _look(folder: Path) -> tuple[set[int], str]:
    db = open_database(folder)
    await db.open()
    there = {cast(int, n) for (n,) in await db.read(lambda u: u.run(ALL))}
    damage = db.damage
    await db.close()
    return there, damage


def test_after_a_failed_sync_nothing_is_acknowledged_any_more(tmp_path: Path) -> None:
    if shutil.which("strace") is None:
        if os.environ.get("CI") == "true":
            pytest.fail("NOT RUN: strace is missing")
        pytest.skip("NOT RUN: strace is missing")
    ingest = [sys.executable, "-m", "tests.fault.ingest", str(tmp_path), "FULL", "500", "1"]
    strace = ["strace", "-f", "-o", str(tmp_path / "trace"), "-e", "trace=fsync,fdatasync", "-e", FAILING]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    result = subprocess.run([*strace, *ingest], capture_output=True, text=True, env=environment, check=False)
    assert "INJECTED" in (tmp_path / "trace").read_text()
    assert result.returncode != 0
    assert "StorageFull" in result.stderr
    acked = {int(n) for n in re.findall(r"ACK (\d+)", result.stdout)} - {0}
    assert 0 < len(acked) < 30
    there, damage = asyncio.run(_look(tmp_path))
    assert acked <= there
    assert damage == ""
