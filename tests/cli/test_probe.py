"""The selftest's own client against Mosquitto: it speaks MQTT as others do, and its account is exact."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from edge.cli.probe import WINDOW, Probe, Refused
from edge.system.clock import SystemClock
from tests.support.mosquitto import Mosquitto
from tests.support.patience import until

pytestmark = pytest.mark.needs("mosquitto")


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Mosquitto:
    """With a window of its own it now and then (2.0.11) leaves the last queued message lying until something else
    comes; that is not what these tests are about."""
    lines = ("max_inflight_messages 0", "max_queued_messages 0")
    with Mosquitto(tmp_path_factory.mktemp("mosquitto"), users={"a": "pa", "b": "pb"}, lines=lines) as made:
        yield made  # type: ignore[misc]


@asynccontextmanager
async def connected(probe: Probe, broker: Mosquitto) -> AsyncIterator[asyncio.Task[None]]:
    await probe.connect("127.0.0.1", broker.port)
    running = asyncio.get_running_loop().create_task(probe.run())
    try:
        yield running
    finally:
        probe.cut()
        await running


async def test_every_ack_and_every_delivery_is_counted_once(broker: Mosquitto) -> None:
    clock = SystemClock(1)
    a, b = Probe(clock, "a", "pa"), Probe(clock, "b", "pb")
    async with connected(b, broker), connected(a, broker):
        await b.subscribe("t/#", 2)
        for number in range(3 * WINDOW):
            await a.publish(f"t/{number}", b"n%d" % number, number % 3)
        await until(lambda: len(b.delivered) + len(b.delivered0) == 3 * WINDOW and not a.waiting)
    assert a.acked == b.delivered.keys()
    assert len(a.acked) == 2 * WINDOW
    assert (set(b.delivered.values()), b.twice, a.resent) == ({1}, 0, 0)


async def test_what_was_not_acked_is_sent_again_over_a_new_connection(broker: Mosquitto) -> None:
    a, b = Probe(SystemClock(1), "a", "pa"), Probe(SystemClock(1), "b", "pb")
    async with connected(b, broker):
        await b.subscribe("again/#", 2)
        async with connected(a, broker):
            for number in range(10):
                await a.publish("again/x", b"m%d" % number, 1 + number % 2)
        assert a.waiting == 10
        async with connected(a, broker):
            await until(lambda: not a.waiting and len(b.delivered.keys() & a.acked) == 10)
    assert a.resent == 10
    assert (a.lost_sessions, b.twice) == (0, 0)


async def test_a_message_for_somebody_absent_waits(broker: Mosquitto) -> None:
    a, b = Probe(SystemClock(1), "a", "pa"), Probe(SystemClock(1), "b", "pb")
    async with connected(b, broker):
        await b.subscribe("later/#", 1)
        b.leave()
    async with connected(a, broker):
        await a.publish("later/x", b"hello", 1)
        await until(lambda: not a.waiting)
    async with connected(b, broker):
        await until(lambda: b.delivered[b"hello"] == 1)


async def test_a_wrong_password_is_told(broker: Mosquitto) -> None:
    with pytest.raises(Refused, match="not let in"):
        await Probe(SystemClock(1), "a", "wrong").connect("127.0.0.1", broker.port)
