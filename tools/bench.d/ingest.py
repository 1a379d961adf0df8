"""What the node acknowledges per second, through its real doors, beside a bare group commit in the same run.

QoS 1 publishes over MQTT and `message.send` over AUN with 1, 50 and 200 in flight; the same publishes beside another
client's QoS 0 flood; and how long a reading takes from its publish to an AUN and an A2A caller.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import importlib.util
import json
import os
import shutil
import struct
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection

from tests.support.node import Agent
from tests.support.process import NodeProcess

SECONDS = float(os.environ.get("AUN_EDGE_BENCH_INGEST_SECONDS", "3"))
IN_FLIGHT = (1, 50, 200)
LANES = 4
PADDING = "x" * 160
FIRST = 10_000_000
"""What is counted from: every reading has as many digits, so that packets are made of ready parts."""
SKILL = "bench.value"
ANNOUNCE = {
    "name": "Bench",
    "capabilities": [{"name": "value", "kind": "sensor", "value_type": "json", "history": "every"}],
}
RAISED = ("rate.write", "rate.address", "rate.principal", "rate.concurrent", "session.requests")

Row = dict[str, Any]
Times = dict[str, float]


def run() -> list[Row]:
    """All figures."""
    folder = Path(tempfile.mkdtemp(prefix="bench-ingest-"))
    try:
        limits = [part for name in RAISED for part in ("--set", f"limits.{name}=1000000")]
        with NodeProcess(folder / "state", "--issuer", "bench.test", *limits) as node:
            return asyncio.run(_measure(node, folder))
    finally:
        shutil.rmtree(folder)


async def _measure(node: NodeProcess, folder: Path) -> list[Row]:
    password = node.cli("device", "add", "bench")["password"]
    rows: list[Row] = []
    async with mqtt(node, "bench", password) as (_, writer):
        writer.write(publish("aun/v1/bench/announce", json.dumps(ANNOUNCE).encode(), 1, retain=True))
        await writer.drain()
        bare = {count: await _bare(folder, count) for count in IN_FLIGHT}
        for count in IN_FLIGHT:
            rows += _rows(f"QoS 1 acked, {count} in flight", await ingest(node, password, count), bare[count], count)
        async with flood(node, password):
            found = await ingest(node, password, 200)
        rows += _rows("QoS 1 acked, 200 in flight, beside a QoS 0 flood", found, bare[200], 0)
    alice, bob = [await _agent(node, name) for name in ("alice", "bobb")]
    for count in IN_FLIGHT:
        rows += _rows(f"message.send acked, {count} in flight", await sends(alice, bob, count), bare[count], 0)
    return rows + await visible(node, password, alice)


def _rows(what: str, found: Times, bare: Times, judged: int) -> list[Row]:
    beside = {"beside_what": "bare group commit"}
    ack_ms = 3 * bare["p99"] + 20
    budget: dict[str, Any] = {}
    late: dict[str, Any] = {}
    if judged == 200:
        budget = {"budget": "≥ 0.5 × bare", "ok": found["rate"] >= 0.5 * bare["rate"]}
    if what.startswith("QoS 1"):
        late = {"budget": f"≤ 3 × bare + 20 ms = {ack_ms:.0f} ms", "ok": found["p99"] <= ack_ms}
    return [
        {"what": what, "value": found["rate"], "unit": "/s", "beside": bare["rate"], **beside, **budget},
        {"what": f"{what}: p99", "value": found["p99"], "unit": "ms", "beside": bare["p99"], **beside, **late},
    ]


async def _bare(folder: Path, count: int) -> Times:
    """The bare group commit of the store's measure."""
    place = Path(__file__).with_name("store.py")
    spec = importlib.util.spec_from_file_location("bench_store", place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    own = folder / f"bare-{count}"
    own.mkdir()
    found: Times = await module._bare(own, count)
    return found


# MQTT, as small as it can be: the load must not be the limit.


def publish(topic: str, payload: bytes, packet_id: int, *, retain: bool = False) -> bytes:
    """A QoS 1 PUBLISH packet."""
    name = topic.encode()
    body = struct.pack("!H", len(name)) + name + struct.pack("!H", packet_id) + payload
    return bytes([0x32 | retain]) + _length(len(body)) + body


def _length(number: int) -> bytes:
    out = bytearray()
    while True:
        number, low = divmod(number, 128)
        out.append(low | (0x80 if number else 0))
        if not number:
            return bytes(out)


@asynccontextmanager
async def mqtt(
    node: NodeProcess, user: str, password: str, name: str = "main"
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    """A connection that was let in."""
    host, port = node.ready["endpoints"]["mqtt"].removeprefix("mqtt://").rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    parts = [name.encode(), user.encode(), password.encode()]
    body = b"\x00\x04MQTT\x04\xc2\x00\x00" + b"".join(struct.pack("!H", len(one)) + one for one in parts)
    writer.write(b"\x10" + _length(len(body)) + body)
    answer = await reader.readexactly(4)
    assert answer == b"\x20\x02\x00\x00", answer
    try:
        yield reader, writer
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


async def ingest(node: NodeProcess, password: str, in_flight: int) -> Times:
    """Keep `in_flight` readings waiting for their PUBACK, over up to four connections."""
    lanes = min(LANES, in_flight)
    waits: list[float] = []
    until = time.perf_counter() + SECONDS
    began = time.perf_counter()
    await asyncio.gather(*(_lane(node, password, f"lane{n}", in_flight // lanes, until, waits) for n in range(lanes)))
    return _times(waits, time.perf_counter() - began)


async def _lane(node: NodeProcess, password: str, name: str, in_flight: int, until: float, waits: list[float]) -> None:
    async with mqtt(node, "bench", password, name) as (reader, writer):
        sent: dict[int, float] = {}
        count = FIRST
        head, tail = publish(
            "aun/v1/bench/state/value", b'{"v":{"n":%d,"pad":"%s"}}' % (FIRST, PADDING.encode()), 0
        ).split(b"\0\0{")
        before, after = tail.split(b"%d" % FIRST)

        def one(packet_id: int) -> bytes:
            nonlocal count
            count += 1
            sent[packet_id] = time.perf_counter()
            return b"%b%b{%b%d%b" % (head, packet_id.to_bytes(2, "big"), before, count, after)

        writer.write(b"".join(one(packet_id) for packet_id in range(1, in_flight + 1)))
        rest = b""
        while sent:
            data = rest + await reader.read(65_536)
            now, out = time.perf_counter(), []
            for at in range(0, len(data) - 3, 4):
                packet_id = data[at + 2] << 8 | data[at + 3]
                waits.append(now - sent.pop(packet_id))
                if now < until:
                    out.append(one(packet_id))
            rest = data[len(data) - len(data) % 4 :]
            writer.write(b"".join(out))


@asynccontextmanager
async def flood(node: NodeProcess, password: str) -> AsyncIterator[None]:
    """Another client that writes QoS 0 as fast as TCP takes it."""
    async with mqtt(node, "bench", password, "flood") as (_, writer):
        name = b"bench/noise"
        body = struct.pack("!H", len(name)) + name + b"y" * 64
        chunk = (b"\x30" + _length(len(body)) + body) * 200

        async def pour() -> None:
            while True:
                writer.write(chunk)
                await writer.drain()

        task = asyncio.ensure_future(pour())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


def _times(waits: list[float], took: float) -> Times:
    waits.sort()
    return {
        "rate": len(waits) / took,
        "p99": waits[len(waits) * 99 // 100] * 1000,
        "p50": waits[len(waits) // 2] * 1000,
    }


# AUN.


class _Place:
    def __init__(self, ready: dict[str, Any]) -> None:
        self.endpoints, self.issuer = ready["endpoints"], ready["issuer"]


async def _agent(node: NodeProcess, name: str) -> Agent:
    node.cli("agent", "add", name)
    made = Agent(_Place(node.ready), name)  # type: ignore[arg-type]
    await made.register()
    await made.login()
    return made


async def sends(alice: Agent, bob: Agent, in_flight: int) -> Times:
    """Keep `in_flight` messages waiting for their answer on one connection."""
    waits: list[float] = []
    async with alice.connected() as session:
        wire: ClientConnection = session.ws
        until = time.perf_counter() + SECONDS
        began = time.perf_counter()
        sent: dict[str, float] = {}
        count = 0

        async def one() -> None:
            nonlocal count
            count += 1
            key = f"k{count}"
            sent[key] = time.perf_counter()
            params = {"to": bob.aid, "payload": {"type": "text", "text": PADDING}}
            frame = {"jsonrpc": "2.0", "id": key, "method": "message.send", "params": params}
            await wire.send(json.dumps(frame))

        for _ in range(in_flight):
            await one()
        while sent:
            frame = json.loads(await wire.recv())
            if frame.get("id") not in sent:
                continue
            assert "result" in frame, frame
            now = time.perf_counter()
            waits.append(now - sent.pop(frame["id"]))
            if now < until:
                await one()
        return _times(waits, time.perf_counter() - began)


async def visible(node: NodeProcess, password: str, alice: Agent) -> list[Row]:
    """From publish to a caller's answer that shows the value, at 100 readings a second."""
    url = node.ready["endpoints"]["http"]
    token = node.cli("agent", "add", "reader")["token"]
    async with mqtt(node, "bench", password, "visible") as (reader, writer), alice.connected() as session:

        async def over_aun() -> Any:
            params = {"to": f"d-bench.{alice.node.issuer}", "input": {"skill": SKILL, "params": {}}}
            made = await session.call("task.create", params)
            done = await session.event("event/task.completed")
            assert done["task_id"] == made["task_id"]
            return done["artifacts"][0]["parts"][1]["data"]["value"]["n"]

        async def over_a2a() -> Any:
            return await asyncio.to_thread(_a2a, url, token)

        asks: list[tuple[str, Callable[[], Any]]] = [("AUN", over_aun), ("A2A", over_a2a)]
        rows: list[Row] = []
        for name, ask in asks:
            took: list[float] = []
            for number in range(1, 151):
                start = time.perf_counter()
                value = number if name == "AUN" else -number
                writer.write(publish("aun/v1/bench/state/value", b'{"v":{"n":%d}}' % value, 1))
                await reader.readexactly(4)
                assert await ask() == value
                took.append(time.perf_counter() - start)
                await asyncio.sleep(max(0.0, 0.01 - took[-1]))
            times = _times(took, 1)
            late = {"budget": "≤ 50 ms", "ok": times["p99"] <= 50}
            rows.append({"what": f"publish → visible by {name}: p99", "value": times["p99"], "unit": "ms", **late})
        return rows


def _a2a(url: str, token: str) -> Any:
    parts = urlsplit(url)
    wire = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=10)
    data = {"kind": "data", "data": {"skill": SKILL, "params": {}}}
    message = {"kind": "message", "messageId": os.urandom(8).hex(), "role": "user", "parts": [data]}
    asked = {"jsonrpc": "2.0", "id": message["messageId"], "method": "message/send"}
    params = {"message": message, "configuration": {"blocking": True}}
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
    wire.request("POST", "/a2a", json.dumps(asked | {"params": params}), headers)
    answer = json.loads(wire.getresponse().read())
    wire.close()
    return answer["result"]["artifacts"][0]["parts"][1]["data"]["value"]["n"]
