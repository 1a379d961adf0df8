from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from edge.contract.errors import (
    InvalidParams,
    NotPermitted,
    OutputTooLarge,
    RateLimited,
    StorageFull,
    TaskAccessDenied,
    TaskAlreadyAccepted,
    TaskCanceled,
    TaskFailed,
    TaskInputRequired,
    TaskNotCancelable,
    TaskNotFound,
    TaskRejected,
    TaskStateInvalid,
    TooLarge,
    UnknownAid,
)
from edge.contract.event import Event
from edge.contract.store import Unit
from edge.contract.time import SECOND
from edge.contract.wire import dumps
from edge.protocol.task import Patience, Task
from edge.store import ledger, tasks
from tests.support.tasks import (
    ALICE,
    BELL,
    BOB,
    CAROL,
    DIMMER,
    DOOR,
    ISSUER,
    LAMP,
    OPERATOR,
    ROBOT,
    THERMOMETER,
    Boots,
    Gate,
    World,
    agent,
    reads,
    skill,
    world,
)

NODE = f"gateway.{ISSUER}"


async def between(house: World, text: str = "please look", **more: Any) -> str:
    """A task that Alice made for Bob."""
    made = await house.create(ALICE, BOB.aid, text, **more)
    return str(made["task_id"])


async def finished(house: World, who: Any, task_id: str) -> Any:
    await house.rest()
    return await house.get(who, task_id)


@pytest.mark.seed("S0-113", "S0-110")
async def test_a_new_task_is_submitted_and_belongs_to_its_maker(tmp_path: Path) -> None:
    async with world(tmp_path) as house:
        made = await house.create(ALICE, BOB.aid, "please look")
        assert made["status"] == "submitted"
        assert (made["owner"], made["assignee"]) == (ALICE.aid, BOB.aid)
        assert made["created_at"].endswith("Z")
        whole = await house.get(BOB, made["task_id"])
        assert whole["input"] == {"type": "text", "content": "please look"}
        assert whole["participants"] == sorted([ALICE.aid, BOB.aid])
        assert (whole["messages"], whole["artifacts"], whole["children"]) == ([], [], [])
        assert (whole["visibility"], whole["parent_task_id"]) == ("private", None)


@pytest.mark.seed("S0-115", "S0-120", "S0-114")
async def test_the_assignee_accepts_and_completes_with_artifacts(tmp_path: Path) -> None:
    async with world(tmp_path) as house:
        task_id = await between(house)
        assert await house.call(BOB, "task.accept", {"task_id": task_id}) == {"task_id": task_id, "status": "working"}
        artifact = {"id": "a1", "type": "text", "name": "summary", "mime_type": "text/plain", "content": "fine"}
        done = await house.call(BOB, "task.complete", {"task_id": task_id, "artifacts": [artifact]})
        assert done == {"task_id": task_id, "status": "completed"}
        whole = await house.get(ALICE, task_id)
        assert whole["artifacts"] == [artifact]
        assert whole["status"] == "completed"


@pytest.mark.seed("S0-116", "S0-121", "S0-122")
async def test_reject_fail_and_cancel_keep_their_reason(tmp_path: Path) -> None:
    async with world(tmp_path) as house:
        for who, verb, before, status in (
            (BOB, "reject", (), "rejected"),
            (BOB, "fail", ("accept",), "failed"),
            (ALICE, "cancel", (), "canceled"),
            (ALICE, "cancel", ("accept",), "canceled"),
        ):
            task_id = await between(house)
            for step in before:
                await house.call(BOB, f"task.{step}", {"task_id": task_id})
            moved = await house.call(who, f"task.{verb}", {"task_id": task_id, "reason": "because"})
            assert moved == {"task_id": task_id, "status": status}
            assert (await house.get(ALICE, task_id))["reason"] == "because"


@pytest.mark.seed("S0-117", "S0-127")
async def test_a_question_of_the_assignee_waits_for_the_owner(tmp_path: Path) -> None:
    async with world(tmp_path) as house:
        task_id = await between(house)
        await house.call(BOB, "task.accept", {"task_id": task_id})
        asked = {"task_id": task_id, "input": {"type": "text", "content": "which one?"}}
        assert (await house.call(BOB, "task.send_input", asked))["status"] == "input_required"
        last = house.heard(task_id, "task.updated")[-1][1]
        assert (last["status"], last["message"]) == ("input_required", asked["input"])
        with pytest.raises(TaskInputRequired):
            await house.call(BOB, "task.complete", {"task_id": task_id})
        told = {"task_id": task_id, "input": {"type": "text", "content": "the red one"}}
        assert (await house.call(ALICE, "task.send_input", told))["status"] == "working"
        said = (await house.get(ALICE, task_id))["messages"]
        assert [(one["from"], one["content"]) for one in said] == [(BOB.aid, "which one?"), (ALICE.aid, "the red one")]


