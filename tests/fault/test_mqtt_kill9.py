"""`kill -9` at random moments under mixed QoS: what was acked is delivered or declared, QoS 2 never twice, sessions,
subscriptions and retained messages are what the node said they are (promises P1, P2).

20 kills by default; `AUN_EDGE_KILLS=300` for the long run.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from edge.cli.client import Control
from tests.fault.mqtt_account import Flipper, Publisher, Subscriber, come_back, retained, wrongly_retained
from tests.support.mqtt_client import CLOSED, SUBACK, V5, V311, Client
from tests.support.process import NodeProcess

KILLS = int(os.environ.get("AUN_EDGE_KILLS", "20"))
SEED = int(os.environ.get("AUN_EDGE_SEED", "20261120"))
QUEUE = 150
"""Messages that wait for one client at most: few, so that some are given up and declared."""
SETTLE_S = 60.0
LIVE_REASONS = {"no_room"}
"""Losses of messages that nobody acked (QoS 0)."""


class Town:
    """A node, those who publish, those who listen, and what they know."""

    def __init__(self, node: NodeProcess, chance: random.Random) -> None:
        self.node, self.chance = node, chance
        self.publishers: list[Publisher] = []
        self.subscribers: list[Subscriber] = []
        self.flippers: list[Flipper] = []
        self.asleep: set[Subscriber] = set()
        self._clients: list[Client] = []
        self.passing: list[Client] = []
        """Clean listeners: nothing of theirs outlives a connection."""
        self.observer: Client

    def settle_in(self) -> None:
        """Make the users."""
        for user, version, clean in (("p-four", V311, False), ("p-five", V5, False), ("p-clean", V311, True)):
            self.publishers.append(Publisher(self._user(user, version, clean), random.Random(self.chance.random())))
        for user, version, qos in (("s-two", V311, 2), ("s-five", V5, 2), ("s-one", V311, 1), ("s-away", V5, 2)):
            self.subscribers.append(Subscriber(self._user(user, version, False), qos))
        self.asleep = {one for one in self.subscribers if one.client.user == "s-away"}
        self.passing = [self._user("s-passing", V311, True), self._user("s-pass-v", V5, True)]
        for user, version in (("f-four", V311), ("f-five", V5)):
            self.flippers.append(Flipper(self._user(user, version, False), random.Random(self.chance.random())))
        self.observer = self._user("observer", V311, True)

    def _user(self, name: str, version: int, clean: bool) -> Client:
        password = self.node.cli("device", "add", name, "--admin")["password"]
        made = Client(name, password, version=version, clean=clean)
        self._clients.append(made)
        return made

    @property
    def place(self) -> tuple[str, int]:
        host, port = self.node.ready["endpoints"]["mqtt"].removeprefix("mqtt://").rsplit(":", 1)
        return host, int(port)

    # Coming and going.

    async def subscribe_all(self) -> None:
        """The first connection of every listener with a session."""
        for one in self.subscribers:
            assert not await one.client.connect(*self.place)
            one.client.subscribe("+/data/#", qos=one.qos)
            assert (await one.client.expect(SUBACK)).reason == one.qos
            one.client.cut()

    @asynccontextmanager
    async def listening(self, who: list[Subscriber], *, hesitant: bool) -> AsyncIterator[None]:
        """Those who have a session listen; hesitant ones answer late and in pieces."""
        tasks = []
        for one in who:
            await come_back(one.client, *self.place)
            tasks.append(asyncio.ensure_future(self._hesitate(one.client) if hesitant else one.client.run()))
        try:
            yield
        finally:
            for one in who:
                one.client.cut()
            await asyncio.gather(*tasks)

    async def _hesitate(self, client: Client) -> None:
        running = asyncio.ensure_future(client.run(answer_at_once=False))
        while not running.done():
            client.answer(self.chance.randint(0, 12))
            await asyncio.sleep(self.chance.random() * 0.02)
        await running

    # The load.

    async def load(self, after_s: float) -> None:
        """Everybody does what they do; the node is killed in the middle of it."""
        awake = [one for one in self.subscribers if one not in self.asleep]
        async with self.listening(awake, hesitant=True):
            await asyncio.gather(*(self._pass(client) for client in self.passing))
            tasks = [asyncio.ensure_future(self._publish(one)) for one in self.publishers]
            tasks += [asyncio.ensure_future(one.live(*self.place)) for one in self.flippers]
            tasks += [asyncio.ensure_future(client.run()) for client in self.passing]
            await asyncio.sleep(after_s)
            self.node.kill()
            await asyncio.gather(*tasks)
        for client in self.passing:
            self._each_once(client)

    async def _pass(self, client: Client) -> None:
        assert not await client.connect(*self.place)
        client.subscribe("+/data/#", qos=2)
        assert (await client.expect(SUBACK)).reason == 2

    def _each_once(self, client: Client) -> None:
        """Within one clean session nothing with QoS 2 comes twice."""
        twos = [packet.payload for packet in client.got if packet.qos == 2]
        assert len(twos) == len(set(twos))
        client.got.clear()

    async def _publish(self, one: Publisher) -> None:
        client = one.client
        with suppress(*CLOSED):
            await come_back(client, *self.place)
            reading = asyncio.ensure_future(self._hesitate(client))
            with suppress(*CLOSED):
                while client.connected:
                    one.burst()
                    await client.drain()
                    await asyncio.sleep(self.chance.random() * 0.02)
            await reading
        client.cut()

    # The books.

    async def check_retained(self) -> None:
        """What is retained is what was acked last, or something sent after it."""
        wrong = wrongly_retained(await retained(self.observer, *self.place), self.publishers)
        assert wrong == []

    async def check_flippers(self) -> None:
        """Sessions and subscriptions are what the node acked, seen by what arrives."""
        for one in self.flippers:
            await one.check(*self.place)

    async def finish(self) -> None:
        """Every publisher sends again what was not finished, until the node has taken all of it."""
        async with asyncio.timeout(SETTLE_S):
            for one in self.publishers:
                await one.finish(*self.place)

    async def settle(self, who: list[Subscriber]) -> None:
        """Let everything arrive, then compare."""
        async with self.listening(who, hesitant=False):
            await self.until(lambda: self._explained(who), who)

    def _explained(self, who: list[Subscriber]) -> bool:
        if not all(not self.unexplained(one) for one in who):
            return False
        status = Control(self.node.state_dir).call("status", {})["mqtt"]
        return bool(self.asleep - set(who)) or not status["inflight"] + status["queued"]

    def unexplained(self, one: Subscriber) -> int:
        """Promised messages that neither came nor are declared; declared ones that nobody could have lost."""
        one.note()
        lost, repeats = one.missing(self.publishers)
        declared = self.declared(one.client.user)
        spare = sum(publisher.spare for publisher in self.publishers) + repeats
        assert declared or not one.disorder, one.disorder[:3]
        return max(0, len(lost) - declared) + max(0, declared - len(lost) - spare)

    def declared(self, user: str) -> int:
        """What the loss ledger has of a client, of messages with an ack."""
        lines = Control(self.node.state_dir).call("queue.drops", {"client": user, "limit": 1000})["lines"]
        return sum(line["count"] for line in lines if line["reason"] not in LIVE_REASONS)

    async def until(self, reached: Callable[[], bool], who: list[Subscriber]) -> None:
        """Wait for something. Fails with the books when it does not come."""
        due = asyncio.get_running_loop().time() + SETTLE_S
        while not await asyncio.to_thread(reached):
            if asyncio.get_running_loop().time() > due:
                pytest.fail(f"not settled: {[self._books(one) for one in who]}")
            await asyncio.sleep(0.05)

    def _books(self, one: Subscriber) -> dict[str, Any]:
        lost, repeats = one.missing(self.publishers)
        examples = sorted(bytes(payload).rstrip(b"\xff") for payload in lost)[:5]
        return {
            "user": one.client.user,
            "lost": len(lost),
            "of": [sorted({payload.split(b":")[0] for payload in lost})],
            "examples": examples,
            "declared": self.declared(one.client.user),
            "repeats": repeats,
            "status": Control(self.node.state_dir).call("status", {})["mqtt"],
        }


@pytest.mark.slow
async def test_mixed_qos_survives_kill_9(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    node = NodeProcess(tmp_path / "state", "--set", f"limits.mqtt.queue_messages={QUEUE}")
    node.start()
    town = Town(node, chance)
    kills = 0
    try:
        town.settle_in()
        await town.subscribe_all()
        while kills < KILLS:
            await town.load(0.05 + chance.random() * 0.5)
            kills += 1
            await asyncio.to_thread(node.start)
            while chance.random() < 0.3:
                await resumed_and_killed(town)
                kills += 1
            await town.check_retained()
            await town.check_flippers()
            await town.finish()
            awake = [one for one in town.subscribers if one not in town.asleep]
            await town.settle(awake if chance.random() < 0.7 else town.subscribers)
        await town.settle(town.subscribers)
        await town.check_retained()
        tell(town, kills)
        assert all(len(one.promised) > 3 * kills for one in town.publishers), "the load was no load"
        assert town.declared("s-away") > 0, "nothing was given up, so nothing of that was shown"
    finally:
        if node.alive:
            assert node.stop() == 0


async def resumed_and_killed(town: Town) -> None:
    """The node dies again while everybody comes back."""
    killing = asyncio.get_running_loop().call_later(town.chance.random() * 0.1, town.node.kill)
    with suppress(*CLOSED):
        async with town.listening(town.subscribers, hesitant=True):
            await town.finish()
            await asyncio.sleep(0.2)
    killing.cancel()
    if town.node.alive:
        town.node.kill()
    await asyncio.to_thread(town.node.start)


def tell(town: Town, kills: int) -> None:
    """The figures, for whoever runs it with `-s`."""
    promised = {qos: sum(list(one.promised.values()).count(qos) for one in town.publishers) for qos in (1, 2)}
    print(f"\n{kills} kills; acked with QoS 1: {promised[1]}, QoS 2: {promised[2]}")
    for one in town.subscribers:
        lost, repeats = one.missing(town.publishers)
        user = one.client.user
        print(f"{user}: {len(lost)} not delivered, {town.declared(user)} declared, {repeats} repeats")
