from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from edge.contract.time import SECOND
from edge.contract.wire import dumps
from edge.protocol.urls import Names
from edge.transports.http.a2a import A2A, About
from tests.support.sessions import ISSUER, House, gateway
from tests.support.tasks import ALICE, BELL, BOB, DIMMER, DOOR, LAMP, ROBOT, THERMOMETER, World, reads, skill, world

GOOD = {"authorization": "Bearer good"}


class Site:
    """A2A on a real socket, in front of a task service with scripted devices."""

    def __init__(self, house: House, tasks: World) -> None:
        self.house, self.tasks = house, tasks

    async def http(
        self, method: str, path: str, body: bytes = b"", host: str = "localhost", **headers: str
    ) -> tuple[int, dict[str, str], bytes]:
        """One request on a connection of its own: status, headers, body."""
        reader, writer = await asyncio.open_connection(*self.house.listener.address[:2])
        lines = [f"{method} {path} HTTP/1.1", f"Host: {host}", "Connection: close", f"Content-Length: {len(body)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        writer.write("\r\n".join([*lines, "", ""]).encode() + body)
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        head, _, content = answer.partition(b"\r\n\r\n")
        first, *rest = head.decode().split("\r\n")
        found = dict(line.lower().split(": ", 1) for line in rest)
        return int(first.split()[1]), found, content

    async def post(self, body: bytes, path: str = "/a2a", host: str = "localhost") -> Any:
        """POST with a good token; the JSON of a 200."""
        code, _, content = await self.http("POST", path, body, host, **GOOD)
        assert code == 200, (code, content)
        return json.loads(content)

    async def rpc(self, method: str, params: Any, key: Any = 1, host: str = "localhost") -> Any:
        """A JSON-RPC call; the whole answer."""
        body = {"jsonrpc": "2.0", "id": key, "method": method, "params": params}
        return await self.post(dumps(body), host=host)

    async def say(self, text: str, host: str = "localhost", blocking: bool | None = False, **message: Any) -> Any:
        """message/send with a text; the result."""
        said = {"role": "user", "messageId": "m", "parts": [{"kind": "text", "text": text}], **message}
        configuration = {} if blocking is None else {"blocking": blocking}
        answer = await self.rpc("message/send", {"message": said, "configuration": configuration}, host=host)
        return answer.get("result", answer)

    async def settle(self) -> None:
        """Let the devices' reports reach the disk."""
        await self.tasks.rest()


@asynccontextmanager
async def site(folder: Path, *skills: Any, secured: bool = True, **more: Any) -> AsyncIterator[Site]:
    """A2A beside the routes of the gateway."""
    insecure = more.pop("insecure_local", False)
    limits = more.pop("http_limits", None)
    names = Names(issuer=ISSUER, public=more.pop("public", ()), http="http://127.0.0.1:9010")
    async with world(folder, *skills, **more) as tasks:
        about = About(issuer=ISSUER, version="9.9", secured=secured)
        routes = A2A(tasks.dispatcher, tasks.gate.skills, tasks.clock, about, lambda: names).routes()
        async with gateway(routes=routes, clock=tasks.clock, insecure_local=insecure, limits=limits) as house:
            yield Site(house, tasks)


# The card.


@pytest.mark.seed("S2-022")
async def test_the_card_is_at_both_well_known_paths(tmp_path: Path) -> None:
    async with site(tmp_path, LAMP, THERMOMETER) as here:
        code, headers, body = await here.http("GET", "/.well-known/agent-card.json")
        assert (code, headers["content-type"]) == (200, "application/json")
        card = json.loads(body)
        assert card["url"] == "http://localhost/a2a"
        assert card["version"] == "9.9"
        assert [one["id"] for one in card["skills"]] == [LAMP.id, THERMOMETER.id]
        early = json.loads((await here.http("GET", "/.well-known/agent.json"))[2])
        assert early.pop("authentication") == {"schemes": ["bearer"]}
        assert early == card


async def test_a_card_names_the_public_url_of_the_node_whatever_the_caller_used(tmp_path: Path) -> None:
    async with site(tmp_path, LAMP, THERMOMETER, public=("https://box.example.org:8443/edge",)) as here:
        card = json.loads((await here.http("GET", "/.well-known/agent-card.json"))[2])
        assert card["url"] == "https://box.example.org:8443/edge/a2a"
        assert [one["url"] for one in card["supportedInterfaces"]] == [card["url"]]
        assert [one["url"] for one in card["additionalInterfaces"]] == [card["url"]]
        host = THERMOMETER.aid
        device = json.loads((await here.http("GET", "/.well-known/agent-card.json", host=host))[2])
        assert device["url"] == f"https://{host}:8443/a2a"


async def test_a_card_is_not_sent_again_until_it_changes(tmp_path: Path) -> None:
    async with site(tmp_path, LAMP) as here:
        _, first, _ = await here.http("GET", "/.well-known/agent-card.json")
        assert first["cache-control"] == "public, max-age=5"
        assert "a2a-version" in first["vary"]
        await here.tasks.clock.pass_(100 * SECOND)
        for known in (first["etag"], f'"other", {first["etag"]}', f"W/{first['etag']}", "*"):
            code, headers, body = await here.http("GET", "/.well-known/agent-card.json", if_none_match=known)
            assert (code, headers["etag"], headers["last-modified"], body) == (
                304,
                first["etag"],
                first["last-modified"],
                b"",
            )
        here.tasks.gate.known[DIMMER.id] = DIMMER
        code, headers, _ = await here.http("GET", "/.well-known/agent-card.json", if_none_match=first["etag"])
        assert code == 200
        assert headers["last-modified"] > first["last-modified"]
        assert (await here.http("HEAD", "/.well-known/agent-card.json"))[2] == b""


async def test_a_value_does_not_change_the_card(tmp_path: Path) -> None:
    async with site(tmp_path, THERMOMETER) as here:
        first = (await here.http("GET", "/.well-known/agent-card.json"))[1]["etag"]
        here.tasks.gate.put(THERMOMETER.id, value=30.0, at=1, online=False)
        assert (await here.http("GET", "/.well-known/agent-card.json"))[1]["etag"] == first


async def test_cards_of_many_hosts_are_remembered_within_bounds(tmp_path: Path) -> None:
    async with site(tmp_path, LAMP) as here:
        for number in range(70):
            await here.http("GET", "/.well-known/agent-card.json", host=f"h{number}.{ISSUER}")
        assert (await here.http("GET", "/.well-known/agent-card.json"))[0] == 200


async def test_a_device_that_is_addressed_by_its_name_shows_its_own_card_and_takes_its_own_tasks(
    tmp_path: Path,
) -> None:
    async with site(tmp_path, LAMP, THERMOMETER) as here:
        here.tasks.gate.acts[THERMOMETER.id] = reads
        host = THERMOMETER.aid
        card = json.loads((await here.http("GET", "/.well-known/agent-card.json", host=host))[2])
        assert (card["name"], card["url"]) == ("thermo", f"http://{host}/a2a")
        assert [one["id"] for one in card["skills"]] == [THERMOMETER.id]
        task = await here.say("how warm?", host=host)
        await here.settle()
        done = (await here.rpc("tasks/get", {"id": task["id"]}))["result"]
        assert done["artifacts"][0]["parts"][0] == {"kind": "text", "text": "21.5"}
        assert (await here.http("GET", "/.well-known/agent-card.json", host=f"d-gone.{ISSUER}"))[0] == 404


# Messages.


@pytest.mark.seed("S2-010", "S2-028", "S2-002")
async def test_a_message_is_answered_with_the_reading_as_an_artifact(tmp_path: Path) -> None:
    async with site(tmp_path, THERMOMETER) as here:
        here.tasks.gate.acts[THERMOMETER.id] = reads
        task = await here.say("thermo temperature read", blocking=True)
        assert task["kind"] == "task"
        assert task["status"]["state"] == "completed"
        text, data = task["artifacts"][0]["parts"]
        assert (text["text"], data["data"]["value"]) == ("21.5", 21.5)
        assert task["history"][0]["messageId"] == "m"
        assert task["contextId"]
        for path in ("/", "/a2a/"):
            got = await here.post(
                dumps({"jsonrpc": "2.0", "id": "x", "method": "tasks/get", "params": {"id": task["id"]}}), path
            )
            assert (got["id"], got["result"]) == ("x", task)


@pytest.mark.seed("S2-009")
async def test_blocking_waits_four_seconds_at_most_and_without_a_word_a_moment(tmp_path: Path) -> None:
    async with site(tmp_path, ROBOT) as here:
        for blocking, wait_ms in ((True, 4000), (None, 250)):
            before = len(here.tasks.gate.orders)
            asked = asyncio.ensure_future(here.say("robot kitchen", blocking=blocking))
            while len(here.tasks.gate.orders) == before:
                await asyncio.sleep(0.001)
            await here.settle()
            await here.tasks.clock.awaited(here.tasks.clock.mono_us + wait_ms * 1000)
            here.tasks.clock.advance(wait_ms * 1000 - 1000)
            await asyncio.sleep(0.02)
            assert not asked.done()
            here.tasks.clock.advance(2000)
            assert (await asked)["status"]["state"] == "submitted"
        assert (await here.say("robot kitchen", blocking=False))["status"]["state"] == "submitted"


async def test_blocking_ends_when_the_device_asks_and_the_answer_reaches_it(tmp_path: Path) -> None:
    async with site(tmp_path, ROBOT) as here:
        here.tasks.gate.acts[ROBOT.id] = lambda gate, order: gate.tell(
            order.task_id, "need_input", seq=1, message=b'[{"kind":"text","text":"which room?"}]'
        )
        task = await here.say("robot clean", blocking=True)
        assert task["status"]["state"] == "input-required"
        assert task["status"]["message"]["parts"] == [{"kind": "text", "text": "which room?"}]
        again = await here.say("the kitchen", taskId=task["id"], messageId="m2")
        assert (again["id"], again["contextId"]) == (task["id"], task["contextId"])
        assert here.tasks.gate.answers == [(task["id"], b'[{"kind":"text","text":"the kitchen"}]')]
        assert [one["messageId"] for one in again["history"]][::2] == ["m", "m2"]


async def test_a_message_that_names_no_skill_is_asked_which(tmp_path: Path) -> None:
    async with site(tmp_path, LAMP, DIMMER) as here:
        task = await here.say("make it cosy", blocking=True)
        assert task["status"]["state"] == "input-required"
        text, data = task["status"]["message"]["parts"]
        assert LAMP.id in text["text"]
        assert [one["id"] for one in data["data"]["skills"]] == [DIMMER.id, LAMP.id]
        await here.say("lamp power on", taskId=task["id"])
        assert [order.verb for order in here.tasks.gate.orders] == ["on"]


async def test_all_parts_and_metadata_reach_the_device(tmp_path: Path) -> None:
    async with site(tmp_path, ROBOT) as here:
        parts = [
            {"kind": "text", "text": "robot"},
            {"kind": "data", "data": {"skill": ROBOT.id, "params": {"room": "kitchen"}}},
            {"kind": "file", "file": {"uri": "http://x/map.png", "mimeType": "image/png"}},
        ]
        task = await here.say("", parts=parts, metadata={"trace": 7}, messageId="m9", contextId="ctx-1")
        [order] = here.tasks.gate.orders
        assert msgspec.json.decode(order.parts) == parts
        assert msgspec.json.decode(order.metadata) == {"trace": 7}
        assert msgspec.json.decode(order.params) == {"room": "kitchen"}
        assert (order.message_id, order.context_id, task["contextId"]) == ("m9", "ctx-1", "ctx-1")


async def test_a_context_goes_on_in_a_new_task_and_does_not_fit_a_foreign_one(tmp_path: Path) -> None:
    async with site(tmp_path, LAMP) as here:
        first = await here.say("lamp on")
        second = await here.say("lamp off", contextId=first["contextId"], messageId="m2")
        assert second["contextId"] == first["contextId"]
        assert second["id"] != first["id"]
        wrong = await here.say("more", taskId=first["id"], contextId="another")
        assert wrong["error"]["code"] == -32602


@pytest.mark.seed("S2-024")
async def test_what_the_client_names_must_exist(tmp_path: Path) -> None:
    async with site(tmp_path, LAMP) as here:
        for method, params in (
            ("tasks/get", {"id": "nope"}),
            ("tasks/cancel", {"id": "nope"}),
            (
                "message/send",
                {
                    "message": {
                        "role": "user",
                        "messageId": "m",
                        "taskId": "nope",
                        "parts": [{"kind": "text", "text": "x"}],
                    }
                },
            ),
        ):
            assert (await here.rpc(method, params))["error"]["code"] == -32001
        unknown = await here.say("", parts=[{"kind": "data", "data": {"skill": "lamp.colour"}}])
        assert unknown["error"]["code"] == -32602
        assert unknown["error"]["data"]["skills"] == [LAMP.id]


async def test_another_callers_task_is_not_found(tmp_path: Path) -> None:
    async with site(tmp_path, LAMP) as here:
        task = await here.tasks.create(BOB, LAMP.aid, "on")
        assert (await here.rpc("tasks/get", {"id": task["task_id"]}))["error"]["code"] == -32001
        mine = await here.tasks.create(ALICE, LAMP.aid, "on")
        assert (await here.rpc("tasks/get", {"id": mine["task_id"]}))["result"]["status"]["state"] == "submitted"


@pytest.mark.seed("S2-015")
async def test_cancel_answers_with_the_canceled_task_and_refuses_what_is_over(tmp_path: Path) -> None:
    async with site(tmp_path, ROBOT, BELL) as here:
        here.tasks.gate.acts[f"{ROBOT.id}/cancel"] = lambda gate, order: gate.tell(order.task_id, "canceled")
        task = await here.say("robot kitchen")
        gone = (await here.rpc("tasks/cancel", {"id": task["id"]}))["result"]
        assert (gone["id"], gone["status"]["state"]) == (task["id"], "canceled")
        assert (await here.rpc("tasks/cancel", {"id": task["id"]}))["error"]["code"] == -32002
        over = await here.say("more", taskId=task["id"])
        assert over["error"]["code"] == -32602
        rung = await here.say("bell press")
        assert (await here.rpc("tasks/cancel", {"id": rung["id"]}))["error"]["code"] == -32002


@pytest.mark.seed("S2-007")
async def test_history_is_as_long_as_asked(tmp_path: Path) -> None:
    async with site(tmp_path, ROBOT) as here:
        task = await here.say("robot kitchen")
        await here.say("and the hall", taskId=task["id"], messageId="m2")
        counts = []
        for length in (None, 0, 1, 5):
            shown = (await here.rpc("tasks/get", {"id": task["id"], "historyLength": length}))["result"]
            counts.append([one["messageId"] for one in shown.get("history", [])])
        assert counts == [["m", "m2"], [], ["m2"], ["m", "m2"]]
        assert (await here.rpc("tasks/get", {"id": task["id"], "historyLength": -1}))["error"]["code"] == -32602


async def test_only_the_same_bytes_are_the_same_request(tmp_path: Path) -> None:
    async with site(tmp_path, BELL) as here:
        said = {"role": "user", "messageId": "m", "parts": [{"kind": "text", "text": "bell press"}]}
        body = dumps({"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": said}})
        body = body.replace(b'"message":', b'"configuration":{"blocking":false},"message":')
        first, again = await here.post(body), await here.post(body)
        assert again == first
        assert len(here.tasks.gate.orders) == 1
        other = await here.post(body.replace(b'"id":1', b'"id":2'))
        assert other["result"]["id"] != first["result"]["id"]
        assert len(here.tasks.gate.orders) == 2
        both = await asyncio.gather(*(here.post(body.replace(b'"id":1', b'"id":3')) for _ in range(3)))
        assert len({one["result"]["id"] for one in both}) == 1
        assert len(here.tasks.gate.orders) == 3
        at_device = await here.post(body, host=BELL.aid)
        assert at_device["result"]["id"] != first["result"]["id"]
        await here.tasks.clock.pass_(601 * SECOND)
        assert (await here.post(body))["result"]["id"] != first["result"]["id"]


