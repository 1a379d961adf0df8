"""The three journeys of the design, each through real sockets: a reading, a task, a message to a device."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiomqtt
import pytest

from edge.contract.principal import Kind, Principal
from edge.node.life import Node
from tests.support.node import RpcError, agent

OWNER = Principal(kind=Kind.OPERATOR, aid="", scopes=frozenset({"*"}), via="control")
THERMOMETER = {
    "name": "Temperature",
    "unique_id": "hall_t",
    "device_class": "temperature",
    "unit_of_measurement": "°C",
    "state_topic": "house/t",
    "device": {"identifiers": ["hall-1"], "name": "Hall"},
}
PUMP = {
    "name": "Pump",
    "unique_id": "pump_s",
    "state_topic": "house/s",
    "command_topic": "house/s/set",
    "device": {"identifiers": ["pump-1"], "name": "Pump"},
}
LOCK = {
    "name": "Door",
    "unique_id": "door_l",
    "state_topic": "house/l",
    "command_topic": "house/l/set",
    "device": {"identifiers": ["door-1"], "name": "Door"},
}


async def ask(node: Node, op: str, /, **params: Any) -> Any:
    outcome = await node.house.dispatcher.call("edge", op, json.dumps(params).encode(), OWNER)
    return outcome.result


@asynccontextmanager
async def client(node: Node, user: str = "house") -> AsyncIterator[aiomqtt.Client]:
    """A device's MQTT connection with credentials of its own."""
    added = await ask(node, "device.add", name=user)
    host, port = node.endpoints["mqtt"].removeprefix("mqtt://").rsplit(":", 1)
    async with aiomqtt.Client(host, int(port), username=user, password=added.password) as made:
        yield made


async def announce(mqtt: aiomqtt.Client, kind: str, thing: dict[str, Any], state: str) -> None:
    topic = f"homeassistant/{kind}/house/{thing['unique_id']}/config"
    await mqtt.publish(topic, json.dumps(thing), qos=1, retain=True)
    await mqtt.publish(thing["state_topic"], state, qos=1)


async def skill(node: Node, kind: str) -> Any:
    (found,) = [one for one in await ask(node, "skill.list") if one.kind == kind]
    return found


@pytest.mark.seed("C-007", "C-012")
async def test_one_retained_message_and_one_state_become_a_skill_with_a_value(node: Node) -> None:
    async with client(node) as mqtt:
        await announce(mqtt, "sensor", THERMOMETER, "21.5")
        found = await skill(node, "sensor")
        assert (found.value, found.unit, found.risk) == (21.5, "°C", "low")


@pytest.mark.seed("S0-113", "S0-114")
async def test_a_task_to_the_thermometer_returns_the_published_value(node: Node) -> None:
    alice = await agent(node, "alice")
    async with client(node) as mqtt, alice.connected() as wire:
        await announce(mqtt, "sensor", THERMOMETER, "21.5")
        found = await skill(node, "sensor")
        made = await wire.call("task.create", {"to": found.aid, "input": {"text": f"{found.id} read"}})
        assert made["status"] == "submitted"
        done = await wire.event("event/task.completed")
        assert done["task_id"] == made["task_id"]
        task = await wire.call("task.get", {"task_id": made["task_id"]})
        assert task["status"] == "completed"
        (artifact,) = task["artifacts"]
        assert {"value": 21.5, "unit": "°C"}.items() <= artifact["parts"][1]["data"].items()


async def test_a_task_to_the_switch_puts_the_command_on_its_topic_and_ends_when_the_state_confirms(node: Node) -> None:
    alice = await agent(node, "alice")
    async with client(node) as mqtt, alice.connected() as wire:
        await announce(mqtt, "switch", PUMP, "OFF")
        await mqtt.subscribe("house/s/set", qos=1)
        found = await skill(node, "switch")
        made = await wire.call("task.create", {"to": found.aid, "input": {"text": f"{found.id} on"}})
        command = await anext(mqtt.messages)
        assert (str(command.topic), command.payload) == ("house/s/set", b"ON")
        await mqtt.publish("house/s", "ON", qos=1)
        done = await wire.event("event/task.completed")
        assert done["task_id"] == made["task_id"]


async def test_what_is_of_high_risk_needs_a_grant(node: Node) -> None:
    alice = await agent(node, "alice")
    async with client(node) as mqtt, alice.connected() as wire:
        await announce(mqtt, "lock", LOCK, "LOCKED")
        await mqtt.subscribe("house/l/set", qos=1)
        found = await skill(node, "lock")
        assert found.risk == "high"
        order = {"to": found.aid, "input": {"skill": found.id, "params": {"value": "UNLOCK"}}}
        with pytest.raises(RpcError, match=f"-32004 .*aun-edge cap grant {found.id} alice"):
            await wire.call("task.create", order)
        await ask(node, "cap.grant", cap=found.id, agent="alice")
        await wire.call("task.create", order)
        assert (await anext(mqtt.messages)).payload == b"UNLOCK"
        await ask(node, "agent.revoke", name="alice")
        (line,) = [one for one in await ask(node, "cap.list") if one.id == found.id]
        assert line.granted == []
    again = await agent(node, "alice")
    async with again.connected() as wire:
        with pytest.raises(RpcError, match="-32004"):
            await wire.call("task.create", order)


async def test_a_device_names_another_devices_topic_in_vain(node: Node) -> None:
    async with client(node) as mqtt, client(node, "other"):
        await announce(mqtt, "sensor", {**THERMOMETER, "state_topic": "other/t"}, "21.5")
        assert [one.kind for one in await ask(node, "skill.list")] == []
        shown = await ask(node, "device.show", name="house")
        assert any("other/t" in line.detail or line.reason for line in shown.refused)


@pytest.mark.seed("S0-010")
async def test_a_message_to_a_device_is_understood_and_answered(node: Node) -> None:
    alice = await agent(node, "alice")
    async with client(node) as mqtt, alice.connected() as wire:
        await announce(mqtt, "sensor", THERMOMETER, "21.5")
        found = await skill(node, "sensor")
        sent = await wire.call("message.send", {"to": found.aid, "payload": {"type": "text", "text": "read"}})
        answer = await wire.event("event/message.received")
        assert answer["from"] == found.aid
        assert answer["payload"]["reply_to"] == sent["message_id"]
        assert "21.5" in answer["payload"]["text"]


async def test_a_reading_reaches_agents_only_after_its_commit(node: Node) -> None:
    seen: list[int] = []
    stored = node.house.hot.figures
    node.house.hub.watch("reading", None, lambda event: seen.append(stored().rows))
    async with client(node) as mqtt:
        await announce(mqtt, "sensor", THERMOMETER, "21.5")
        await mqtt.publish("house/t", "22.5", qos=1)
        while len(seen) < 2:
            await asyncio.sleep(0)
    assert min(seen) >= 1


async def test_a_session_stays_the_session_of_the_aid_that_opened_it(node: Node) -> None:
    alice, bob = await agent(node, "alice"), await agent(node, "bobb")
    async with alice.connected() as wire:
        for who in (bob, alice):
            proof = {"nonce": wire.challenge["nonce"], "auth": {"method": "kite_token", "token": who.token}}
            with pytest.raises(RpcError) as refused:
                await wire.call("auth.connect", proof)
            assert (refused.value.code, alice.aid in refused.value.message) == (4010, True)
        sent = await wire.call("message.send", {"to": bob.aid, "payload": {"type": "text", "text": "hi"}})
        assert sent["status"] == "sent"
    async with bob.connected() as wire:
        [row] = (await wire.call("message.pull"))["messages"]
        assert row["from"] == alice.aid
