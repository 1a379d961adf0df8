"""Two hundred clients that connect, talk, vanish and return: what the node keeps does not grow, and nothing is left.

Three minutes, or `AUN_EDGE_SOAK_MINUTES`, and half of that before to warm up; less than two show what is left behind
and too little of what grows.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from websockets.exceptions import ConnectionClosed

from edge.cli.client import Control
from tests.support.node import Agent, Elsewhere, RpcError, Socket
from tests.support.process import NodeProcess

CLIENTS = 200
MINUTES = float(os.environ.get("AUN_EDGE_SOAK_MINUTES") or 3)
WARM_S = MINUTES * 60 / 2
"""How long caches fill before it counts. `LIMITS` brings each that is kept for minutes to rest within it."""
GROWTH = 0.01
"""Of private memory, a minute, after that."""
FLOOR_S = 10
"""The least of so many seconds is what the node keeps; what is above it was work in hand."""
LOOKS, SAME = 120, 6
"""Looks at what a node holds, half a second apart, and how many in a row are the same once it is at rest."""
SHORT_GROWTH = 0.3
"""Of private memory in all, in a run too short to tell growth from warming up."""
LIMITS = {
    "rate.auth": 100_000,
    "rate.address": 100_000,
    "session.guests_per_address": 400,
    "message.ring_s": 15,
    "message.affinity_s": 15,
}
"""All clients have one address here; and what is kept for minutes by design (queue messages, who served whom last)
must come to rest within the run."""
LOGINS = 20
"""At once: a client that computes keys is no measure of the node."""


class Crowd:
    """Every client, and what they have done together."""

    def __init__(self, agents: list[Agent], seconds: float) -> None:
        self.agents, self.began = agents, time.monotonic()
        self.until = self.began + seconds
        self.done: Counter[str] = Counter()
        self.acked: dict[tuple[str, str], int] = {}
        self._numbers = itertools.count()

    @property
    def over(self) -> bool:
        return time.monotonic() >= self.until

    async def live(self, number: int) -> None:
        """One client: come, catch up, talk, go, one way or the other; again until the time is up."""
        choose, me = random.Random(number), self.agents[number]
        while not self.over:
            try:
                async with me.connected(peer_pull=choose.random() < 0.8) as wire:
                    await self._talk(wire, me, choose)
                    if choose.random() < 0.5:
                        wire.ws.transport.abort()
                        self.done["vanished"] += 1
            except (ConnectionClosed, OSError):
                pass
            self.done["visits"] += 1
            await asyncio.sleep(choose.random())

    async def _talk(self, wire: Socket, me: Agent, choose: random.Random) -> None:
        for _ in range(choose.randrange(2, 10)):
            if self.over:
                return
            try:
                await self._say(wire, me, choose)
            except RpcError as error:
                self.done["refused" if error.code == -32029 else f"error {error.code}"] += 1
            await asyncio.sleep(choose.random() * 0.5)

    async def _say(self, wire: Socket, me: Agent, choose: random.Random) -> None:
        to = choose.choice(self.agents).aid
        payload = {"type": "text", "text": "x" * choose.randrange(10, 2_000)}
        match choose.randrange(8):
            case 0:
                target = {"target": {"aid": to}, "deliver": {"method": "event/app.typing", "params": {"on": True}}}
                await wire.call("notification/route", target)
            case 1:
                await wire.call("message.send", {"to": to, "payload": payload, "ttl": 5})
            case 2:
                await wire.call("message.send", {"to": to, "payload": payload, "delivery_mode": "queue"})
            case 3 | 4:
                key = f"m-{next(self._numbers)}"
                sent = await wire.call("message.send", {"to": to, "payload": payload, "message_id": key})
                assert sent["message_id"] == key
                self.done["sent"] += 1
            case 5:
                await wire.call("message.query_online", {"aids": [to, me.aid]})
            case _:
                await self._read(wire, me)

    async def _read(self, wire: Socket, me: Agent) -> None:
        """What the current SDK does after a hint: by sender, with an ack for what it got."""
        for peer in (await wire.call("message.peers", {"filter": "pending"}))["peers"][:5]:
            where: dict[str, Any] = {"cursor_scope": "peer", "sender_aid": peer["sender_aid"]}
            page = await wire.call("message.v2.pull", {**where, "after_seq": peer["initial_after_seq"]})
            done = await wire.call("message.v2.ack", {**where, "up_to_seq": page["next_after_seq"]})
            place = (me.aid, peer["sender_aid"])
            assert done["peer_ack_seq"] >= self.acked.get(place, 0)
            self.acked[place] = done["peer_ack_seq"]
            self.done["read"] += len(page["messages"])


def private_kib(pid: int) -> int:
    """What is the process's alone."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_"))


