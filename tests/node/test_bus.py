"""The engine that the settings name is the node's bus, and `status` says what it promises."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import aiomqtt
import pytest

from edge.contract.principal import Kind, Principal
from edge.node.failure import StartFailed
from edge.node.life import Node
from tests.support.mosquitto import Mosquitto
from tests.support.node import running

OWNER = Principal(kind=Kind.OPERATOR, aid="", scopes=frozenset({"*"}), via="control")


async def ask(node: Node, op: str, /, **params: Any) -> Any:
    return (await node.house.dispatcher.call("edge", op, json.dumps(params).encode(), OWNER)).result


async def test_the_usual_engine_promises_acks_from_disk_and_knows_traffic_classes(tmp_path: Path) -> None:
    async with running(tmp_path / "state") as node:
        mqtt = (await ask(node, "status"))["mqtt"]
        assert (mqtt["engine"], node.house.bus.listens) == ("builtin", True)
        assert "on disk" in mqtt["promise"]
        added = await ask(node, "device.add", name="house")
        host, port = node.endpoints["mqtt"].removeprefix("mqtt://").rsplit(":", 1)
        async with aiomqtt.Client(host, int(port), username="house", password=added.password) as client:
            smoke = {"name": "Smoke", "unique_id": "s", "device_class": "smoke", "state_topic": "house/smoke"}
            await client.publish("homeassistant/binary_sensor/house/s/config", json.dumps(smoke), qos=1)
        assert node.house.registry.routes.traffic("house/smoke") == "alarm"
        broker = node.house.bus._broker  # type: ignore[attr-defined]
        assert broker.router.route("house/smoke").rank == 2


async def test_figures_of_the_broker_are_for_admins_who_subscribe(tmp_path: Path) -> None:
    async with running(tmp_path / "state") as node:
        host, port = node.endpoints["mqtt"].removeprefix("mqtt://").rsplit(":", 1)
        found: dict[str, bytes] = {}
        for name, admin in (("boss", True), ("pump", False)):
            added = await ask(node, "device.add", name=name, admin=admin)
            async with aiomqtt.Client(host, int(port), username=name, password=added.password) as client:
                (code,) = await client.subscribe("$SYS/#", qos=0)
                assert (getattr(code, "value", code) >= 0x80) is not admin
                if admin:
                    async with asyncio.timeout(60):
                        while "$SYS/broker/uptime" not in found or "$SYS/broker/version" not in found:
                            message = await anext(client.messages)
                            found[str(message.topic)] = bytes(message.payload)  # type: ignore[arg-type]
        assert found["$SYS/broker/clients/connected"] == b"1"
        assert found["$SYS/broker/version"].startswith(b"aun-edge ")
        assert {"$SYS/broker/messages/inflight", "$SYS/broker/publish/messages/dropped"} <= set(found)
        assert "$SYS/broker/load/loop lag" in found


async def test_a_rotated_password_cuts_off_who_used_the_old_one_and_nothing_is_lost(tmp_path: Path) -> None:
    async with running(tmp_path / "state") as node:
        host, port = node.endpoints["mqtt"].removeprefix("mqtt://").rsplit(":", 1)
        old = await ask(node, "device.add", name="pump")
        lasting: dict[str, Any] = {"username": "pump", "identifier": "p", "clean_session": False}
        async with aiomqtt.Client(host, int(port), password=old.password, **lasting) as client:
            await client.subscribe("pump/set", qos=1)
            new = await ask(node, "device.rotate", name="pump")
            with pytest.raises(aiomqtt.MqttError):
                await anext(client.messages)
        with pytest.raises(aiomqtt.MqttError):
            async with aiomqtt.Client(host, int(port), password=old.password, **lasting):
                pass
        await ask(node, "mqtt.pub", topic="pump/set", payload="on", qos=1)
        async with aiomqtt.Client(host, int(port), password=new.password, **lasting) as client:
            async with asyncio.timeout(60):
                assert (await anext(client.messages)).payload == b"on"


@pytest.fixture
def mosquitto(tmp_path: Path) -> Iterator[Mosquitto]:
    with Mosquitto(tmp_path / "mosquitto") as made:
        yield made


@pytest.fixture
async def node(tmp_path: Path, mosquitto: Mosquitto) -> AsyncIterator[Node]:
    sets = ("mqtt.engine=external", f"mqtt.external.port={mosquitto.port}", "mqtt.external.principals=#=rest,hall=hall")
    async with running(tmp_path / "state", *sets) as made:
        yield made


@pytest.mark.needs("mosquitto")
async def test_over_an_external_broker_a_device_becomes_a_skill_that_can_be_called(
    node: Node, mosquitto: Mosquitto
) -> None:
    switch = {"name": "S", "unique_id": "s", "state_topic": "plug/s", "command_topic": "plug/s/set"}

    async def plug(client: aiomqtt.Client) -> None:
        async for message in client.messages:
            await client.publish("plug/s", message.payload, qos=1)

    async with aiomqtt.Client("127.0.0.1", mosquitto.port) as client, asyncio.TaskGroup() as group:
        await client.subscribe("plug/s/set", qos=1)
        await client.publish("homeassistant/switch/plug/s/config", json.dumps(switch), qos=1, retain=True)
        answering = group.create_task(plug(client))
        while "plug/s" not in node.house.bus.broker.hearing:  # type: ignore[attr-defined]
            await asyncio.sleep(0.01)
        (found,) = await ask(node, "skill.list")
        done = await ask(node, "skill.call", skill=found.id, params={"value": "on"}, timeout_s=10, wait_s=9)
        assert done.state == "completed"
        assert (await ask(node, "skill.list"))[0].value is True
        answering.cancel()


@pytest.mark.needs("mosquitto")
async def test_an_external_broker_is_shown_with_what_it_does_not_promise(node: Node, mosquitto: Mosquitto) -> None:
    mqtt = (await ask(node, "status"))["mqtt"]
    assert (mqtt["engine"], mqtt["broker"]) == ("external", f"127.0.0.1:{mosquitto.port}")
    assert "crash" in mqtt["promise"]
    assert set(mqtt["principals"]) == {"rest", "hall"}
    assert "mqtt" not in node.endpoints
    assert "broker" in node.listeners.left_off["mqtt"]
    assert (await ask(node, "device.add", name="pump")).mqtt == ""


@pytest.mark.skipif(find_spec("amqtt") is None, reason="needs the extra amqtt")
async def test_amqtt_is_shown_with_what_devices_miss(tmp_path: Path) -> None:
    async with running(tmp_path / "state", "mqtt.engine=amqtt") as node:
        mqtt = (await ask(node, "status"))["mqtt"]
        assert (mqtt["engine"], mqtt["promise"].split(":")[0]) == ("amqtt", "none")
        assert len(mqtt["misses"]) > 5
        added = await ask(node, "device.add", name="house")
        host, port = node.endpoints["mqtt"].removeprefix("mqtt://").rsplit(":", 1)
        async with aiomqtt.Client(host, int(port), username="house", password=added.password) as client:
            switch = {"name": "S", "unique_id": "s", "state_topic": "house/s", "command_topic": "house/s/set"}
            await client.subscribe("house/s/set", qos=1)
            await client.publish("homeassistant/switch/house/s/config", json.dumps(switch), qos=1)
            while not (found := await ask(node, "skill.list")):
                await asyncio.sleep(0.01)
            await ask(node, "skill.call", skill=found[0].id, params={"value": "on"}, timeout_s=1, wait_s=1)
            assert (await anext(client.messages)).payload == b"ON"


@pytest.mark.skipif(find_spec("amqtt") is not None, reason="the extra amqtt is there")
async def test_an_engine_that_is_not_installed_stops_the_start_with_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(StartFailed, match=r"the package amqtt, .*pip install -e '\.\[amqtt\]'"):
        async with running(tmp_path / "state", "mqtt.engine=amqtt"):
            pass
