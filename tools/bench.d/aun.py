"""AUN messages per second, their CPU and memory with 1, 50 and 500 connected clients, a group of 200, and a full store.

The clients are raw WebSockets that cost little, so that the node is what is measured. CPU is the node's own; memory
is private (dirty and clean). The full store is filled by the store's own code before its node starts, and measured
turn about with a small one in the same run: once in the inbox that has grown with it (a thousand rows, and half of all
there are), once in an inbox of a thousand rows that lie scattered among everybody else's. Every call gets the same
number of rows.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import struct
import tempfile
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from edge.cli.client import Control
from edge.contract.store import Unit
from edge.store import messages
from edge.store.database import Database
from edge.store.marks import Marks, kernel_boot_id
from edge.store.messages import Message
from edge.system.clock import SystemClock
from tests.support.process import NodeProcess

SECONDS = float(os.environ.get("AUN_EDGE_BENCH_AUN_SECONDS", "4"))
STORED = int(os.environ.get("AUN_EDGE_BENCH_AUN_STORED", "1000000"))
"""Messages in the full store; 200000 does for a quick look."""
CLIENTS = (1, 50, 500)
IN_FLIGHT = 64
GROUP = 200
FEW = 1_000
"""Rows of each of the two inboxes in the store beside it; the second has as many in the full one."""
SENDERS, OTHERS = 50, 500
"""How many have written to each measured inbox, how many other inboxes there are."""
ROUNDS, CALLS = 7, 300
PEER_ROWS = 4
"""Rows of one sender in a page: as many lie above every cursor that is asked for."""
TEXT = "x" * 200
RAISED = {
    "rate.write": 1 << 30,
    "rate.address": 1 << 30,
    "rate.principal": 1 << 30,
    "rate.auth": 1 << 30,
    "rate.concurrent": 1 << 20,
    "session.requests": 1 << 20,
    "session.channels": 4096,
    "http.connections": 4096,
    "http.connections_per_address": 4096,
    "message.inbox_rows": 1 << 30,
    "message.inbox_octets": 1 << 40,
}

Row = dict[str, Any]


def run() -> list[Row]:
    """All figures."""
    folder = Path(tempfile.mkdtemp(prefix="bench-aun-"))
    try:
        return asyncio.run(_measure(folder))
    finally:
        shutil.rmtree(folder)


async def _measure(folder: Path) -> list[Row]:
    rows: list[Row] = []
    with _node(folder / "small") as node:
        rows.append({"what": "memory, nobody connected", "value": _private(node), "unit": "MB"})
        tokens = _tokens(node, max(CLIENTS))
        for count in CLIENTS:
            async with _connected(node, tokens[:count]) as wires:
                rows += await _busy(node, wires)
        async with _connected(node, tokens[:GROUP]) as wires:
            rows += await _fan_out(node, wires)
    return rows + await _growth(folder)


def _node(state: Path) -> NodeProcess:
    limits = [part for name, value in RAISED.items() for part in ("--set", f"limits.{name}={value}")]
    return NodeProcess(state, "--issuer", "bench.test", *limits)


def _tokens(node: NodeProcess, count: int) -> list[tuple[str, str]]:
    """AID and token of so many agents."""
    with Control(node.state_dir) as control:
        made = [control.call("agent.add", {"name": f"agent-{number}", "expires_s": 0}) for number in range(count)]
    return [(one["aid"], one["token"]) for one in made]


# Many clients at work.


async def _busy(node: NodeProcess, wires: list[Wire]) -> list[Row]:
    """Everybody sends to their neighbour, who is connected and hears of it; then everybody pulls."""
    name = f"{len(wires)} connected"
    idle = _private(node)
    rows = [{"what": f"memory, {name}", "value": idle, "unit": "MB"}]
    for what, ask in (
        ("message.send", lambda place: _send(wires[(place + 1) % len(wires)].aid)),
        ("message.pull of 20", lambda place: _request("message.pull", after_seq=wires[place].seen, limit=20)),
    ):
        rate, cpu = await _load(node, wires, ask)
        rows.append({"what": f"{what}, {name}", "value": rate, "unit": "/s"})
        rows.append({"what": f"{what}, {name}: CPU of the node", "value": cpu, "unit": "µs"})
    rows.append({"what": f"memory, {name}, after that", "value": _private(node), "unit": "MB"})
    return rows


async def _load(node: NodeProcess, wires: list[Wire], ask: Callable[[int], bytes]) -> tuple[float, float]:
    """Calls per second, and the node's CPU per call, with `IN_FLIGHT` on their way over all connections."""
    active = wires if len(wires) <= IN_FLIGHT else wires[:: len(wires) // IN_FLIGHT][:IN_FLIGHT]
    places = {wire: place for place, wire in enumerate(wires)}
    until = time.perf_counter() + SECONDS
    began, cpu = time.perf_counter(), _cpu(node)
    share = max(1, IN_FLIGHT // len(active))
    done = await asyncio.gather(*(wire.keep_asking(partial(ask, places[wire]), share, until) for wire in active))
    took = time.perf_counter() - began
    return sum(done) / took, (_cpu(node) - cpu) / sum(done) * 1e6


def _send(to: str) -> bytes:
    return _request("message.send", to=to, payload={"type": "text", "text": TEXT})


def _request(method: str, **params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": 0, "method": method, "params": params}).encode()


# A group.


async def _fan_out(node: NodeProcess, wires: list[Wire]) -> list[Row]:
    """One of `GROUP` connected members speaks; how long until all have heard, and what that costs per copy."""
    owner = wires[0]
    made = await owner.call("group.create", name="bench")
    if "error" in made:
        return []
    group = made["result"].get("group_id") or made["result"]["group"]["group_id"]
    for wire in wires[1:]:
        added = await owner.call("group.add_member", group_id=group, aid=wire.aid)
        assert "error" not in added, added
    for wire in wires:
        wire.heard = 0
    cpu, began, times, count = _cpu(node), time.perf_counter(), [], 0
    while time.perf_counter() - began < SECONDS:
        start = time.perf_counter()
        said = await owner.call("group.send", group_id=group, payload={"type": "text", "text": TEXT})
        assert "error" not in said, said
        count += 1
        await asyncio.gather(*(wire.until_heard(count) for wire in wires[1:]))
        times.append(time.perf_counter() - start)
    copies = count * (len(wires) - 1)
    spent = _cpu(node) - cpu
    times.sort()
    name = f"group.send to {len(wires)} connected members"
    return [
        {"what": f"{name}: copies heard", "value": copies / sum(times), "unit": "/s"},
        {"what": f"{name}: CPU per copy", "value": spent / copies * 1e6, "unit": "µs"},
        {"what": f"{name}: all have heard, p99", "value": times[len(times) * 99 // 100] * 1000, "unit": "ms"},
    ]


# A full store.


async def _growth(folder: Path) -> list[Row]:
    """p99 of single calls over a store with `STORED` messages beside the same over one with `FEW`."""
    for name in ("few", "full"):
        with _node(folder / name):
            pass
    await _fill(folder / "few", 2 * FEW)
    began = time.perf_counter()
    await _fill(folder / "full", STORED)
    rows: list[Row] = [{"what": f"stored, {STORED:,}", "value": STORED / (time.perf_counter() - began), "unit": "/s"}]
    grown = STORED // 2
    with _node(folder / "few") as few, _node(folder / "full") as full:
        nodes = {"few": few, "full": full}
        sizes = {"few": {"its inbox": FEW, "another's": FEW}, "full": {"its inbox": grown, "another's": FEW}}
        found: dict[tuple[str, str, str], list[Calls]] = {}
        starting = {name: _private(node) for name, node in nodes.items()}
        for _ in range(ROUNDS):
            for name, node in nodes.items():
                for inbox, whose in (("its inbox", 1), ("another's", 2)):
                    for what, calls in (await _single(node, whose, sizes[name][inbox])).items():
                        found.setdefault((name, inbox, what), []).append(calls)
        for inbox, title in (("its inbox", f"an inbox of {grown:,}"), ("another's", f"an inbox of {FEW:,}")):
            for what in ("message.send", "message.pull", "message.v2.pull", "message.peers"):
                rows += _beside(
                    f"{what} over {STORED:,}, {title}", found["full", inbox, what], found["few", inbox, what]
                )
        rows.append(
            {"what": f"memory over {STORED:,} messages", "value": _private(full), "unit": "MB"}
            | {"beside": _private(few), "beside_what": f"over {FEW:,}"}
        )
        rows.append({"what": "memory at its start", "value": starting["full"], "unit": "MB"})
    return rows


def _beside(what: str, full: list[Calls], few: list[Calls]) -> list[Row]:
    """The best p99 of any round, and the node's CPU per call in all of them, which a busy machine moves less."""
    where = f"over {2 * FEW:,}, an inbox of {FEW:,}"
    value, beside = min(one.p99 for one in full), min(one.p99 for one in few)
    spent = [sum(one.cpu for one in side) / (CALLS * len(side)) * 1e6 for side in (full, few)]
    return [
        {"what": f"{what}: p99", "value": value, "unit": "ms", "beside": beside, "beside_what": where}
        | {"budget": "≤ 1.5 ×", "ok": value <= 1.5 * beside},
        {"what": f"{what}: CPU", "value": spent[0], "unit": "µs", "beside": spent[1], "beside_what": where},
    ]


class Calls:
    """What the calls of one kind took: each its time, all together the node's CPU."""

    def __init__(self) -> None:
        self.waits: list[float] = []
        self.cpu = 0.0

    @property
    def p99(self) -> float:
        """Milliseconds."""
        return sorted(self.waits)[len(self.waits) * 99 // 100] * 1000


def _by_sender(peer: str, after: int) -> bytes:
    return _request("message.v2.pull", cursor_scope="peer", sender_aid=peer, after_seq=after, limit=PEER_ROWS)


async def _single(node: NodeProcess, whose: int, own: int) -> dict[str, Calls]:
    """One call after the other, as one client makes them; `own` rows are in the inbox of agent `whose` from the
    start, and every call is for as many rows as any inbox can give."""
    everybody = _agents(node)
    (_, alice), (bob_aid, bob) = everybody[0], everybody[whose]
    done: dict[str, Calls] = {}
    async with _connected(node, [("", alice), (bob_aid, bob)]) as (one, two):
        head = (await two.call("message.peers", filter="all", limit=1))["result"]
        peer = head["peers"][0]["sender_aid"]
        pulled = (await two.call("message.pull", after_seq=0, limit=1))["result"]
        first = pulled["messages"][0]["seq"]
        for what, frame, wire in (
            ("message.send", lambda after: _send(bob_aid), one),
            ("message.pull", lambda after: _request("message.pull", after_seq=after, limit=20), two),
            ("message.v2.pull", lambda after: _by_sender(peer, after), two),
            ("message.peers", lambda after: _request("message.peers", filter="all", limit=20), two),
        ):
            found, cpu = Calls(), _cpu(node)
            for number in range(CALLS):
                start = time.perf_counter()
                answer = await wire.ask(frame(first + number * 50 % (own - PEER_ROWS * 2 * SENDERS)))
                found.waits.append(time.perf_counter() - start)
                assert b'"error"' not in answer[:200], answer[:400]
            found.cpu = _cpu(node) - cpu
            done[what] = found
    return done


_known: dict[Path, list[tuple[str, str]]] = {}


def _agents(node: NodeProcess) -> list[tuple[str, str]]:
    """Who writes, who has the inbox that grows, who has the one that does not."""
    if node.state_dir not in _known:
        _known[node.state_dir] = _tokens(node, 3)
    return _known[node.state_dir]


async def _fill(state: Path, count: int) -> None:
    """So many messages by the store's own code: every second one in one inbox, a thousand of the others, evenly spread,
    in a second one, and the rest over many."""
    marks = Marks.load(state / "identity" / "incarnation")
    clock = SystemClock(marks.begin_boot(kernel_boot_id()))
    node = Database(state / "store" / "node.db", "node", clock, asyncio.get_running_loop(), marks=marks)
    await node.open()
    payload = json.dumps({"type": "text", "text": TEXT}).encode()

    def some(unit: Unit, first: int, last: int) -> None:
        now = clock.now()
        for number in range(first, last):
            aid, place = _inbox(number, count)
            sender = f"sender-{place * 7 % SENDERS}.bench.test"
            row = Message(
                aid=aid,
                seq=0,
                sender=sender,
                message_id=f"m-{number:x}",
                sent_ms=clock.wall(now)[0] // 1000,
                at=now,
                payload=payload,
            )
            messages.add(unit, row)

    for first in range(0, count, 2_000):
        await node.commit(partial(some, first=first, last=min(first + 2_000, count)))
    await node.close()


def _inbox(number: int, count: int) -> tuple[str, int]:
    """Whose inbox message `number` of `count` goes to, and its place there."""
    step = count // FEW
    if number % 2:
        return "agent-1.bench.test", number // 2
    if number % step == 0:
        return "agent-2.bench.test", number // step
    return f"other-{number // 2 % OTHERS}.bench.test", number


# A WebSocket as small as it can be.


@asynccontextmanager
async def _connected(node: NodeProcess, who: list[tuple[str, str]]) -> AsyncIterator[list[Wire]]:
    """A session for each AID and token."""
    wires: list[Wire] = []
    try:
        for aid, token in who:
            wires.append(await Wire.open(node.ready["endpoints"]["aun"], aid, token))
        yield wires
    finally:
        for wire in wires:
            wire.close()
        await asyncio.gather(*(wire.ended() for wire in wires))


class Wire:
    """One session: text frames out with a mask of zeros, frames in; events are counted."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, aid: str) -> None:
        self._reader, self._writer, self.aid = reader, writer, aid
        self._answers: asyncio.Queue[bytes] = asyncio.Queue()
        self._heard = asyncio.Event()
        self.heard = self.seen = 0
        self._task = asyncio.ensure_future(self._read())

    @classmethod
    async def open(cls, url: str, aid: str, token: str) -> Wire:
        """Connect and authenticate."""
        place = urlsplit(url)
        reader, writer = await asyncio.open_connection(place.hostname, place.port, limit=1 << 22)
        key = base64.b64encode(os.urandom(16)).decode()
        writer.write(
            f"GET {place.path} HTTP/1.1\r\nHost: {place.netloc}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        await reader.readuntil(b"\r\n\r\n")
        wire = cls(reader, writer, aid)
        challenge = json.loads(await wire._answers.get())
        params = {
            "nonce": challenge["params"]["nonce"],
            "auth": {"method": "kite_token", "token": token},
            "device": {"id": "bench"},
            "capabilities": {},
        }
        answer = await wire.call("auth.connect", **params)
        wire.aid = answer["result"]["identity"]["aid"]
        return wire

    async def _read(self) -> None:
        try:
            while True:
                first, size = await self._reader.readexactly(2)
                if size == 126:
                    (size,) = struct.unpack("!H", await self._reader.readexactly(2))
                elif size == 127:
                    (size,) = struct.unpack("!Q", await self._reader.readexactly(8))
                body = await self._reader.readexactly(size)
                if first & 15 != 1:
                    continue
                if body.startswith(b'{"jsonrpc":"2.0","method":"event/'):
                    self.heard += 1
                    self._heard.set()
                else:
                    self._answers.put_nowait(body)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass

    def write(self, frame: bytes) -> None:
        """Send a text frame."""
        size = len(frame)
        head = struct.pack("!BB", 0x81, 0x80 | size) if size < 126 else struct.pack("!BBH", 0x81, 0xFE, size)
        self._writer.write(head + b"\0\0\0\0" + frame)

    async def ask(self, frame: bytes) -> bytes:
        """The answer to one request."""
        self.write(frame)
        return await self._answers.get()

    async def call(self, method: str, **params: Any) -> dict[str, Any]:
        """`ask`, in words."""
        found: dict[str, Any] = json.loads(await self.ask(_request(method, **params)))
        return found

    async def keep_asking(self, frame: Callable[[], bytes], in_flight: int, until: float) -> int:
        """Keep so many requests on their way until a moment; how many were answered."""
        for _ in range(in_flight):
            self.write(frame())
        count, left = 0, in_flight
        while left:
            answer = await self._answers.get()
            assert b'"result"' in answer[:80], answer[:400]
            count += 1
            if time.perf_counter() < until:
                self.write(frame())
            else:
                left -= 1
        return count

    async def until_heard(self, count: int) -> None:
        """Wait for so many events in all."""
        while self.heard < count:
            self._heard.clear()
            await self._heard.wait()

    def close(self) -> None:
        """Hang up."""
        self._writer.close()

    async def ended(self) -> None:
        """Wait for the end."""
        await asyncio.gather(self._task, return_exceptions=True)


# What the kernel says of the node.


def _cpu(node: NodeProcess) -> float:
    """Seconds of CPU that the node has used."""
    fields = Path(f"/proc/{node.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _private(node: NodeProcess) -> float:
    """MB that are the node's alone."""
    lines = Path(f"/proc/{node.pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private_")) / 1024
