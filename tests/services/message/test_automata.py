"""Messages to device and service AIDs (settled G19)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from edge.contract.capability import Skill
from edge.contract.principal import Principal
from edge.contract.time import SECOND
from edge.services.message.automata import RETRY_US
from edge.services.task import TaskService
from tests.services.message.envelopes import envelope
from tests.support.messaging import ALICE, BOB, ISSUER, Client, Post, post_office
from tests.support.store import fill_soon
from tests.support.tasks import DOOR, LAMP, ROBOT, THERMOMETER, Gate, Grants, reads

THERMO, LAMP_AID, DOOR_AID = (f"d-{slug}.{ISSUER}" for slug in ("thermo", "lamp", "door"))
STORAGE = f"storage.{ISSUER}"


@asynccontextmanager
async def house(
    folder: Path, *skills: Skill, gate: Gate | None = None, **more: Any
) -> AsyncIterator[tuple[Post, Gate]]:
    """A post office whose devices have tasks."""
    gate = gate or Gate(*skills)
    made: list[TaskService] = []

    def services(post: Post) -> list[TaskService]:
        post.aids |= {skill.aid for skill in gate.skills()} | {STORAGE}
        made.append(
            TaskService(
                post.node,
                post.clock,
                gate,
                Grants(),
                post.hub,
                issuer=ISSUER,
                known=post.known,
                limits=post.limits,
            )
        )
        gate.sink = made[0]
        return made

    async with post_office(folder, gate=gate, services=services, **more) as post:
        await made[0].resume()
        try:
            yield post, gate
        finally:
            await post.rest()
            made[0].close()


async def answers(client: Client) -> list[dict[str, Any]]:
    events = await client.events("message.received")
    return [{"from": event["from"], **event["payload"]} for event in events]


@pytest.mark.parametrize(
    "payload",
    [
        {"type": "text", "text": "read"},
        {"type": "text", "text": "thermo temperature"},
        {"text": "temperature read"},
        {"skill": "thermo.temperature"},
        {"type": "json", "skill": "thermo.temperature", "params": {}},
        {"type": "json", "kind": "skill", "data": {"skill": "thermo.temperature"}},
    ],
)
@pytest.mark.seed("S0-034")
async def test_a_thermometer_answers_with_its_value(tmp_path: Path, payload: dict[str, Any]) -> None:
    async with house(tmp_path, THERMOMETER) as (post, gate):
        gate.acts["thermo.temperature"] = reads
        alice = await post.connect(ALICE, "a1")
        await alice.send(THERMO, payload, message_id="m-1")
        [answer] = await answers(alice)
        assert answer == {
            **answer,
            "from": THERMO,
            "type": "text",
            "text": "21.5",
            "reply_to": "m-1",
            "auto": True,
            "status": "completed",
        }
        assert answer["artifacts"][0]["parts"][1]["data"]["value"] == 21.5
        assert [event["to"] for event in await alice.events("message.ack")] == [THERMO]


async def test_a_command_becomes_one_task_of_its_sender(tmp_path: Path) -> None:
    async with house(tmp_path, LAMP) as (post, gate):
        alice = await post.connect(ALICE, "a1")
        await alice.send(LAMP_AID, {"type": "text", "text": "on"}, message_id="m-1")
        assert await answers(alice) == []
        [order] = gate.orders
        assert (order.skill, order.verb) == ("lamp.power", "on")
        gate.tell(order.task_id, "completed", reason="")
        [answer] = await answers(alice)
        assert (answer["reply_to"], answer["status"], answer["task_id"]) == ("m-1", "completed", order.task_id)
        listed = await alice.call("task.list")
        assert [task["task_id"] for task in listed["items"]] == [order.task_id]


@pytest.mark.parametrize(
    "payload",
    [
        {"type": "text", "text": "sing me a song"},
        {"type": "image", "url": "https://example.org/x.png"},
        {"no": "type"},
        envelope(ALICE, LAMP_AID, [(LAMP_AID, "")]),
    ],
)
@pytest.mark.seed("S0-034")
async def test_what_is_not_understood_is_kept_and_answered_by_what_is(tmp_path: Path, payload: dict[str, Any]) -> None:
    async with house(tmp_path, THERMOMETER, LAMP) as (post, gate):
        alice = await post.connect(ALICE, "a1")
        sent = await alice.send(LAMP_AID, payload, message_id="m-1")
        assert sent["status"] in ("sent", "delivered")
        [answer] = await answers(alice)
        assert (answer["from"], answer["reply_to"], answer["auto"]) == (LAMP_AID, "m-1", True)
        assert "lamp.power" in answer["text"]
        assert "thermo.temperature" not in answer["text"]
        assert ("encrypted" in answer["text"]) == str(payload.get("type")).startswith("e2ee.")
        assert (await post.offline(LAMP_AID).call("message.pull"))["count"] == 1
        assert gate.orders == []


async def test_a_service_understands_every_skill_of_the_node(tmp_path: Path) -> None:
    async with house(tmp_path, THERMOMETER, LAMP) as (post, gate):
        gate.acts["thermo.temperature"] = reads
        alice = await post.connect(ALICE, "a1")
        await alice.send(STORAGE, {"type": "text", "text": "thermo temperature"})
        await alice.send(STORAGE, {"type": "text", "text": "hello"})
        value, usage = await answers(alice)
        assert (value["from"], value["text"]) == (STORAGE, "21.5")
        assert "lamp.power" in usage["text"]


async def test_automata_do_not_answer_each_other(tmp_path: Path) -> None:
    async with house(tmp_path, THERMOMETER, LAMP) as (post, _gate):
        alice = await post.connect(ALICE, "a1")
        await alice.send(LAMP_AID, {"type": "text", "text": "hello", "auto": True})
        await post.offline(THERMO).send(LAMP_AID, {"type": "text", "text": "hello"})
        assert await answers(alice) == []
        assert (await post.offline(THERMO).call("message.pull"))["count"] == 0
        assert (await post.offline(LAMP_AID).call("message.pull"))["count"] == 2


async def test_a_high_risk_command_is_refused_with_the_grant_it_needs(tmp_path: Path) -> None:
    async with house(tmp_path, DOOR) as (post, gate):
        alice = await post.connect(ALICE, "a1")
        await alice.send(DOOR_AID, {"type": "text", "text": "unlock"})
        [answer] = await answers(alice)
        assert "aun-edge cap grant door.lock" in answer["text"]
        assert gate.orders == []


async def test_an_unknown_skill_is_answered_by_those_that_exist(tmp_path: Path) -> None:
    async with house(tmp_path, LAMP) as (post, _gate):
        alice = await post.connect(ALICE, "a1")
        await alice.send(LAMP_AID, {"type": "json", "skill": "lamp.colour"})
        [answer] = await answers(alice)
        assert "lamp.power" in answer["text"]


async def test_the_scopes_of_the_sender_count(tmp_path: Path) -> None:
    async with house(tmp_path, LAMP) as (post, gate):
        alice = await post.connect(ALICE, "a1")
        kind = alice.who.kind
        alice.who = Principal(kind, ALICE, frozenset({"message:read", "message:write", "task:write"}), "aun", "a1")
        await alice.send(LAMP_AID, {"type": "text", "text": "on"})
        [answer] = await answers(alice)
        assert "cap:act" in answer["text"]
        assert gate.orders == []


async def test_what_arrived_before_a_stop_is_answered_after_it(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        post.aids.add(THERMO)
        await post.offline().send(THERMO, {"type": "text", "text": "read"}, message_id="m-1")
    gate = Gate(THERMOMETER)
    gate.acts["thermo.temperature"] = reads
    async with house(tmp_path, gate=gate) as (post, _):
        await post.rest()
        [row] = (await post.offline().call("message.pull"))["messages"]
        assert (row["from"], row["payload"]["text"], row["payload"]["reply_to"]) == (THERMO, "21.5", "m-1")
    async with house(tmp_path, gate=gate) as (post, _):
        await post.rest()
        assert (await post.offline().call("message.pull"))["count"] == 1


async def test_a_result_that_comes_after_a_restart_is_still_answered(tmp_path: Path) -> None:
    gate = Gate(ROBOT)
    robot = ROBOT.aid
    async with house(tmp_path, gate=gate) as (post, _):
        await post.offline().send(robot, {"type": "json", "skill": "robot.clean"}, message_id="m-1")
        await post.rest()
        [order] = gate.orders
    async with house(tmp_path, gate=gate) as (post, _):
        await post.rest()
        gate.tell(order.task_id, "completed", seq=9)
        await post.rest()
        replies = (await post.offline().call("message.pull"))["messages"]
        assert [row["payload"]["status"] for row in replies] == ["completed"]


async def test_a_device_that_asks_is_heard_and_answers_in_the_end(tmp_path: Path) -> None:
    async with house(tmp_path, ROBOT) as (post, gate):
        alice = await post.connect(ALICE, "a1")
        await alice.send(ROBOT.aid, {"type": "json", "skill": "robot.clean"}, message_id="m-1")
        await post.rest()
        [order] = gate.orders
        gate.tell(order.task_id, "need_input", seq=1, message=b'[{"kind":"text","text":"which room?"}]')
        await post.rest()
        gate.tell(order.task_id, "working", seq=2)
        gate.tell(order.task_id, "failed", seq=3, reason="stuck")
        await post.rest()
        found = [(answer["status"], answer["text"]) for answer in await answers(alice)]
        assert found == [("input_required", "which room?"), ("failed", "stuck")]


async def test_bob_is_no_automaton(tmp_path: Path) -> None:
    async with house(tmp_path, LAMP) as (post, _):
        alice = await post.connect(ALICE, "a1")
        await alice.send(BOB, {"type": "text", "text": "lamp on"})
        assert await answers(alice) == []


async def test_what_a_full_disk_kept_an_automaton_from_reading_is_read_once_there_is_room(tmp_path: Path) -> None:
    """Without a restart, and without another message."""
    async with post_office(tmp_path) as post:
        post.aids.add(THERMO)
        await post.offline(ALICE).send(THERMO, {"type": "text", "text": "read"}, message_id="m-1")
    clock, gate = post.clock, Gate(THERMOMETER)
    gate.acts["thermo.temperature"] = reads
    async with house(tmp_path, gate=gate, clock=clock, before=lambda post: fill_soon(post.node)) as (post, _):
        assert post.node.read_only
        alice = post.offline(ALICE)
        while post.node.read_only:
            await clock.pass_(SECOND)
            await post.node.ping()
        await clock.pass_(2 * RETRY_US)
        await post.rest()
        [answer] = (await alice.call("message.pull"))["messages"]
        assert answer["payload"]["reply_to"] == "m-1"


async def test_an_answer_that_a_full_disk_refused_is_given_once_there_is_room(tmp_path: Path) -> None:
    async with house(tmp_path, ROBOT) as (post, gate):
        alice = post.offline(ALICE)
        await alice.send(ROBOT.aid, {"type": "json", "skill": "robot.clean"}, message_id="m-1")
        await post.rest()
        [order] = gate.orders
        gate.tell(order.task_id, "completed", seq=9)
        fill_soon(post.node)
        await post.rest()
        assert post.node.read_only
        while post.node.read_only:
            await post.clock.pass_(SECOND)
            await post.node.ping()
        await post.clock.pass_(2 * RETRY_US)
        await post.rest()
        [answer] = (await alice.call("message.pull"))["messages"]
        assert answer["payload"]["status"] == "completed"