@pytest.mark.seed("S0-112")
async def test_what_is_over_refuses_by_how_it_ended(tmp_path: Path) -> None:
    async with world(tmp_path) as house:
        endings = {
            "complete": (BOB, ("accept",), TaskStateInvalid),
            "fail": (BOB, ("accept",), TaskFailed),
            "reject": (BOB, (), TaskRejected),
            "cancel": (ALICE, (), TaskCanceled),
        }
        for verb, (who, before, error) in endings.items():
            task_id = await between(house)
            for step in before:
                await house.call(BOB, f"task.{step}", {"task_id": task_id})
            await house.call(who, f"task.{verb}", {"task_id": task_id})
            more = {"task_id": task_id, "input": {"content": "more"}}
            for caller, method, params in (
                (BOB, "accept", {"task_id": task_id}),
                (BOB, "complete", {"task_id": task_id}),
                (BOB, "fail", {"task_id": task_id}),
                (BOB, "reject", {"task_id": task_id}),
                (ALICE, "cancel", {"task_id": task_id}),
                (ALICE, "send_input", more),
                (BOB, "send_input", more),
            ):
                with pytest.raises(error):
                    await house.call(caller, f"task.{method}", params)
            assert (await house.get(BOB, task_id))["input"]["content"] == "please look"


async def test_moves_out_of_order_have_their_own_errors(tmp_path: Path) -> None:
    async with world(tmp_path) as house:
        task_id = await between(house)
        one = {"task_id": task_id}
        for who, verb, error in (
            (BOB, "complete", TaskStateInvalid),
            (BOB, "fail", TaskStateInvalid),
            (ALICE, "accept", TaskAccessDenied),
            (ALICE, "complete", TaskAccessDenied),
            (BOB, "cancel", TaskAccessDenied),
        ):
            with pytest.raises(error):
                await house.call(who, f"task.{verb}", one)
        await house.call(BOB, "task.accept", one)
        with pytest.raises(TaskAlreadyAccepted):
            await house.call(BOB, "task.accept", one)
        with pytest.raises(TaskStateInvalid):
            await house.call(BOB, "task.reject", one)


@pytest.mark.seed("S0-111")
async def test_an_outsider_learns_nothing_of_a_private_task(tmp_path: Path) -> None:
    async with world(tmp_path) as house:
        task_id = await between(house)
        one = {"task_id": task_id}
        for verb in ("get", "accept", "reject", "complete", "fail", "cancel"):
            with pytest.raises(TaskNotFound):
                await house.call(CAROL, f"task.{verb}", one)
        with pytest.raises(TaskNotFound):
            await house.call(CAROL, "task.send_input", {**one, "input": {"content": "x"}})
        with pytest.raises(TaskAccessDenied, match="none of these"):
            await house.call(CAROL, "task.subscribe", {"task_ids": [task_id]})
        assert (await house.call(CAROL, "task.list"))["items"] == []
        assert all(CAROL.aid not in event.audience for event in house.events)


@pytest.mark.seed("S0-111")
async def test_a_public_task_may_be_read_by_our_aids_and_moved_by_none_of_them(tmp_path: Path) -> None:
    async with world(tmp_path) as house:
        task_id = await between(house, visibility="public")
        assert (await house.get(CAROL, task_id))["visibility"] == "public"
        with pytest.raises(TaskAccessDenied):
            await house.call(CAROL, "task.cancel", {"task_id": task_id})
        with pytest.raises(TaskNotFound):
            await house.call(agent("mallory.else"), "task.get", {"task_id": "0" * 26})
        shared = await between(house, visibility="shared")
        with pytest.raises(TaskNotFound):
            await house.get(CAROL, shared)
        with pytest.raises(InvalidParams):
            await between(house, visibility="secret")


@pytest.mark.seed("S0-124")
async def test_the_list_is_the_callers_own_newest_first_in_stable_pages(tmp_path: Path) -> None:
    async with world(tmp_path) as house:
        mine = [await between(house, f"task {number}") for number in range(5)]
        await house.create(CAROL, BOB.aid, "another's")
        first = await house.call(ALICE, "task.list", {"limit": 2, "cursor": None})
        assert [item["task_id"] for item in first["items"]] == mine[:2:-1]
        assert first["has_more"] is True
        await between(house, "made between two pages")
        second = await house.call(ALICE, "task.list", {"limit": 2, "cursor": first["next_cursor"]})
        third = await house.call(ALICE, "task.list", {"limit": 2, "cursor": second["next_cursor"]})
        assert [item["task_id"] for item in second["items"] + third["items"]] == mine[2::-1]
        assert (third["next_cursor"], third["has_more"]) == (None, False)
        await house.call(BOB, "task.accept", {"task_id": mine[1]})
        working = await house.call(ALICE, "task.list", {"status": "working"})
        assert [item["task_id"] for item in working["items"]] == [mine[1]]
        assert len((await house.call(BOB, "task.list", {"limit": 1000}))["items"]) == 7
        for bad in ({"status": "sleeping"}, {"cursor": "x"}, {"cursor": "1" * 40}):
            with pytest.raises(InvalidParams):
                await house.call(ALICE, "task.list", bad)


