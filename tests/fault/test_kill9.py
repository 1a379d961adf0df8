"""`kill -9` at random moments under load: what was acknowledged is there after the restart (promises P1, P3).

20 seeds by default; `AUN_EDGE_KILLS=200` for the long run.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
from pathlib import Path
from typing import Any

import aiomqtt
import pytest
from websockets.exceptions import WebSocketException

from edge.cli.client import Control
from tests.support.node import Agent
from tests.support.process import NodeProcess

KILLS = int(os.environ.get("AUN_EDGE_KILLS", "20"))
SKILL = "meter.count"
ANNOUNCE = {
    "name": "Meter",
    "capabilities": [{"name": "count", "kind": "sensor", "value_type": "number", "history": "every"}],
}
BROKEN = (OSError, WebSocketException, aiomqtt.MqttError, EOFError)


class Acked:
    """What the node has promised to keep."""

    def __init__(self) -> None:
        self.readings: set[int] = set()
        self.messages: set[str] = set()
        self.tasks: set[str] = set()


class Place:
    """Where the agents find the node of this round."""

    def __init__(self, ready: dict[str, Any]) -> None:
        self.endpoints: dict[str, str] = ready["endpoints"]
        self.issuer: str = ready["issuer"]


async def publish(ready: dict[str, Any], password: str, first: int, acked: Acked) -> None:
    """Readings one after the other in several lanes, each counted once its PUBACK is here."""
    host, port = ready["endpoints"]["mqtt"].removeprefix("mqtt://").rsplit(":", 1)
    async with aiomqtt.Client(host, int(port), username="meter", password=password, timeout=60) as client:
        await client.publish("aun/v1/meter/announce", json.dumps(ANNOUNCE), qos=1, retain=True)

        async def lane(number: int) -> None:
            value = first + number
            while True:
                await client.publish("aun/v1/meter/state/count", str(value), qos=1)
                acked.readings.add(value)
                value += 4

        async def over() -> None:
            async for (
                _
            ) in client.messages:  # nothing comes; it fails with the connection, which a publish only outwaits
                pass

        running = [asyncio.ensure_future(one) for one in (over(), *(lane(number) for number in range(4)))]
        try:
            await asyncio.gather(*running)
        finally:
            for one in running:
                one.cancel()
            await asyncio.gather(*running, return_exceptions=True)


async def send(alice: Agent, bob: Agent, tag: str, acked: Acked) -> None:
    """Messages and tasks, each counted once its answer is here."""
    async with alice.connected() as wire:
        count = 0
        while True:
            count += 1
            message = f"{tag}-{count}"
            params = {"to": bob.aid, "payload": {"type": "text", "text": message}, "message_id": message}
            await wire.call("message.send", params)
            acked.messages.add(message)
            made = await wire.call("task.create", {"to": bob.aid, "input": {"text": message}})
            acked.tasks.add(made["task_id"])


async def load_until_killed(node: NodeProcess, after_s: float, lanes: list[Any]) -> None:
    """Run the lanes; kill the node in the middle; every lane must end by it."""
    tasks = [asyncio.ensure_future(one) for one in lanes]
    await asyncio.sleep(after_s)
    assert not any(task.done() for task in tasks), [task.exception() for task in tasks if task.done()]
    node.kill()
    for result in await asyncio.gather(*tasks, return_exceptions=True):
        assert isinstance(result, BROKEN), result


async def pulled(bob: Agent) -> set[str]:
    """Every message id in bob's inbox."""
    found: set[str] = set()
    async with bob.connected() as wire:
        after = 0
        while True:
            page = await wire.call("message.pull", {"after_seq": after, "limit": 200})
            found |= {row["message_id"] for row in page["messages"]}
            if not page["messages"]:
                return found
            after = page["latest_seq"]


async def task_ids(alice: Agent, wanted: set[str]) -> set[str]:
    """Those of `wanted` that the node still knows."""
    async with alice.connected() as wire:
        return {task for task in wanted if (await wire.call("task.get", {"task_id": task}))["task_id"] == task}


def readings(node: NodeProcess, after: int) -> tuple[set[int], int]:
    """The values stored after a number, and the newest number."""
    found: set[int] = set()
    while True:
        page = Control(node.state_dir).call("device.history", {"skill": SKILL, "after": after, "limit": 1000})
        found |= {int(row["value"]) for row in page["readings"]}
        after = page["next"]
        if not page["more"]:
            return found, after


@pytest.mark.slow
async def test_what_was_acknowledged_survives_kill_9(tmp_path: Path) -> None:
    chance = random.Random(20261120)
    names = ("rate.write", "rate.principal", "task.live")
    limits = [part for name in names for part in ("--set", f"limits.{name}=1000000")]
    node = NodeProcess(tmp_path / "state", "--issuer", "edge.test", *limits)
    node.start()
    password = node.cli("device", "add", "meter")["password"]
    alice, bob = (Agent(Place(node.ready), name) for name in ("alice", "bobb"))
    for one in (alice, bob):
        node.cli("agent", "add", one.name)
        await one.register()
        await one.login()
    promised, seen, newest = Acked(), 0, 0
    try:
        for round_ in range(KILLS):
            fresh = Acked()
            place = Place(node.ready)
            alice.node = bob.node = place
            lanes = [
                publish(node.ready, password, round_ * 1_000_000, fresh),
                send(alice, bob, f"r{round_}", fresh),
            ]
            await load_until_killed(node, 0.3 + chance.random() * 0.7, lanes)
            await asyncio.to_thread(node.start)
            assert "may have lost" not in node.log
            assert "damaged" not in node.log
            alice.node = bob.node = Place(node.ready)
            assert fresh.messages - await pulled(bob) == set()
            assert fresh.tasks - await task_ids(alice, fresh.tasks) == set()
            stored, newest = await asyncio.to_thread(readings, node, newest)
            assert fresh.readings - stored == set()
            promised.readings |= fresh.readings
            promised.messages |= fresh.messages
            seen += len(fresh.readings) + len(fresh.messages) + len(fresh.tasks)
        assert promised.messages - await pulled(bob) == set()
        assert seen > KILLS * 10, "the load was no load"
    finally:
        if node.alive:
            node.stop()
