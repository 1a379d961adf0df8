from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from edge.contract.errors import EdgeError, RateLimited, UnknownAid
from edge.contract.limit import Limits
from edge.contract.principal import Kind, Principal
from edge.contract.time import SECOND
from edge.devices.alarms import PACE, RETRY_US, Alarms
from edge.store import ledger
from edge.store.losses import Losses
from tests.support.house import ISSUER, House, house
from tests.support.store import full

OWNER = f"alice.{ISSUER}"
SMOKE = {"name": "Smoke", "unique_id": "porch_s", "device_class": "smoke", "state_topic": "porch/smoke"}
DOOR = {"name": "Lid", "unique_id": "porch_l", "device_class": "tamper", "state_topic": "porch/lid"}
WARM = {"name": "Warm", "unique_id": "porch_w", "device_class": "occupancy", "state_topic": "porch/warm"}
BELL = {
    "name": "Ring",
    "unique_id": "porch_b",
    "event_types": ["press"],
    "device_class": "doorbell",
    "state_topic": "porch/bell",
}


class Post:
    """A message service that only writes down what it is sent; `refuse` makes it fail, `gate` makes it slow."""

    def __init__(self) -> None:
        self.sent: list[tuple[Principal, dict[str, Any]]] = []
        self.refuse: EdgeError | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def call(self, op: str, params: Any, who: Principal) -> None:
        assert op == "message.send"
        await self.gate.wait()
        if self.refuse is not None:
            raise self.refuse
        self.sent.append((who, params))

    @property
    def alarms(self) -> list[list[tuple[str, Any, int]]]:
        """Of each message: (capability, value, changes)."""
        return [
            [(one["skill"].partition(".")[2], one["value"], one["changes"]) for one in params["payload"]["alarms"]]
            for _, params in self.sent
        ]


class Watch:
    """A porch with things that raise alarms, and whoever tells of them."""

    def __init__(self, made: House, device: Principal, alarms: Alarms, post: Post, losses: Losses) -> None:
        self.house, self.device, self.alarms, self.post, self.losses = made, device, alarms, post, losses

    async def announce(self) -> None:
        for kind, thing in (("binary_sensor", SMOKE), ("binary_sensor", DOOR), ("binary_sensor", WARM)):
            about = {**thing, "device": {"identifiers": ["porch-1"], "name": "Porch"}}
            await self.house.say(self.device, f"homeassistant/{kind}/porch/{thing['unique_id']}/config", about)

    async def say(self, topic: str, value: str) -> None:
        await self.house.say(self.device, f"porch/{topic}", value)
        await self.house.settle()

    async def later(self, us: int) -> None:
        self.house.clock.advance(us)
        await self.house.settle()


@asynccontextmanager
async def watch(
    folder: Path,
    *,
    owner: str = OWNER,
    post: Post | None = None,
    before: Callable[[House], Awaitable[None]] | None = None,
    **limits: int,
) -> AsyncIterator[Watch]:
    post = post or Post()
    made_limits = Limits({f"devices.{name}": value for name, value in limits.items()})
    async with house(folder, limits=made_limits) as made:
        known = made.gatekeeper.user("garden")
        device = known.who if known is not None else await made.add("garden", admin=True)
        losses = Losses(made.hot, made.clock)
        running: set[asyncio.Task[None]] = set()

        def spawn(work: Coroutine[Any, Any, None]) -> None:
            task = asyncio.get_running_loop().create_task(work)
            running.add(task)
            task.add_done_callback(running.discard)

        alarms = Alarms(made.registry, post, spawn, losses, made_limits, owner=owner)
        if before is not None:
            await before(made)
        await alarms.start()
        found = Watch(made, device, alarms, post, losses)
        try:
            yield found
        finally:
            for task in running:
                task.cancel()
            losses.stop()


async def drops(found: Watch) -> dict[tuple[str, str], int]:
    found.losses.flush()
    await found.house.settle()
    rows = await found.house.hot.read(ledger.drops)
    return {(one.log, one.reason): one.count for one in rows}


