"""An alarm on the bus is a message in the owner's inbox, over real sockets and over a restart (settled G19)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import aiomqtt
import pytest

from edge.node.life import Node
from tests.node.test_journeys import ask
from tests.support.node import ISSUER, Socket, agent, running
from tests.support.patience import PATIENCE_S

OWNER = f"alice.{ISSUER}"
SMOKE = {
    "name": "Smoke",
    "unique_id": "porch_s",
    "device_class": "smoke",
    "state_topic": "house/smoke",
    "device": {"identifiers": ["porch-1"], "name": "Porch"},
}


async def publish(node: Node, password: str, *values: str) -> None:
    host, port = node.endpoints["mqtt"].removeprefix("mqtt://").rsplit(":", 1)
    async with aiomqtt.Client(host, int(port), username="house", password=password) as mqtt:
        await mqtt.publish("homeassistant/binary_sensor/house/s/config", json.dumps(SMOKE), qos=1, retain=True)
        for value in values:
            await mqtt.publish("house/smoke", value, qos=1)


async def pulled(wire: Socket, count: int) -> list[dict[str, Any]]:
    """The owner's inbox, once it holds so many messages."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            rows: list[dict[str, Any]] = (await wire.call("message.pull", {}))["messages"]
            if len(rows) >= count:
                return rows
            await asyncio.sleep(0.02)


@pytest.mark.seed("S0-010")
async def test_smoke_on_the_bus_is_a_message_to_the_owner_once_also_over_a_restart(tmp_path: Path) -> None:
    sets = [f"node.owner={OWNER}"]
    async with running(tmp_path / "state", *sets) as node:
        alice = await agent(node, "alice")
        password = (await ask(node, "device.add", name="house")).password
        async with alice.connected() as wire:
            await publish(node, password, "OFF", "ON")
            event = await asyncio.wait_for(wire.event("event/message.received"), PATIENCE_S)
            [row] = await pulled(wire, 1)
            assert event["payload"] == row["payload"]
            assert (row["from"], row["to"]) == (f"d-house.{ISSUER}", OWNER)
            payload = row["payload"]
            assert (payload["type"], payload["event"], payload["text"]) == ("event", "alarm", "Porch: Smoke on")
            assert [(one["skill"], one["value"]) for one in payload["alarms"]] == [("house.smoke", True)]
            await wire.call("message.send", {"to": row["from"], "payload": {**payload, "auto": True}})
    async with running(tmp_path / "state", *sets) as node:
        alice.node = node
        await alice.login()
        async with alice.connected() as wire:
            await publish(node, password, "ON", "OFF")
            rows = await pulled(wire, 2)
            assert [row["payload"]["alarms"][0]["value"] for row in rows] == [True, False]
        assert node.house.alarms.counters == {"sent": 1}


async def test_an_owner_who_is_not_registered_is_a_loss_that_queue_drops_shows(tmp_path: Path) -> None:
    async with running(tmp_path / "state", f"node.owner={OWNER}") as node:
        password = (await ask(node, "device.add", name="house")).password
        await publish(node, password, "ON")
        async with asyncio.timeout(PATIENCE_S):
            while not any(one.reason == "undeliverable" for one in (await ask(node, "queue.drops")).lines):
                node.house.losses.flush()
                await asyncio.sleep(0.02)