@pytest.mark.seed("S0-125")
async def test_events_go_to_owner_and_assignee_and_to_those_who_subscribed(tmp_path: Path) -> None:
    async with world(tmp_path) as house:
        task_id = await between(house, visibility="public")
        params = dumps({"task_ids": [task_id, task_id, "unknown"], "events": ["updated", "completed"]})
        outcome = await house.dispatcher.call("aun", "task.subscribe", params, CAROL)
        assert outcome.watch == (("task", task_id),)
        own = await house.dispatcher.call("aun", "task.subscribe", dumps({"task_ids": [task_id]}), ALICE)
        assert own.watch == ()
        await house.call(BOB, "task.accept", {"task_id": task_id})
        await house.call(BOB, "task.complete", {"task_id": task_id, "artifacts": [{"type": "text", "content": "ok"}]})
        kinds = [kind for kind, _ in house.heard(task_id)]
        assert kinds == ["task.updated", "task.updated", "task.artifact", "task.updated", "task.completed"]
        assert [body.get("status") for _, body in house.heard(task_id, "task.updated")] == [
            "submitted",
            "working",
            "completed",
        ]
        assert house.heard(task_id, "task.completed")[0][1]["artifacts"] == [{"type": "text", "content": "ok"}]
        told = [event for event in house.events if event.kind]
        assert {event.audience for event in told} == {frozenset({ALICE.aid, BOB.aid})}
        assert [event.seq for event in house.events] == sorted(event.seq for event in house.events)
        with pytest.raises(InvalidParams):
            await house.call(ALICE, "task.subscribe", {"task_ids": [task_id], "events": ["everything"]})


async def test_a_failed_task_says_so_twice(tmp_path: Path) -> None:
    async with world(tmp_path) as house:
        task_id = await between(house)
        await house.call(BOB, "task.accept", {"task_id": task_id})
        await house.call(BOB, "task.fail", {"task_id": task_id, "reason": "no time"})
        assert [kind for kind, _ in house.heard(task_id)][-2:] == ["task.updated", "task.failed"]
        assert house.heard(task_id, "task.failed") == [("task.failed", {"task_id": task_id, "reason": "no time"})]


async def test_a_task_needs_somebody_who_is_known_here(tmp_path: Path) -> None:
    async with world(tmp_path) as house:
        with pytest.raises(UnknownAid):
            await house.create(ALICE, f"nobody.{ISSUER}", "hello")
        with pytest.raises(InvalidParams):
            await house.create(ALICE, "no aid at all", "hello")
        with pytest.raises(InvalidParams):
            await house.call(ALICE, "task.create", {"to": BOB.aid, "input": {}})
        with pytest.raises(InvalidParams):
            await house.call(ALICE, "task.create", {"to": BOB.aid, "input": "text"})


async def test_the_same_idempotency_key_makes_one_task(tmp_path: Path) -> None:
    async with world(tmp_path) as house:
        params = {"to": BOB.aid, "input": {"content": "x"}, "idempotency_key": "k1"}
        first = await house.call(ALICE, "task.create", params)
        assert await house.call(ALICE, "task.create", params) == first
        other = await house.call(CAROL, "task.create", params)
        assert other["task_id"] != first["task_id"]
        assert len((await house.call(ALICE, "task.list"))["items"]) == 1


# Tasks of devices.


async def test_a_task_to_a_thermometer_returns_its_value(tmp_path: Path) -> None:
    async with world(tmp_path, THERMOMETER) as house:
        house.gate.acts[THERMOMETER.id] = reads
        made = await house.create(ALICE, THERMOMETER.aid, "how warm is it?")
        whole = await finished(house, ALICE, made["task_id"])
        assert whole["status"] == "completed"
        assert whole["artifacts"][0]["content"] == "21.5"
        assert whole["artifacts"][0]["parts"][1]["data"]["value"] == 21.5
        assert [body["status"] for _, body in house.heard(made["task_id"], "task.updated")] == [
            "submitted",
            "working",
            "completed",
        ]


async def test_a_command_leaves_after_its_task_is_on_disk(tmp_path: Path) -> None:
    async with world(tmp_path, LAMP) as house:
        found: list[Any] = []

        def look(gate: Gate, order: Any) -> None:
            found.append(house.get(ALICE, order.task_id))

        house.gate.acts[LAMP.id] = look
        made = await house.create(ALICE, LAMP.aid, "on")
        assert (await found[0])["task_id"] == made["task_id"]
        [order] = house.gate.orders
        assert (order.task_id, order.skill, order.verb, order.value) == (made["task_id"], LAMP.id, "on", b"")
        assert order.parts == b'[{"kind":"text","text":"on"}]'
        assert order.deadline_us > 0