def descriptors(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/fd").iterdir()))


def growth(samples: list[tuple[float, int]]) -> float:
    """The slope of a line through the floors of the samples, as a part of their mean, a minute."""
    floors = [min(some, key=itemgetter(1)) for _, some in itertools.groupby(samples, lambda one: one[0] // FLOOR_S)]
    middle, mean = (sum(part) / len(floors) for part in zip(*floors, strict=True))
    above = sum((at - middle) * (kib - mean) for at, kib in floors)
    below = sum((at - middle) ** 2 for at, _ in floors)
    return above / below * 60 / mean


@contextmanager
def house(tmp_path: Path) -> Iterator[NodeProcess]:
    limits = [part for name, value in LIMITS.items() for part in ("--set", f"limits.{name}={value}")]
    with NodeProcess(tmp_path / "state", "--issuer", "edge.test", *limits) as node:
        yield node


class Held(NamedTuple):
    """What a node holds."""

    channels: int
    tasks: int
    descriptors: int


def held(node: NodeProcess) -> Held:
    """What it holds now."""
    status: dict[str, Any] = node.cli("status")
    assert status["background_tasks"]["failed"] == 0
    return Held(status["channels"], status["background_tasks"]["running"], descriptors(node.pid))


def at_rest(node: NodeProcess) -> Held:
    """What it holds once that is the same at several looks: what a start begins is over."""
    looks = [held(node)]
    for _ in range(LOOKS):
        time.sleep(0.5)
        looks.append(held(node))
        if len(looks) > SAME and len(set(looks[-SAME:])) == 1:
            break
    return looks[-1]


def settled(node: NodeProcess, before: Held) -> Held:
    """What it holds once everybody's goodbye has been noticed, or when that has taken too long."""
    for _ in range(LOOKS):
        now = held(node)
        if all(one <= bound for one, bound in zip(now, before, strict=True)):
            break
        time.sleep(0.5)
    return now


async def soak(node: NodeProcess, samples: list[tuple[float, int]]) -> Counter[str]:
    with Control(node.state_dir) as control:
        for number in range(CLIENTS):
            control.call("agent.add", {"name": f"agent-{number}"})
    agents = [Agent(Elsewhere(node), f"agent-{number}") for number in range(CLIENTS)]
    turn = asyncio.Semaphore(LOGINS)

    async def enter(one: Agent) -> None:
        async with turn:
            await one.register()
            await one.login()

    await asyncio.gather(*map(enter, agents))
    crowd = Crowd(agents, WARM_S + MINUTES * 60)

    async def watch() -> None:
        while not crowd.over:
            await asyncio.sleep(1)
            samples.append((time.monotonic() - crowd.began, private_kib(node.pid)))

    async with asyncio.TaskGroup() as group:
        group.create_task(watch())
        for number in range(CLIENTS):
            group.create_task(crowd.live(number))
    return crowd.done


@pytest.mark.slow
def test_two_hundred_clients_come_and_go_and_nothing_is_left_of_them(tmp_path: Path) -> None:
    samples: list[tuple[float, int]] = []
    with house(tmp_path) as node:
        before = at_rest(node)
        done = asyncio.run(soak(node, samples))
        after = settled(node, before)
        warm = [sample for sample in samples if sample[0] >= WARM_S]
        slope = growth(warm)
        print(f"soak: {MINUTES:.2f} min, {dict(done)}, {warm[0][1]} to {warm[-1][1]} KiB, {slope:+.2%} a minute")
        assert all(one <= bound for one, bound in zip(after, before, strict=True)), (after, before)
        assert node.stop() == 0
        assert "Traceback" not in node.log
    assert not [name for name in done if name.startswith("error")], done
    assert done["visits"] > CLIENTS
    assert done["vanished"] > CLIENTS // 4
    assert done["read"] > CLIENTS
    if MINUTES >= 2:
        assert slope < GROWTH
    else:
        assert warm[-1][1] < warm[0][1] * (1 + SHORT_GROWTH)