@pytest.mark.seed("S0-010")
async def test_an_alarm_is_a_message_from_its_device_to_the_owner(tmp_path: Path) -> None:
    async with watch(tmp_path) as found:
        await found.announce()
        await found.say("smoke", "ON")
        [(who, params)] = found.post.sent
        assert (who.kind, who.aid, who.scopes) == (Kind.DEVICE, f"d-porch.{ISSUER}", {"message:write"})
        assert (params["to"], params["delivery_mode"]) == (OWNER, "fanout")
        assert params["message_id"].startswith("alarm-")
        payload = params["payload"]
        [alarm] = payload.pop("alarms")
        assert payload == {
            "type": "event",
            "event": "alarm",
            "device": "porch",
            "device_aid": f"d-porch.{ISSUER}",
            "name": "Porch",
            "text": "Porch: Smoke on",
            "auto": True,
        }
        now_ms = found.house.clock.wall(found.house.clock.now())[0] // 1000
        assert now_ms - 1000 <= alarm.pop("at") <= now_ms
        assert alarm == {
            "skill": "porch.smoke",
            "title": "Smoke",
            "device_class": "smoke",
            "value": True,
            "unit": "",
            "changes": 1,
        }
        json.dumps(params)


async def test_only_changes_of_alarms_are_told_and_a_first_quiet_value_is_none(tmp_path: Path) -> None:
    async with watch(tmp_path) as found:
        await found.announce()
        for value in ("OFF", "OFF", "ON", "ON", "OFF", "OFF"):
            await found.say("smoke", value)
            await found.later(61 * SECOND)
        await found.say("warm", "ON")
        assert found.post.alarms == [[("smoke", True, 1)], [("smoke", False, 1)]]
        idents = [params["message_id"] for _, params in found.post.sent]
        assert len(set(idents)) == 2
        assert found.alarms.counters == {"sent": 2}


async def test_every_ring_is_told_also_when_it_says_the_same(tmp_path: Path) -> None:
    async with watch(tmp_path) as found:
        about = {**BELL, "device": {"identifiers": ["porch-1"], "name": "Porch"}}
        await found.house.say(found.device, "homeassistant/event/porch/b/config", about)
        [cap] = found.house.registry.caps()
        bell = cap.component
        cap.component = type(bell)(**{**_fields(bell), "cap": _alarming(bell.cap)})
        for _ in range(2):
            await found.say("bell", json.dumps({"event_type": "press"}))
            await found.later(SECOND)
        assert [[one[1:] for one in message] for message in found.post.alarms] == [[("press", 1)], [("press", 1)]]


def _fields(record: Any) -> dict[str, Any]:
    return {name: getattr(record, name) for name in record.__struct_fields__}


def _alarming(cap: Any) -> Any:
    return type(cap)(**{**_fields(cap), "traffic": "alarm"})


async def test_nobody_is_told_without_an_owner(tmp_path: Path) -> None:
    async with watch(tmp_path, owner="") as found:
        await found.announce()
        await found.say("smoke", "ON")
        assert found.post.sent == []