async def test_a_skill_is_named_by_data_by_metadata_or_by_text(tmp_path: Path) -> None:
    async with world(tmp_path, LAMP, DIMMER, THERMOMETER) as house:
        for said in (
            {"type": "data", "data": {"skill": DIMMER.id, "params": {"value": 40}}},
            {"type": "text", "content": "go", "metadata": {"skill": DIMMER.id, "params": {"value": 40}}},
            {"type": "text", "content": "lamp brightness 40%"},
            {"type": "text", "content": "lamp.brightness 40"},
            {"skill": DIMMER.id, "params": {"value": 40}},
        ):
            await house.create(ALICE, NODE, said)
            order = house.gate.orders[-1]
            assert (order.skill, order.verb, order.value) == (DIMMER.id, "set", b"40")


async def test_a_message_that_names_no_skill_is_asked_which(tmp_path: Path) -> None:
    async with world(tmp_path, LAMP, DIMMER) as house:
        made = await house.create(ALICE, ISSUER, "make it cosy")
        assert made["status"] == "input_required"
        assert house.gate.orders == []
        whole = await house.get(ALICE, made["task_id"])
        question = whole["messages"][0]
        assert question["from"] == ""
        assert LAMP.id in question["content"]
        assert [entry["id"] for entry in question["parts"][1]["data"]["skills"]] == [DIMMER.id, LAMP.id]
        one = {"task_id": made["task_id"]}
        again = await house.call(ALICE, "task.send_input", {**one, "input": {"content": "hm"}})
        assert again["status"] == "input_required"
        now = await house.call(ALICE, "task.send_input", {**one, "input": {"content": "lamp power off"}})
        assert now["status"] == "working"
        assert house.gate.orders[-1].verb == "off"


async def test_an_unknown_skill_is_refused_with_those_that_exist(tmp_path: Path) -> None:
    async with world(tmp_path, LAMP) as house:
        with pytest.raises(InvalidParams, match=r"lamp\.power") as caught:
            await house.create(ALICE, NODE, {"skill": "lamp.colour"})
        assert caught.value.data == {"skills": [LAMP.id]}


@pytest.mark.seed("S0-128")
async def test_artifacts_end_at_256_kib_and_a_reference_fits(tmp_path: Path) -> None:
    async with world(tmp_path) as house:
        task_id = await between(house)
        await house.call(BOB, "task.accept", {"task_id": task_id})
        big = {"id": "a", "type": "text", "content": ""}
        room = 262_144 - len(dumps(big))
        params = {"task_id": task_id, "artifacts": [{**big, "content": "x" * (room + 1)}]}
        with pytest.raises(OutputTooLarge):
            await house.call(BOB, "task.complete", params)
        params = {"task_id": task_id, "artifacts": [{**big, "content": "x" * room}]}
        assert (await house.call(BOB, "task.complete", params))["status"] == "completed"
        other = await between(house)
        await house.call(BOB, "task.accept", {"task_id": other})
        kept = {"id": "b", "type": "storage", "object_key": "big.bin", "size_bytes": 10**9}
        await house.call(BOB, "task.complete", {"task_id": other, "artifacts": [kept]})
        assert (await house.get(ALICE, other))["artifacts"] == [kept]


@pytest.mark.limit("task.artifacts")
async def test_a_device_that_says_too_much_fails_its_task(tmp_path: Path) -> None:
    async with world(tmp_path, ROBOT, limits={"task.artifacts": 100}) as house:
        made = await house.create(ALICE, ROBOT.aid, "clean")
        chunk = dumps({"id": "log", "append": True, "last": False, "parts": ["x" * 60]})
        house.gate.tell(made["task_id"], "working", seq=1, artifact=chunk)
        assert (await finished(house, ALICE, made["task_id"]))["status"] == "working"
        house.gate.tell(made["task_id"], "working", seq=2, artifact=chunk)
        whole = await finished(house, ALICE, made["task_id"])
        assert (whole["status"], whole["reason"]) == ("failed", "output too large")


@pytest.mark.limit("task.input", "task.live", "task.messages", "task.subscriptions")
async def test_what_one_principal_can_ask_for_is_bounded(tmp_path: Path) -> None:
    bounds = {"task.input": 40, "task.live": 2, "task.messages": 3, "task.subscriptions": 2}
    async with world(tmp_path, limits=bounds) as house:
        fits = {"content": "x" * (40 - len(dumps({"content": ""})))}
        task_id = (await house.create(ALICE, BOB.aid, fits))["task_id"]
        with pytest.raises(TooLarge):
            await house.create(ALICE, BOB.aid, {"content": fits["content"] + "x"})
        more = {"task_id": task_id, "input": {"content": "x"}}
        for _ in range(2):
            await house.call(ALICE, "task.send_input", more)
        with pytest.raises(RateLimited):
            await house.call(ALICE, "task.send_input", more)
        await between(house, "x")
        with pytest.raises(RateLimited):
            await between(house, "x")
        await house.call(ALICE, "task.cancel", {"task_id": task_id})
        await between(house, "x")
        await house.call(ALICE, "task.subscribe", {"task_ids": [task_id, "b"]})
        with pytest.raises(TooLarge):
            await house.call(ALICE, "task.subscribe", {"task_ids": [task_id, "b", "c"]})
        assert set(house.limits.hits) == set(bounds)


