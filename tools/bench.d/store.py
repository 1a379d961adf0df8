"""Rows acknowledged per second by the store beside a bare group commit: same rows, same file system, same run.

The bare one is the smallest program that does the same work: one queue, one thread, `executemany`, a commit, acks.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sqlite3
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from edge.contract.time import SECOND
from edge.store.database import Database
from edge.store.migration import statements
from edge.store.numbers import Sequence
from edge.store.schema import MIGRATIONS
from edge.system.clock import SystemClock

SECONDS = float(os.environ.get("AUN_EDGE_BENCH_STORE_SECONDS", "2"))
IN_FLIGHT = (1, 50, 200)
TABLE = """CREATE TABLE bench_row (seq INTEGER PRIMARY KEY, topic TEXT NOT NULL, mono_us INTEGER NOT NULL,
    body BLOB NOT NULL) STRICT"""
ADD = "INSERT INTO bench_row (seq, topic, mono_us, body) VALUES (?, ?, ?, ?)"
BODY = os.urandom(200)

Row = dict[str, Any]
Put = Callable[[Callable[[object], None]], None]
"""Store one more row; call back when it is on disk."""


def run() -> list[Row]:
    """All figures."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.0005)  # as node.py does (design D5)
    try:
        return [row for in_flight in IN_FLIGHT for row in _pair(in_flight)]
    finally:
        sys.setswitchinterval(before)


def _pair(in_flight: int) -> list[Row]:
    bare, ours = _in_scratch(_bare, in_flight), _in_scratch(_ours, in_flight)
    name = f"{in_flight} in flight"
    budget = {"budget": "≥ 0.5 × bare", "ok": ours["rate"] >= 0.5 * bare["rate"]} if in_flight == 200 else {}
    beside = {"beside_what": "bare group commit"}
    return [
        {
            "what": f"rows acked, {name}",
            "value": ours["rate"],
            "unit": "rows/s",
            "beside": bare["rate"],
            **beside,
            **budget,
        },
        {"what": f"ack p99, {name}", "value": ours["p99"], "unit": "ms", "beside": bare["p99"], **beside},
        {
            "what": f"written per row, {name}",
            "value": ours["written"],
            "unit": "B",
            "beside": bare["written"],
            **beside,
        },
    ]


def _in_scratch(measure: Callable[[Path, int], Any], in_flight: int) -> dict[str, float]:
    folder = Path(tempfile.mkdtemp(prefix="bench-store-"))
    try:
        result: dict[str, float] = asyncio.run(measure(folder, in_flight))
        return result
    finally:
        shutil.rmtree(folder)


async def _load(put: Put, in_flight: int) -> dict[str, float]:
    """Keep `in_flight` rows waiting for their ack; what came back in the time."""
    loop = asyncio.get_running_loop()
    over: asyncio.Future[None] = loop.create_future()
    waits: list[float] = []
    written, start = _written(), time.perf_counter()
    flying = in_flight

    def one() -> None:
        queued = time.perf_counter()
        put(lambda result: acked(queued))

    def acked(queued: float) -> None:
        nonlocal flying
        now = time.perf_counter()
        waits.append(now - queued)
        if now - start < SECONDS:
            one()
            return
        flying -= 1
        if not flying:
            over.set_result(None)

    for _ in range(in_flight):
        one()
    await over
    took = time.perf_counter() - start
    waits.sort()
    return {
        "rate": len(waits) / took,
        "p99": waits[len(waits) * 99 // 100] * 1000,
        "written": (_written() - written) / len(waits),
    }


async def _ours(folder: Path, in_flight: int) -> dict[str, float]:
    clock = SystemClock(1)
    table = statements("hot", "bench", TABLE)
    loop = asyncio.get_running_loop()
    db = Database(folder / "hot.db", "hot", clock, loop, migrations=[*MIGRATIONS, table])
    await db.open()
    sequence = Sequence("bench", "", "SELECT max(seq) FROM bench_row")
    await sequence.open(db)

    def put(done: Callable[[object], None]) -> None:
        [seq] = sequence.take()
        db.bulk(ADD, [(seq, "aun/v1/device/state/temperature", clock.now().mono_us, BODY)], done)

    result = await _load(put, in_flight)
    await db.close()
    return result


async def _bare(folder: Path, in_flight: int) -> dict[str, float]:
    conn = sqlite3.connect(folder / "bare.db", isolation_level=None, check_same_thread=False)
    for setting in ("journal_mode=wal", "synchronous=full"):
        conn.execute(f"PRAGMA {setting}")
    conn.execute(TABLE)
    loop = asyncio.get_running_loop()
    queue: asyncio.Queue[tuple[tuple[object, ...], Callable[[object], None]]] = asyncio.Queue()
    count = 0

    def commit(rows: list[tuple[object, ...]]) -> None:
        conn.execute("BEGIN IMMEDIATE")
        conn.executemany(ADD, rows)
        conn.execute("COMMIT")

    def put(done: Callable[[object], None]) -> None:
        nonlocal count
        count += 1
        row = (count, "aun/v1/device/state/temperature", time.monotonic_ns() // 1000 % SECOND, BODY)
        queue.put_nowait((row, done))

    async def write() -> None:
        with ThreadPoolExecutor(1) as thread:
            while True:
                batch = [await queue.get()]
                while not queue.empty() and len(batch) < 5000:
                    batch.append(queue.get_nowait())
                await loop.run_in_executor(thread, commit, [row for row, _ in batch])
                for _, done in batch:
                    done(None)

    writer = asyncio.ensure_future(write())
    result = await _load(put, in_flight)
    writer.cancel()
    await asyncio.gather(writer, return_exceptions=True)
    conn.close()
    return result


def _written() -> int:
    """Bytes this process has handed to write calls."""
    found = re.search(r"^wchar: (\d+)", Path("/proc/self/io").read_text(), re.MULTILINE)
    return int(found[1]) if found else 0
