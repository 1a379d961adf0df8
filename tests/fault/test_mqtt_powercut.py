"""Power cuts under mixed QoS: at any moment what was acked is delivered or declared, QoS 2 never twice, sessions,
subscriptions and retained messages are what the broker said they are (promises P1, P2).

The whole engine runs under strace with its clients; then the power is cut at random moments and the broker comes up,
after the next boot, on what the medium holds. What the clients know is what they knew at that moment.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import random
import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge.store import ledger
from tests.fault import trace
from tests.fault.mqtt_account import Subscriber, come_back, retained, wrongly_retained
from tests.fault.mqtt_workload import KEPT, PLACE, Cast, Rig, replay, rig

CUTS = int(os.environ.get("AUN_EDGE_CUTS", "60"))
ROOT = Path(__file__).parents[2]
SETTLE_S = 60.0


def experiment(scratch: Path, synchronous: str, cuts: int) -> Iterator[tuple[Path, Cast]]:
    """Run the workload once; then what is left of its folder after each cut, and everybody as they were then."""
    folder, log, told = scratch / "state", scratch / "trace", scratch / "events"
    folder.mkdir()
    command = [trace.PYTHON, "-m", "tests.fault.mqtt_workload", str(folder), str(told), synchronous]
    trace.record(command, log, {"PYTHONPATH": str(ROOT)})
    ops = trace.read(log, folder)
    log.unlink()
    events = pickle.loads(told.read_bytes())
    coin = random.Random(20261120)
    moments = set(coin.sample(range(len(ops)), cuts))
    medium = trace.Medium()
    for moment, op in enumerate(ops):
        medium.apply(op)
        if moment in moments:
            left = scratch / "left"
            medium.cut(left, coin)
            yield left, replay(events[: max(medium.acked, default=0)])
            shutil.rmtree(left)
    assert len(medium.acked) == len(events)


@pytest.mark.slow
@pytest.mark.needs("strace")
def test_mixed_qos_survives_power_cuts(tmp_path: Path) -> None:
    seen = Counter[str]()
    for left, cast in experiment(tmp_path, "FULL", CUTS):
        seen.update(cuts=1, **asyncio.run(look(left, cast)))
    print(f"\n{dict(seen)}")
    assert seen["cuts"] == CUTS
    assert seen["promised"] > 10 * CUTS
    assert seen["unfinished"] > CUTS
    assert seen["declared"] > 0


@pytest.mark.slow
@pytest.mark.needs("strace")
def test_the_same_cuts_show_what_synchronous_normal_would_lose(tmp_path: Path) -> None:
    broken = 0
    for left, cast in experiment(tmp_path, "NORMAL", 10):
        try:
            asyncio.run(look(left, cast))
        except AssertionError:
            broken += 1
    assert broken > 2


async def look(folder: Path, cast: Cast) -> dict[str, int]:
    """Let everybody come back, then compare the books; figures of what there was to compare."""
    async with rig(folder, "another boot") as made:
        try:
            return await _compare(made, cast, (PLACE, made.port))
        finally:
            for client in cast.clients.values():
                client.cut()


async def _compare(made: Rig, cast: Cast, place: tuple[str, int]) -> dict[str, int]:
    figures = Counter[str]()
    for client in (*(one.client for one in cast.publishers), *(one.client for one in cast.subscribers)):
        figures["unfinished"] += len(client.unfinished) + len(client.incoming)
    assert made.db.damage == ""
    assert made.db.doubt == ""
    assert await made.db.read(lambda unit: unit.run("PRAGMA integrity_check")) == [("ok",)]
    assert wrongly_retained(await retained(cast.observer, *place), cast.publishers) == []
    for flipper in cast.flippers:
        await flipper.check(*place)
    for publisher in cast.publishers:
        await publisher.finish(*place)
        figures["promised"] += len(publisher.promised)
    await _deliver(made, cast, place)
    kept = Counter(payload for (payload,) in await made.db.read(lambda unit: unit.run(KEPT)))
    for publisher in cast.publishers:
        done = {one.payload for one in publisher.client.finished if one.topic.endswith(("/data/0", "/data/1"))}
        assert done <= kept.keys(), "acked and not kept"
    await made.engine.close()  # what is counted goes to the ledger
    for listener in cast.subscribers:
        figures["declared"] += await _explained(made, cast, listener)
    return figures


async def _explained(made: Rig, cast: Cast, listener: Subscriber) -> int:
    """Whether what was promised came or is declared; how much is declared."""
    user = listener.client.user
    listener.note()
    lost, repeats = listener.missing(cast.publishers)
    gaps = await made.db.read(lambda unit: ledger.matching(unit, who=user))
    declared = sum(gap.count for gap in gaps if gap.reason != "no_room")
    spare = repeats + sum(one.spare for one in cast.publishers)
    assert len(lost) <= declared, f"{user}: {len(lost)} lost, {declared} declared: {sorted(lost)[:5]}"
    assert declared <= len(lost) + spare, f"{user}: {len(lost)} lost, {declared} declared, {spare} to spare"
    assert declared or not listener.disorder, listener.disorder[:3]
    return declared


async def _deliver(made: Rig, cast: Cast, place: tuple[str, int]) -> None:
    """Everybody listens until nothing waits any more."""
    tasks = []
    for one in cast.subscribers:
        if one.client.known:
            await come_back(one.client, *place)
            tasks.append(asyncio.ensure_future(one.client.run()))
    async with asyncio.timeout(SETTLE_S):
        while made.engine.stats()["queued"] + made.engine.stats()["inflight"]:
            await asyncio.sleep(0.005)
    for one in cast.subscribers:
        one.client.cut()
    await asyncio.gather(*tasks)
