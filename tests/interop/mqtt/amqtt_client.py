"""scenario.md with the client of amqtt, run by its own environment."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

from amqtt.client import MQTTClient  # type: ignore[import-not-found]

CONFIG = {"auto_reconnect": False, "keep_alive": 30, "will": None}


async def connect(asked: dict[str, Any], name: str, *, lasting: bool) -> Any:
    """A client; `lasting` ones have a session."""
    made = MQTTClient(client_id=name, config={"auto_reconnect": False})
    path = "/mqtt" if asked["scheme"].startswith("ws") else ""
    who = f"{asked['user']}:{asked['password']}"
    url = f"{asked['scheme']}://{who}@{asked['host']}:{asked['port']}{path}"
    ca = asked["ca"] if asked["scheme"] in ("mqtts", "wss") else None
    assert await made.connect(url, cleansession=not lasting, cafile=ca) == 0
    return made


async def read(found: Any, count: int) -> list[list[Any]]:
    """So many messages."""
    got = []
    for _ in range(count):
        one = await found.deliver_message(timeout_duration=20)
        got.append([one.topic, bytes(one.data).hex(), one.qos, one.publish_packet.retain_flag])
    return got


async def main(asked: dict[str, Any]) -> dict[str, Any]:
    place = f"{asked['user']}/in"
    said: dict[str, Any] = {}
    one = await connect(asked, "c-lasting", lasting=True)
    said["granted"] = await one.subscribe([(f"{place}/+", 2)])
    await one.publish(f"{place}/0", b"zero", qos=0)
    await one.publish(f"{place}/1", b"one", qos=1)
    await one.publish(f"{place}/2", bytes(range(256)) + bytes(44), qos=2, retain=True)
    said["live"] = sorted(await read(one, 3))
    await one.disconnect()
    other = await connect(asked, "c-other", lasting=False)
    await other.publish(f"{place}/3", b"away1", qos=1)
    await other.publish(f"{place}/3", b"away2", qos=2)
    await other.disconnect()
    one = await connect(asked, "c-lasting", lasting=True)
    said["away"] = await read(one, 2)
    await one.disconnect()
    other = await connect(asked, "c-other", lasting=False)
    await other.subscribe([(f"{place}/2", 1)])
    said["kept"] = await read(other, 1)
    await other.disconnect()
    return said


if __name__ == "__main__":
    print(json.dumps(asyncio.run(main(json.loads(sys.argv[1])))))