# The envelope.


@pytest.mark.seed("S2-023")
@pytest.mark.parametrize(
    ("body", "code", "key"),
    [
        (b"{", -32700, None),
        (b'{"jsonrpc":"2.0","id":1,"id":2,"method":"x"}', -32700, None),
        (b'{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"id":9007199254740993}}', -32700, None),
        (b'"\xff"', -32700, None),
        (b"[" * 100_000, -32700, None),
        (b"", -32700, None),
        (b"[]", -32600, None),
        (b'[{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"id":"x"}}]', -32600, None),
        (b"5", -32600, None),
        (b'{"jsonrpc":"2.0","id":1,"result":{}}', -32600, None),
        (b'{"jsonrpc":"2.0","id":true,"method":"tasks/get"}', -32600, None),
        (b'{"jsonrpc":"2.0","id":1.5,"method":"tasks/get"}', -32600, None),
        (b'{"jsonrpc":"1.0","id":1,"method":"tasks/get"}', -32600, 1),
        (b'{"id":1,"method":"tasks/get"}', -32600, 1),
        (b'{"jsonrpc":"2.0","id":1,"method":7}', -32600, 1),
        (b'{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":[1]}', -32602, 1),
        (b'{"jsonrpc":"2.0","id":1,"method":"tasks/get"}', -32602, 1),
        (b'{"jsonrpc":"2.0","id":"a","method":"nope","params":{}}', -32601, "a"),
        (b'{"jsonrpc":"2.0","id":1,"method":"message/stream","params":{}}', -32004, 1),
        (b'{"jsonrpc":"2.0","id":1,"method":"tasks/pushNotificationConfig/set","params":{}}', -32003, 1),
        (b'{"jsonrpc":"2.0","id":1,"method":"agent/getAuthenticatedExtendedCard"}', -32007, 1),
        (b'{"jsonrpc":"2.0","method":"tasks/get","params":{"id":"x"}}', -32001, None),
    ],
)
async def test_whatever_is_wrong_is_told_in_the_envelope(tmp_path: Path, body: bytes, code: int, key: Any) -> None:
    async with site(tmp_path) as here:
        answer = await here.post(body)
        assert (answer["jsonrpc"], answer["error"]["code"], answer["id"]) == ("2.0", code, key)


