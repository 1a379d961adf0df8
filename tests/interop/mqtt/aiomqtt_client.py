"""scenario.md with aiomqtt (on paho-mqtt)."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import aiomqtt
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties


def client(asked: dict[str, Any], name: str, *, lasting: bool) -> aiomqtt.Client:
    """A client; `lasting` ones have a session."""
    options: dict[str, Any] = {"clean_session": not lasting}
    if asked["version"] == 5:
        found = Properties(PacketTypes.CONNECT)
        found.SessionExpiryInterval = 300 if lasting else 0
        options = {"clean_start": not lasting, "properties": found}
    if asked["scheme"].startswith("ws"):
        options |= {"transport": "websockets", "websocket_path": "/mqtt"}
    if asked["scheme"] in ("mqtts", "wss"):
        options["tls_params"] = aiomqtt.TLSParameters(ca_certs=asked["ca"])
    return aiomqtt.Client(
        asked["host"],
        asked["port"],
        username=asked["user"],
        password=asked["password"],
        identifier=name,
        protocol=aiomqtt.ProtocolVersion(asked["version"]),
        **options,
    )


async def read(found: aiomqtt.Client, count: int) -> list[list[Any]]:
    """So many messages."""
    got: list[list[Any]] = []
    async for one in found.messages:
        assert isinstance(one.payload, bytes)
        got.append([str(one.topic), one.payload.hex(), one.qos, one.retain])
        if len(got) == count:
            break
    return got


async def main(asked: dict[str, Any]) -> dict[str, Any]:
    place = f"{asked['user']}/in"
    said: dict[str, Any] = {}
    async with client(asked, "c-lasting", lasting=True) as one:
        granted = await one.subscribe(f"{place}/+", qos=2)
        said["granted"] = [code if isinstance(code, int) else code.value for code in granted]
        await one.publish(f"{place}/0", b"zero", qos=0)
        await one.publish(f"{place}/1", b"one", qos=1)
        await one.publish(f"{place}/2", bytes(range(256)) + bytes(44), qos=2, retain=True)
        said["live"] = sorted(await read(one, 3))
    async with client(asked, "c-other", lasting=False) as other:
        await other.publish(f"{place}/3", b"away1", qos=1)
        await other.publish(f"{place}/3", b"away2", qos=2)
    async with client(asked, "c-lasting", lasting=True) as one:
        said["away"] = await read(one, 2)
    async with client(asked, "c-other", lasting=False) as other:
        await other.subscribe(f"{place}/2", qos=1)
        said["kept"] = await read(other, 1)
    return said


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(json.loads(sys.argv[1])))))