async def test_high_risk_needs_a_grant_and_the_refusal_says_how(tmp_path: Path) -> None:
    async with world(tmp_path, DOOR) as house:
        house.gate.acts[DOOR.id] = reads
        with pytest.raises(NotPermitted, match=r"aun-edge cap grant door\.lock alice\.edge\.test"):
            await house.create(ALICE, DOOR.aid, "unlock")
        assert (await house.create(ALICE, DOOR.aid, "read"))["status"] == "submitted"
        house.grants.rows.add((ALICE.aid, DOOR.id))
        assert (await house.create(ALICE, DOOR.aid, "unlock"))["status"] == "submitted"
        assert [order.verb for order in house.gate.orders] == ["read", "unlock"]


async def test_scopes_for_reading_and_acting_are_the_capabilitys(tmp_path: Path) -> None:
    async with world(tmp_path, LAMP) as house:
        reader = agent("reader", {"task:read", "task:write", "cap:read"})
        await house.create(reader, LAMP.aid, "read")
        with pytest.raises(NotPermitted, match="cap:act"):
            await house.create(reader, LAMP.aid, "on")
        blind = agent("blind", {"task:read", "task:write"})
        with pytest.raises(NotPermitted, match="cap:read"):
            await house.create(blind, LAMP.aid, "read")


@pytest.mark.parametrize("sleeper", [LAMP, ROBOT], ids=["command", "native"])
async def test_a_device_asleep_gets_its_task_once_when_it_wakes(tmp_path: Path, sleeper: Any) -> None:
    async with world(tmp_path, sleeper) as house:
        house.gate.put(sleeper.id, online=False)
        made = await house.create(ALICE, sleeper.aid, "on" if sleeper is LAMP else "kitchen")
        assert made["status"] == "submitted"
        house.hub.publish(Event("device", "another", 1, "device.online"))
        house.hub.publish(Event("device", sleeper.device, 2, "device.offline"))
        await house.rest()
        assert house.gate.orders == []
        house.hub.publish(Event("device", sleeper.device, 3, "device.online"))
        await house.rest()
        house.hub.publish(Event("device", sleeper.device, 4, "device.online"))
        await house.rest()
        assert [(order.task_id, order.again) for order in house.gate.orders] == [(made["task_id"], False)]


async def test_a_kept_command_is_not_carried_out_when_its_grant_is_gone(tmp_path: Path) -> None:
    vault = skill("vault", "door", "lock", verbs=("unlock",), writable=True, risk="high", native=True)
    async with world(tmp_path, vault) as house:
        house.gate.put(vault.id, online=False)
        house.grants.rows.add((ALICE.aid, vault.id))
        made = await house.create(ALICE, vault.aid, "unlock")
        mine = await house.call(
            OPERATOR, "skill.call", {"skill": vault.id, "params": {"verb": "unlock"}, "timeout_s": 0}, "edge"
        )
        house.grants.rows.clear()
        house.hub.publish(Event("device", vault.device, 1, "device.online"))
        await house.rest()
        whole = await house.get(ALICE, made["task_id"])
        assert (whole["status"], whole["reason"]) == ("failed", "the permission was withdrawn meanwhile")
        assert [order.task_id for order in house.gate.orders] == [mine["task_id"]]


async def test_the_owner_of_the_box_may_cancel_any_task_but_only_once(tmp_path: Path) -> None:
    async with world(tmp_path, ROBOT) as house:
        made = await house.create(ALICE, ROBOT.aid, "kitchen")
        house.gate.acts[f"{ROBOT.id}/cancel"] = lambda gate, order: gate.tell(order.task_id, "canceled", seq=1)
        moved = await house.call(OPERATOR, "task.cancel", {"task_id": made["task_id"]}, "edge")
        assert moved["status"] == "canceled"
        with pytest.raises(TaskCanceled):
            await house.call(OPERATOR, "task.cancel", {"task_id": made["task_id"]}, "edge")


async def test_a_risky_device_that_is_offline_refuses_at_once(tmp_path: Path) -> None:
    async with world(tmp_path, DOOR) as house:
        house.gate.put(DOOR.id, online=False)
        house.grants.rows.add((ALICE.aid, DOOR.id))
        made = await house.create(ALICE, DOOR.aid, "unlock")
        assert made["status"] == "rejected"
        assert (await house.get(ALICE, made["task_id"]))["reason"] == "door is offline"