@pytest.mark.limit("a2a.body")
async def test_a_body_over_the_limit_is_refused(tmp_path: Path) -> None:
    async with site(tmp_path, http_limits={"a2a.body": 200}) as here:
        body = b'{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"id":"x"}}'
        assert (await here.post(body + b" " * (200 - len(body))))["error"]["code"] == -32001
        assert (await here.post(body + b" " * (201 - len(body))))["error"]["code"] == -32600
        assert here.house.limits.hits["a2a.body"] == 1


# Who may.


async def test_nobody_gets_in_without_a_token_that_is_good(tmp_path: Path) -> None:
    async with site(tmp_path, LAMP) as here:
        body = b'{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"id":"x"}}'
        code, headers, _ = await here.http("POST", "/a2a", body)
        assert (code, headers["www-authenticate"]) == (401, "bearer")
        assert (await here.http("POST", "/a2a", body, authorization="Bearer bad"))[0] == 401
        assert (await here.http("GET", "/.well-known/agent-card.json"))[0] == 200


async def test_a_risky_command_without_a_grant_is_403_and_says_what_to_do(tmp_path: Path) -> None:
    async with site(tmp_path, DOOR) as here:
        said = {"role": "user", "messageId": "m", "parts": [{"kind": "text", "text": "door unlock"}]}
        body = dumps({"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": said}})
        code, _, content = await here.http("POST", "/a2a", body, **GOOD)
        assert code == 403
        assert "aun-edge cap grant door.lock alice.edge.test" in json.loads(content)["message"]
        assert here.tasks.gate.orders == []


async def test_too_many_tasks_are_429(tmp_path: Path) -> None:
    async with site(tmp_path, LAMP, limits={"task.live": 1}) as here:
        await here.say("lamp on")
        said = {"role": "user", "messageId": "m", "parts": [{"kind": "text", "text": "lamp off"}]}
        body = dumps({"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": {"message": said}})
        assert (await here.http("POST", "/a2a", body, **GOOD))[0] == 429


async def test_the_local_caller_of_an_insecure_node_needs_no_token_and_may_nothing_risky(tmp_path: Path) -> None:
    shy = skill("gate", "lock", "lock", verbs=("unlock",), writable=True, risk="high")
    async with site(tmp_path, LAMP, shy, secured=False, insecure_local=True) as here:
        card = json.loads((await here.http("GET", "/.well-known/agent-card.json"))[2])
        assert "security" not in card
        for text, expected in (("lamp on", 200), ("gate unlock", 403)):
            said = {"role": "user", "messageId": "m", "parts": [{"kind": "text", "text": text}]}
            configuration = {"blocking": False}
            params = {"message": said, "configuration": configuration}
            body = dumps({"jsonrpc": "2.0", "id": 1, "method": "message/send", "params": params})
            assert (await here.http("POST", "/a2a", body))[0] == expected
