"""`mqtt.plain_lan` on real interfaces. Run in a network namespace of its own by `test_plain_lan.py`; ends with 0 when
everything was as it should be."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edge.contract.principal import Kind, Principal
from edge.node.failure import StartFailed
from edge.node.life import Node
from tests.support.node import running

OWNER = Principal(kind=Kind.OPERATOR, aid="", scopes=frozenset({"*"}), via="control")
HOME, OTHER = "192.168.77.1", "10.99.0.1"
LOCK = {"name": "Lock", "uniq_id": "l", "cmd_t": "bridge/lock/set", "stat_t": "bridge/lock"}
SWITCH = {"name": "Plug", "uniq_id": "p", "cmd_t": "plug/set", "stat_t": "plug/state"}


def interfaces() -> None:
    """Two private networks and one that leads to the internet."""
    run("ip", "link", "set", "lo", "up")
    for name, address in (("home", f"{HOME}/24"), ("other", f"{OTHER}/24"), ("wan", "203.0.113.5/24")):
        run("ip", "link", "add", name, "type", "veth", "peer", "name", f"{name}-far")
        run("ip", "addr", "add", address, "dev", name)
        for end in (name, f"{name}-far"):
            run("ip", "link", "set", end, "up")


def run(*command: str) -> None:
    subprocess.run(command, check=True, timeout=60)


async def client(*command: str) -> tuple[int, str]:
    """What one of Mosquitto's clients says."""
    made = await asyncio.create_subprocess_exec(
        *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    async with asyncio.timeout(90):
        out, _ = await made.communicate()
    return made.returncode or 0, out.decode()


async def ask(node: Node, op: str, /, **params: Any) -> Any:
    return (await node.house.dispatcher.call("edge", op, json.dumps(params).encode(), OWNER)).result


async def until(reached: Callable[[], Any]) -> None:
    async with asyncio.timeout(60):
        while not reached():
            await asyncio.sleep(0.05)


def door(host: str, port: int, user: Any, *more: str) -> list[str]:
    return ["-h", host, "-p", str(port), "-u", user.username, "-P", user.password, "-q", "1", *more]


async def devices_come_in(folder: Path) -> None:
    """The door waits for a device; its own network's clients come in with their passwords, nobody else."""
    sets = ("mqtt.plain_lan=192.168.77.0/24", "mqtt.plain_lan_port=0")
    async with running(folder, *sets) as node:
        assert "mqtt_plain" not in node.endpoints
        assert "opens once a device exists" in node.facts()["left_off"]["mqtt_plain"]
        plug = await ask(node, "device.add", name="plug")
        await until(lambda: "mqtt_plain" in node.endpoints)
        port = int(node.endpoints["mqtt_plain"].removeprefix(f"mqtt://{HOME}:"))
        config = ["-r", "-t", "homeassistant/switch/plug/p/config", "-m", json.dumps(SWITCH)]
        assert await client("mosquitto_pub", *door(HOME, port, plug), *config) == (0, "")
        await until(lambda: node.house.gate.skill("plug.plug"))
        far = ["-A", OTHER, "-t", "plug/state", "-m", "ON"]
        assert (await client("mosquitto_pub", *door(HOME, port, plug), *far))[0] != 0, "from another network"
        wrong = type(plug)(plug.name, plug.aid, plug.username, "wrong", "")
        code, said = await client("mosquitto_pub", *door(HOME, port, wrong), "-t", "plug/state", "-m", "ON")
        assert code != 0, said
        await ask(node, "mqtt.user_add", name="bob", password="correct horse")
        bob = type(plug)("bob", "", "bob", "correct horse", "")
        code, said = await client("mosquitto_pub", *door(HOME, port, bob), "-t", "bob/x", "-m", "1")
        assert "not authorised" in said.lower(), (code, said)
        local = int(node.endpoints["mqtt"].rsplit(":", 1)[1])
        assert await client("mosquitto_pub", *door("127.0.0.1", local, bob), "-t", "bob/x", "-m", "1") == (0, "")
        facts = await ask(node, "status")
        shown = {"address": f"{HOME}:{port}", "interface": "home", "network": "192.168.77.0/24"}
        assert facts["plain_lan"]["open"] == [shown], facts["plain_lan"]
        assert facts["to_network"]["mqtt_plain"] == f"{HOME}:{port}"
        cli = [sys.executable, "-m", "edge.cli.main"]
        for verb in ("status", "doctor"):
            _, said = await client(*cli, verb, "--state-dir", str(folder))
            assert f"WITHOUT TLS at {HOME}:{port} to 192.168.77.0/24 (home)" in said, said


async def nothing_of_high_risk(folder: Path) -> None:
    """What comes in without TLS announces no lock, and neither hears nor tells one that TLS brought."""
    sets = ("mqtt.plain_lan=home", "mqtt.plain_lan_port=0", "mqtt.tls_listen=127.0.0.1:0")
    async with running(folder, *sets) as node:
        bridge = await ask(node, "device.add", name="bridge", admin=True)
        await until(lambda: "mqtt_plain" in node.endpoints)
        plain = ("mosquitto_pub", *door(HOME, int(node.endpoints["mqtt_plain"].rsplit(":", 1)[1]), bridge))
        trust = ("--cafile", str(node.house.identity.tls_ca))
        safe = ("mosquitto_pub", *door("localhost", int(node.endpoints["mqtts"].rsplit(":", 1)[1]), bridge), *trust)
        config = ["-r", "-t", "homeassistant/lock/bridge/l/config", "-m", json.dumps(LOCK)]
        assert await client(*plain, *config) == (0, "")
        await until(lambda: node.house.registry.counters["refused high risk without TLS"])
        assert node.house.gate.skills() == []
        assert await client(*safe, *config) == (0, "")
        await until(lambda: node.house.gate.skill("bridge-2.lock"))
        hearing = asyncio.ensure_future(
            client("mosquitto_sub", *plain[1:], "-t", "bridge/#", "-W", "60", "-C", "2", "-F", "%t %p")
        )
        await until(lambda: node.house.bus.stats()["subscriptions"])
        code, said = await client(*plain, "-V", "5", "-t", "bridge/lock/set", "-m", "UNLOCK")
        assert "ot authorized" in said, (code, said)
        await client(*plain, "-V", "5", "-t", "bridge/lock", "-m", "LOCKED")
        await ask(node, "mqtt.pub", topic="bridge/lock/set", payload="UNLOCK", qos=1)
        for text in ("one", "two"):
            await ask(node, "mqtt.pub", topic="bridge/else", payload=text, qos=1)
        heard = (await hearing)[1].splitlines()
        assert heard == ["bridge/else one", "bridge/else two"], heard
        assert node.house.gate.skill("bridge-2.lock").value is None  # type: ignore[union-attr]
        assert await client(*safe, "-t", "bridge/lock", "-m", "LOCKED") == (0, "")
        await until(lambda: node.house.gate.skill("bridge-2.lock").value is not None)  # type: ignore[union-attr]


async def no_way_round(folder: Path) -> None:
    """Whoever comes in without TLS has no other name for a lock, announced before it, and takes none away."""
    sets = ("mqtt.plain_lan=home", "mqtt.plain_lan_port=0", "mqtt.tls_listen=127.0.0.1:0")
    async with running(folder, *sets) as node:
        bridge = await ask(node, "device.add", name="bridge", admin=True)
        await until(lambda: "mqtt_plain" in node.endpoints)
        plain = ("mosquitto_pub", *door(HOME, int(node.endpoints["mqtt_plain"].rsplit(":", 1)[1]), bridge), "-V", "5")
        trust = ("--cafile", str(node.house.identity.tls_ca))
        safe = ("mosquitto_pub", *door("localhost", int(node.endpoints["mqtts"].rsplit(":", 1)[1]), bridge), *trust)
        alias = {"name": "Lamp", "uniq_id": "a", "cmd_t": LOCK["cmd_t"], "pl_on": "UNLOCK"}
        assert await client(*plain, "-r", "-t", "homeassistant/switch/bridge/a/config", "-m", json.dumps(alias)) == (
            0,
            "",
        )
        await until(lambda: node.house.gate.skills())
        (lamp,) = node.house.gate.skills()
        assert lamp.cap.risk == "low"
        topic = "homeassistant/lock/bridge/l/config"
        assert await client(*safe, "-r", "-t", topic, "-m", json.dumps(LOCK)) == (0, "")
        await until(lambda: len(node.house.gate.skills()) == 2)
        assert [skill.cap.risk for skill in node.house.gate.skills()] == ["high", "high"]
        for payload in (["-n"], ["-m", json.dumps({**LOCK, "cmd_t": "else/set"})]):
            code, said = await client(*plain, "-r", "-t", topic, *payload)
            assert "ot authorized" in said, (code, said)
        code, said = await client(*plain, "-t", LOCK["cmd_t"], "-m", "UNLOCK")
        assert "ot authorized" in said, (code, said)
        assert {skill.cap.kind for skill in node.house.gate.skills()} == {"lock", "switch"}


async def addresses_come_and_go(folder: Path) -> None:
    """An address that comes later is opened, one that goes is shut, and what turns into a WAN is shut."""
    async with running(folder, "mqtt.plain_lan=home", "mqtt.plain_lan_port=0") as node:
        await ask(node, "device.add", name="plug")
        await until(lambda: "mqtt_plain" in node.endpoints)
        lan = node.listeners.plain_lan
        assert lan is not None
        run("ip", "addr", "add", "192.168.78.1/24", "dev", "home")
        assert await lan.look()
        assert sorted(lan.open) == [HOME, "192.168.78.1"]
        run("ip", "addr", "del", "192.168.78.1/24", "dev", "home")
        assert await lan.look()
        assert not await lan.look()
        assert sorted(lan.open) == [HOME]
        run("ip", "addr", "add", "203.0.113.9/24", "dev", "home")
        assert await lan.look()
        assert lan.open == {}
        assert "public address 203.0.113.9" in lan.left_off["home"]
        port = int(node.endpoints["mqtt_plain"].rsplit(":", 1)[1])
        reader, writer = await asyncio.open_connection(HOME, port)
        assert await reader.read(1) == b"", "the socket is there and lets nobody in"
        writer.close()
        run("ip", "addr", "del", "203.0.113.9/24", "dev", "home")


async def never_on_a_wan(folder: Path) -> None:
    """An interface that leads to the internet stops the start."""
    with pytest.raises(StartFailed, match=r"mqtt.plain_lan = wan: wan has the public address 203\.0\.113\.5"):
        async with running(folder, "mqtt.plain_lan=wan"):
            pass


async def main(folder: Path) -> None:
    interfaces()
    for scenario in (devices_come_in, nothing_of_high_risk, no_way_round, addresses_come_and_go, never_on_a_wan):
        await scenario(folder / scenario.__name__)
        print(scenario.__name__, flush=True)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