async def test_a_task_that_nobody_took_expires_with_a_reason(tmp_path: Path) -> None:
    brief = Patience(work=60 * SECOND, hold=60 * SECOND)
    async with world(tmp_path, ROBOT, LAMP, patience=brief, agent_patience=brief) as house:
        house.gate.put(ROBOT.id, online=False)
        kept = (await house.create(ALICE, ROBOT.aid, "kitchen"))["task_id"]
        sent = (await house.create(ALICE, LAMP.aid, "on"))["task_id"]
        other = await between(house)
        await house.clock.pass_(61 * SECOND)
        await house.rest()
        ends = {key: (await house.get(ALICE, key)) for key in (kept, sent, other)}
        assert (ends[kept]["status"], ends[kept]["reason"]) == ("failed", "device_offline")
        assert (ends[sent]["status"], ends[sent]["reason"]) == (
            "failed",
            "expired: sent, but the device never answered",
        )
        assert ends[other]["status"] == "canceled"
        house.hub.publish(Event("device", ROBOT.device, 3, "device.online"))
        await house.rest()
        assert [order.skill for order in house.gate.orders] == [LAMP.id]


async def test_an_order_for_a_device_that_is_offline_waits_a_day(tmp_path: Path) -> None:
    """Not the hour that a device has for its work (docs/agents.md)."""
    async with world(tmp_path, ROBOT, LAMP) as house:
        house.gate.put(ROBOT.id, online=False)
        params = {"skill": ROBOT.id, "params": {"value": "kitchen"}, "timeout_s": 0}
        asked = await house.call(OPERATOR, "skill.call", params, surface="edge")
        assert (asked["kept"], asked["until"]) == (True, house.clock.wall(house.clock.now())[0] + 86_400 * SECOND)
        await house.clock.pass_(86_000 * SECOND)
        await house.rest()
        assert (await house.get(OPERATOR, asked["task_id"]))["status"] == "submitted"
        await house.clock.pass_(401 * SECOND)
        await house.rest()
        ended = await house.get(OPERATOR, asked["task_id"])
        assert (ended["status"], ended["reason"]) == ("failed", "device_offline")


async def test_cancel_waits_until_the_device_says_that_it_stopped(tmp_path: Path) -> None:
    async with world(tmp_path, ROBOT) as house:
        made = await house.create(ALICE, ROBOT.aid, "kitchen")
        house.gate.tell(made["task_id"], "working", seq=1)
        house.gate.acts[f"{ROBOT.id}/cancel"] = lambda gate, order: gate.tell(order.task_id, "canceled", seq=2)
        moved = await house.call(ALICE, "task.cancel", {"task_id": made["task_id"], "reason": "enough"})
        assert moved["status"] == "canceled"
        assert house.gate.cancels == [made["task_id"]]
        assert (await house.get(ALICE, made["task_id"]))["reason"] == "enough"


async def test_cancel_tells_the_truth_when_the_device_never_confirms(tmp_path: Path) -> None:
    async with world(tmp_path, ROBOT) as house:
        made = await house.create(ALICE, ROBOT.aid, "kitchen")
        house.gate.tell(made["task_id"], "working", seq=1)
        await house.rest()
        asked = asyncio.ensure_future(house.call(ALICE, "task.cancel", {"task_id": made["task_id"]}))
        while not house.gate.cancels:
            await asyncio.sleep(0.001)
        await house.clock.pass_(11 * SECOND, turns=50)
        await house.rest()
        assert (await asked)["status"] == "canceled"
        whole = await house.get(ALICE, made["task_id"])
        assert whole["reason"] == "stop was sent, the device did not confirm it"


async def test_a_command_that_cannot_be_taken_back_is_not_cancelable(tmp_path: Path) -> None:
    async with world(tmp_path, BELL) as house:
        made = await house.create(ALICE, BELL.aid, "press")
        with pytest.raises(TaskNotCancelable):
            await house.call(ALICE, "task.cancel", {"task_id": made["task_id"]})


async def test_a_device_asks_and_hears_the_answer(tmp_path: Path) -> None:
    async with world(tmp_path, ROBOT) as house:
        made = await house.create(ALICE, ROBOT.aid, "kitchen")
        house.gate.tell(made["task_id"], "need_input", seq=1, message=b'[{"kind":"text","text":"which floor?"}]')
        whole = await finished(house, ALICE, made["task_id"])
        assert whole["status"] == "input_required"
        assert whole["messages"][0]["content"] == "which floor?"
        assert whole["messages"][0]["from"] == ROBOT.aid
        told = {"task_id": made["task_id"], "input": {"type": "text", "content": "first"}}
        assert (await house.call(ALICE, "task.send_input", told))["status"] == "working"
        assert house.gate.answers == [(made["task_id"], b'[{"kind":"text","text":"first"}]')]


async def test_reports_that_nobody_waits_for_change_nothing_and_are_counted(tmp_path: Path) -> None:
    async with world(tmp_path, ROBOT, LAMP) as house:
        made = await house.create(ALICE, ROBOT.aid, "kitchen")
        house.gate.tell("0" * 26, "working", device="robot")
        house.gate.tell(made["task_id"], "completed", device="lamp")
        house.gate.tell(made["task_id"], "completed", device="robot", seq=1)
        house.gate.tell(made["task_id"], "failed", device="robot", seq=2)
        assert (await finished(house, ALICE, made["task_id"]))["status"] == "completed"
        lost = await house.node.read(ledger.recent)
        assert sorted((gap.reason, gap.who) for gap in lost) == [
            ("report after the end", "robot"),
            ("report by another device", "lamp"),
            ("report for an unknown task", "robot"),
        ]
        assert house.gate.failures == []