@pytest.mark.limit("devices.alarms_per_minute")
async def test_what_changes_faster_than_the_pace_is_merged_and_counted(tmp_path: Path) -> None:
    async with watch(tmp_path, alarms_per_minute=2) as found:
        await found.announce()
        for value in ("ON", "OFF"):
            await found.say("smoke", value)
        assert found.post.alarms == [[("smoke", True, 1)], [("smoke", False, 1)]]
        for value in ("ON", "OFF", "ON"):
            await found.say("smoke", value)
        await found.say("lid", "ON")
        assert len(found.post.sent) == 2
        assert found.house.limits.hits["devices.alarms_per_minute"] == 1
        await found.later(60 * SECOND // found.house.limits[PACE])
        assert found.post.alarms[2:] == [[("smoke", True, 3), ("lid", True, 1)]]
        assert found.alarms.counters == {"sent": 3, "merged": 2}
        assert await drops(found) == {("alarm", "merged"): 2}


async def test_what_changes_while_a_message_is_on_its_way_is_told_after_it(tmp_path: Path) -> None:
    post = Post()
    async with watch(tmp_path, post=post) as found:
        await found.announce()
        await found.say("smoke", "OFF")
        post.gate.clear()
        for value in ("ON", "OFF"):
            await found.say("smoke", value)
        post.gate.set()
        await found.house.settle()
        assert post.alarms == [[("smoke", True, 1)], [("smoke", False, 1)]]


async def test_an_inbox_that_is_full_is_tried_again_with_what_is_new_by_then(tmp_path: Path) -> None:
    post = Post()
    async with watch(tmp_path, post=post) as found:
        await found.announce()
        post.refuse = RateLimited()
        await found.say("smoke", "ON")
        await found.say("lid", "ON")
        await found.say("smoke", "OFF")
        post.refuse = None
        await found.later(RETRY_US)
        assert sorted(post.alarms[0]) == [("lid", True, 1), ("smoke", False, 2)]
        assert found.alarms.counters == {"waiting": 1, "sent": 1, "merged": 1}


async def test_an_owner_who_is_nobody_here_is_a_declared_loss_and_no_endless_loop(tmp_path: Path) -> None:
    post = Post()
    post.refuse = UnknownAid()
    async with watch(tmp_path, post=post) as found:
        await found.announce()
        await found.say("smoke", "ON")
        await found.later(10 * RETRY_US)
        assert found.alarms.counters == {"undeliverable": 1}
        assert await drops(found) == {("alarm", "undeliverable"): 1}


async def test_after_a_restart_what_was_told_is_not_told_again_and_what_was_not_is(tmp_path: Path) -> None:
    async with watch(tmp_path) as found:
        await found.announce()
        await found.say("smoke", "ON")
        assert len(found.post.sent) == 1
    async with watch(tmp_path) as found:
        await found.house.settle()
        assert found.post.sent == []
        found.post.refuse = RateLimited()
        await found.say("smoke", "OFF")
    async with watch(tmp_path) as found:
        await found.house.settle()
        assert found.post.alarms == [[("smoke", False, 1)]]


async def test_a_crash_between_message_and_note_repeats_the_same_message(tmp_path: Path) -> None:
    async with watch(tmp_path) as found:
        await found.announce()
        await found.say("smoke", "ON")
        first = found.post.sent[0][1]
        await found.house.node.commit(lambda unit: unit.run("DELETE FROM alarm_told"))
    async with watch(tmp_path) as found:
        await found.house.settle()
        [(_, again)] = found.post.sent
        assert again["message_id"] == first["message_id"]


async def test_what_is_known_of_a_capability_that_is_gone_is_forgotten(tmp_path: Path) -> None:
    async with watch(tmp_path) as found:
        await found.announce()
        await found.say("smoke", "ON")
        await found.house.say(found.device, "homeassistant/binary_sensor/porch/porch_s/config", b"")
    async with watch(tmp_path) as found:
        assert await found.house.node.read(lambda unit: unit.run("SELECT cap FROM alarm_told")) == []


async def test_a_note_that_a_full_disk_refuses_keeps_no_other_device_waiting(tmp_path: Path) -> None:
    post = Post()
    async with watch(tmp_path, post=post) as found:
        await found.announce()
        shed = {**SMOKE, "unique_id": "shed_s", "state_topic": "garden/shed"}
        about = {**shed, "device": {"identifiers": ["shed-1"], "name": "Shed"}}
        await found.house.say(found.device, "homeassistant/binary_sensor/shed/shed_s/config", about)
        post.gate.clear()
        await found.say("smoke", "ON")
        await found.house.say(found.device, "garden/shed", "ON")
        await full(found.house.node)
        post.gate.set()
        async with asyncio.timeout(20):
            while len(post.sent) < 2:
                await asyncio.sleep(0.001)
        assert [params["payload"]["device"] for _, params in post.sent] == ["porch", "shed"]
        assert found.house.node.read_only


async def test_a_start_on_a_full_disk_goes_on_without_its_notes(tmp_path: Path) -> None:
    async with watch(tmp_path) as found:
        await found.announce()
        await found.say("smoke", "ON")
        await found.house.say(found.device, "homeassistant/binary_sensor/porch/porch_s/config", b"")
    async with watch(tmp_path, before=lambda made: full(made.node)) as found:
        assert found.house.node.read_only
        while found.house.node.read_only:
            found.house.clock.advance(SECOND)
            await found.house.node.ping()
        await found.say("lid", "ON")
        assert found.post.alarms == [[("lid", True, 1)]]
