"""One caller who floods is served within its rates and no further, and nobody else is refused for it (settled G15).

By counts: how long another caller waits beside a flood is the bench's business.
"""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import msgspec

from edge.session.conversation import REFUSALS, REQUESTS
from edge.session.limiter import BURST, WRITE
from tests.support.node import Agent, Elsewhere
from tests.support.process import NodeProcess

CALLS = 300
LEAST_FLOOD = 2_000
"""Frames that were sent before anybody else asks: more than the flooder may have in the first seconds."""


class Flood(msgspec.Struct):
    """What one caller sent without waiting, and what came back."""

    sent: int = 0
    taken: int = 0
    refused: int = 0
    began: float = 0.0
    ended: float = 0.0

    @property
    def seconds(self) -> float:
        return self.ended - self.began


async def _flood(mallory: Agent, bob: Agent, found: Flood, full: asyncio.Event) -> None:
    """As many sends as the socket takes, until cancelled; `full` once the node reads them no more."""
    async with mallory.connected() as wire:
        found.began = time.monotonic()

        async def read() -> None:
            async for text in wire.ws:
                frame = json.loads(text)
                if "error" in frame:
                    assert frame["error"]["code"] == -32029, frame
                    assert frame["error"]["data"]["retry_after_ms"] > 0
                    found.refused += 1
                else:
                    found.taken += 1

        reading = asyncio.ensure_future(read())
        params = {"to": bob.aid, "payload": {"type": "text", "text": "x" * 200}}
        try:
            while not reading.done():
                found.sent += 1
                frame = {"jsonrpc": "2.0", "id": found.sent, "method": "message.send", "params": params}
                await wire.ws.send(json.dumps(frame))
                if found.sent >= LEAST_FLOOD:
                    full.set()
                if found.sent % 50 == 0:
                    await asyncio.sleep(0)  # sending need not wait: let the answers in
        finally:
            found.ended = time.monotonic()
            wire.ws.transport.abort()
            reading.cancel()
            [ended] = await asyncio.gather(reading, return_exceptions=True)
            assert not isinstance(ended, AssertionError), ended


async def _ask(alice: Agent) -> None:
    """Calls of somebody else, half of them durable. A refusal raises."""
    async with alice.connected() as wire:
        for number in range(CALLS):
            if number % 2:
                await wire.call("message.pull", {"limit": 10})
            else:
                await wire.call("message.send", {"to": alice.aid, "payload": {"n": number}})


async def _measure(node: NodeProcess) -> Flood:
    alice, bob, mallory = [await Elsewhere(node).agent(name) for name in ("alice", "bobby", "mallory")]
    found, full = Flood(), asyncio.Event()
    flooding = asyncio.ensure_future(_flood(mallory, bob, found, full))
    await full.wait()
    await _ask(alice)
    assert not flooding.done()
    flooding.cancel()
    await asyncio.gather(flooding, return_exceptions=True)
    return found


def test_a_flood_has_its_rates_and_no_more_and_another_caller_is_not_refused(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "state", "--issuer", "edge.test") as node:
        found = asyncio.run(_measure(node))
        hits = node.cli("status")["limit_hits"]
    assert found.taken > 0
    assert found.refused > 0
    assert found.taken <= WRITE.default * (BURST + found.seconds) + REQUESTS.default
    assert found.refused <= REFUSALS.default * (1 + found.seconds) + REQUESTS.default
    assert found.sent > found.taken + found.refused + REQUESTS.default, "the node reads on only as it answers"
    assert hits["rate.write"] + hits.get("session.requests", 0) >= found.refused
    assert hits["session.refusals"] > 0
