from __future__ import annotations

import asyncio
from pathlib import Path

from edge.contract.bus import Publish
from edge.contract.principal import NODE, Kind, Principal
from edge.contract.time import Stamp
from edge.devices.acks import Acks, Losses, sender
from edge.store import ledger
from tests.support.clock import FakeClock
from tests.support.store import database


def test_a_batch_is_done_once_when_everything_it_waits_for_is_over() -> None:
    told: list[BaseException | None] = []
    acks = Acks(told.append)
    first, second = acks.wait(), acks.wait()
    assert acks.close([0]) == [0]
    first(None)
    assert told == []
    second(None)
    assert told == [None]


def test_one_failure_is_the_failure_of_the_batch() -> None:
    told: list[BaseException | None] = []
    acks, error = Acks(told.append), OSError()
    first, second = acks.wait(), acks.wait()
    acks.close([0])
    first(error)
    second(None)
    assert told == [error]


def test_without_a_kept_message_nobody_is_told() -> None:
    told: list[BaseException | None] = []
    acks = Acks(told.append)
    over = acks.wait()
    acks.close([])
    over(None)
    assert told == []


async def test_what_was_over_inside_the_sink_is_told_after_it() -> None:
    told: list[BaseException | None] = []
    acks = Acks(told.append)
    acks.wait()(None)
    acks.close([3])
    assert told == []
    await asyncio.sleep(0)
    assert told == [None]


async def test_a_loss_is_in_the_ledger_when_it_is_told_to_be(tmp_path: Path) -> None:
    async with database(tmp_path) as node:
        done: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
        Losses(node, FakeClock()).add("reading", "a/b", 3, "too large", "thermo", done.set_result)
        assert await done is None
        assert await node.read(ledger.drops) == [ledger.Drop("reading", "too large", 3)]


def test_a_sender_is_named_by_user_then_aid_then_kind() -> None:
    def said(who: Principal) -> str:
        return sender(Publish("t", b"", 0, False, who, Stamp(1, 1)))

    assert said(Principal(kind=Kind.DEVICE, aid="d-x.e", device_id="x")) == "x"
    assert said(Principal(kind=Kind.AGENT, aid="a.e")) == "a.e"
    assert said(NODE) == "node"