async def test_a_report_that_cannot_be_read_is_an_error_for_the_gate(tmp_path: Path) -> None:
    async with world(tmp_path, ROBOT) as house:
        made = await house.create(ALICE, ROBOT.aid, "kitchen")
        house.gate.tell(made["task_id"], "sleeping")
        house.gate.tell(made["task_id"], "queued")
        house.gate.tell(made["task_id"], "working", message=b"{")
        assert (await finished(house, ALICE, made["task_id"]))["status"] == "submitted"
        assert len(house.gate.failures) == 3


async def test_a_device_that_talks_without_end_fails_its_task(tmp_path: Path) -> None:
    async with world(tmp_path, ROBOT, limits={"task.messages": 3}) as house:
        made = await house.create(ALICE, ROBOT.aid, "kitchen")
        for seq in range(1, 5):
            house.gate.tell(made["task_id"], "working", seq=seq, message=b'["still at it"]')
        whole = await finished(house, ALICE, made["task_id"])
        assert (whole["status"], whole["reason"]) == ("failed", "too many messages")


# After a restart.


async def test_after_a_crash_what_may_be_sent_twice_is_and_the_rest_ends_unknown(tmp_path: Path) -> None:
    clock = Boots()
    async with world(tmp_path, LAMP, BELL, ROBOT, THERMOMETER, clock=clock) as house:
        ids = {
            one.id: (await house.create(ALICE, one.aid, text))["task_id"]
            for one, text in ((LAMP, "on"), (BELL, "press"), (ROBOT, "kitchen"), (THERMOMETER, "read"))
        }
        house.gate.tell(ids[ROBOT.id], "working", seq=1)
    clock.reboot()
    async with world(tmp_path, LAMP, BELL, ROBOT, THERMOMETER, clock=clock) as house:
        sent = {order.skill: (order.task_id, order.again) for order in house.gate.orders}
        assert sent == {one.id: (ids[one.id], True) for one in (LAMP, ROBOT, THERMOMETER)}
        whole = await house.get(ALICE, ids[BELL.id])
        assert (whole["status"], whole["reason"]) == ("failed", "outcome_unknown")


async def test_after_a_restart_a_kept_task_goes_to_a_device_that_is_there(tmp_path: Path) -> None:
    clock, asleep = Boots(), Gate(LAMP)
    asleep.put(LAMP.id, online=False)
    async with world(tmp_path, clock=clock, gate=asleep) as house:
        await house.create(ALICE, LAMP.aid, "on")
    clock.reboot()
    async with world(tmp_path, LAMP, clock=clock) as house:
        assert [(order.verb, order.again) for order in house.gate.orders] == [("on", False)]


async def test_after_a_crash_a_kept_task_waits_on_and_deadlines_hold(tmp_path: Path) -> None:
    clock = Boots()
    asleep = Gate(ROBOT)
    asleep.put(ROBOT.id, online=False)
    async with world(tmp_path, clock=clock, gate=asleep, agent_patience=Patience(work=600 * SECOND)) as house:
        kept = (await house.create(ALICE, ROBOT.aid, "kitchen"))["task_id"]
        other = await between(house)
        clock.advance(400 * SECOND)
    still = Gate(ROBOT)
    still.put(ROBOT.id, online=False)
    clock.reboot()
    async with world(tmp_path, clock=clock, gate=still) as house:
        house.hub.publish(Event("device", ROBOT.device, 1, "device.online"))
        await house.rest()
        assert [(order.task_id, order.again) for order in still.orders] == [(kept, False)]
        assert (await house.get(ALICE, other))["status"] == "submitted"
        assert (await house.get(ALICE, other))["created_at"] < (await house.get(ALICE, kept))["updated_at"]
        await house.clock.pass_(200 * SECOND)
        await house.rest()
        assert (await house.get(ALICE, other))["status"] == "canceled"


async def test_finished_tasks_age_out_after_thirty_days(tmp_path: Path) -> None:
    async with world(tmp_path) as house:
        old = await between(house)
        await house.call(ALICE, "task.cancel", {"task_id": old})
        await pass_hours(house, 3)
        young = await between(house)
        await house.call(ALICE, "task.cancel", {"task_id": young})
        house.clock.advance(30 * 86_400 * SECOND - 3 * 3600 * SECOND)
        await house.rest()
        await pass_hours(house, 2)
        with pytest.raises(TaskNotFound):
            await house.get(ALICE, old)
        assert (await house.get(ALICE, young))["status"] == "canceled"
        assert [item["task_id"] for item in (await house.call(BOB, "task.list"))["items"]] == [young]


async def pass_hours(house: World, hours: int) -> None:
    for _ in range(hours):
        house.clock.advance(3600 * SECOND)
        await house.rest()


async def test_a_deadline_waits_while_the_disk_is_full(tmp_path: Path) -> None:
    async with world(tmp_path, agent_patience=Patience(work=60 * SECOND)) as house:
        task_id = await between(house)
        house.clock.advance(59 * SECOND)
        await room(house, 1)
        with pytest.raises(StorageFull):
            await house.node.commit(lambda unit: unit.append("filler", "", [b"x" * 50_000]))
        house.clock.advance(2 * SECOND)
        await house.rest()
        assert (await house.get(ALICE, task_id))["status"] == "submitted"
        await room(house, 100_000)
        house.clock.advance(10 * SECOND)
        await house.node.ping()
        house.clock.advance(30 * SECOND)
        await house.rest()
        assert (await house.get(ALICE, task_id))["status"] == "canceled"


async def room(house: World, pages: int) -> None:
    """Give the file room for so many pages; never less than it has."""
    done = asyncio.Event()
    house.node.control(
        lambda writer: writer.conn.execute(f"PRAGMA max_page_count = {pages}"), lambda result: done.set()
    )
    await done.wait()


async def test_a_shared_task_may_be_read_by_the_parties_of_its_tree(tmp_path: Path) -> None:
    async with world(tmp_path) as house:
        root = await between(house, visibility="shared")

        def delegate(unit: Unit) -> None:
            child = Task(id="child", dialect="aun", owner=BOB.aid, assignee=CAROL.aid, root=root, parent=root)
            tasks.save(unit, None, child, [("state", b"{}")])

        await house.node.commit(delegate)
        assert (await house.get(CAROL, root))["visibility"] == "shared"
        with pytest.raises(TaskAccessDenied):
            await house.call(CAROL, "task.accept", {"task_id": root})


async def test_ids_of_callers_are_printable_and_short(tmp_path: Path) -> None:
    async with world(tmp_path) as house:
        for bad in ("x" * 257, "a\nb"):
            with pytest.raises(InvalidParams):
                await between(house, context_id=bad)


async def test_devices_may_report_loosely(tmp_path: Path) -> None:
    async with world(tmp_path, ROBOT) as house:
        made = await house.create(ALICE, ROBOT.aid, "kitchen")
        house.gate.tell(made["task_id"], "working", message=b"[]")
        house.gate.tell(made["task_id"], "completed", artifact=b'["done"]')
        whole = await finished(house, ALICE, made["task_id"])
        assert (whole["status"], whole["messages"]) == ("completed", [])
        assert whole["artifacts"] == [{"id": "1", "type": "text", "content": "done"}]


# The owner's shell.


async def test_a_skill_call_waits_for_the_answer(tmp_path: Path) -> None:
    async with world(tmp_path, THERMOMETER, DOOR) as house:
        house.gate.acts[THERMOMETER.id] = reads
        params = {"skill": THERMOMETER.id, "params": {"value": "read"}}
        answer = await house.call(OPERATOR, "skill.call", params, surface="edge")
        assert (answer["state"], answer["value"], answer["text"]) == ("completed", 21.5, "21.5")
        house.gate.acts[DOOR.id] = lambda gate, order: gate.tell(order.task_id, "completed")
        answer = await house.call(OPERATOR, "skill.call", {"skill": DOOR.id, "params": {"value": "unlock"}}, "edge")
        assert answer["state"] == "completed"
        assert house.gate.orders[-1].verb == "unlock"


async def test_a_skill_call_that_takes_too_long_says_where_it_stands(tmp_path: Path) -> None:
    async with world(tmp_path, LAMP) as house:
        params = {"skill": LAMP.id, "params": {"value": "on"}, "timeout_s": 0}
        answer = await house.call(OPERATOR, "skill.call", params, surface="edge")
        assert answer["state"] == "queued"
        with pytest.raises(TaskNotFound):
            await house.get(ALICE, answer["task_id"])
        assert (await house.get(OPERATOR, answer["task_id"]))["owner"] == "operator"


async def test_a_task_whose_row_is_damaged_is_declared_lost_and_keeps_nothing_from_starting(tmp_path: Path) -> None:
    clock = Boots()
    async with world(tmp_path, ROBOT, clock=clock) as house:
        broken, kept = [(await house.create(ALICE, ROBOT.aid, "kitchen"))["task_id"] for _ in range(2)]
        await house.node.commit(lambda unit: unit.run("UPDATE task SET head = x'7b' WHERE id = ?", (broken,)))
        assert [one["task_id"] for one in (await house.call(ALICE, "task.list"))["items"]] == [kept]
    clock.reboot()
    async with world(tmp_path, ROBOT, clock=clock) as house:
        assert [order.task_id for order in house.gate.orders] == [kept]
        assert [(drop.log, drop.reason, drop.count) for drop in await house.node.read(ledger.drops)] == [
            ("task", "unreadable", 1)
        ]
        with pytest.raises(TaskNotFound):
            await house.get(ALICE, broken)
