"""Walks every AUN operation with calls that are well formed and wrong: a new operation is covered by existing.

Whatever is asked, there is one answer, it says nothing of the inside, and a refusal has changed nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec
import pytest

from edge.contract.errors import Conflict, EdgeError, Internal, InvalidParams, NotFound, NotPermitted
from edge.contract.op import Door, Op, Outcome
from edge.contract.principal import AGENT_SCOPES, Kind, Principal
from edge.contract.store import Unit
from edge.contract.wire import SAFE_INTEGER, dumps
from edge.node.life import Node
from tests.support.node import agent, running

FOREIGN = "somebody.aid.pub"
AIDS = {"aid", "to", "peer_aid", "sender_aid", "owner_aid", "requester_aid", "member_aid", "push_server_aid"}
"""Params that name one AID, whatever the operation."""
PLACES = {"device_id", "slot_id"}
CURSORS = {"after_seq", "before_seq", "seq", "up_to_seq", "ack_up_to_seq", "after_event_seq", "since_seq", "cursor"}
OF_A_TARGET = {"message.send"}
"""Operations whose `device_id` is the recipient's, not the caller's."""
LONG = "x" * 200_000
WITHOUT_END = {"message.send"}
"""Operations that may keep so much: the payload has a limit of its own."""
PATIENCE_S = 5.0


class Village:
    """A node with two agents; calls are made as Alice, on a device and a slot of hers."""

    def __init__(self, node: Node, alice: str, bob: str) -> None:
        self.node, self.bob = node, bob
        self.alice = Principal(Kind.AGENT, alice, AGENT_SCOPES, "aun", "dev-1", "default")

    def operations(self) -> list[tuple[Op, str]]:
        """Every operation that an agent reaches, with its first name."""
        found = [(op, op.wire["aun"][0]) for op in self.node.house.table if op.wire.get("aun")]
        return [(op, name) for op, name in found if self.alice.may(op.scope)]

    async def call(self, name: str, params: dict[str, Any]) -> Any:
        """The result, or the error."""
        dispatcher = self.node.house.dispatcher
        door = Door(channel="c-test", address="127.0.0.1")
        try:
            async with asyncio.timeout(PATIENCE_S):
                outcome: Outcome = await dispatcher.call("aun", name, dumps(params), self.alice, door=door)
        except EdgeError as error:
            return error
        return json.loads(dumps(outcome.result))

    def params(self, op: Op) -> dict[str, Any]:
        """What the operation asks for, each with a value of the right type that means something where it can."""
        known: dict[str, Any] = {
            **dict.fromkeys(AIDS, self.bob),
            "aids": [self.bob],
            "payload": {"type": "text", "text": "hi"},
            "context": {"type": "run", "id": "r-1"},
            "target": {"aid": self.bob},
            "deliver": {"method": "event/app.x", "params": {}},
        }
        fields = [field for field in msgspec.structs.fields(op.params) if field.required]
        return {one.encode_name: known.get(one.encode_name, filler(one.type)) for one in fields}

    async def state(self) -> str:
        """A fingerprint of everything that node.db holds."""

        def look(unit: Unit) -> str:
            digest = hashlib.sha256()
            for (name,) in unit.run("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"):
                digest.update(repr((name, sorted(unit.run(f"SELECT * FROM {name}"), key=repr))).encode())
            return digest.hexdigest()

        return await self.node.house.node.read(look)


@pytest.fixture
async def village(tmp_path: Path) -> AsyncIterator[Village]:
    async with running(tmp_path / "state", "limits.rate.auth=100000") as node:
        alice, bob = await agent(node, "alice"), await agent(node, "bobby")
        yield Village(node, alice.aid, bob.aid)


def filler(kind: Any) -> object:
    """A well-typed value without meaning."""
    if get_origin(kind) in (list, tuple):
        inner = get_args(kind)
        return [filler(inner[0])] if inner else []
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return {f.encode_name: filler(f.type) for f in msgspec.structs.fields(kind) if f.required}
    return {str: "x", int: 1, bool: True, float: 1.0}.get(kind, {})


def fields(op: Op, names: set[str]) -> list[str]:
    return [one.encode_name for one in msgspec.structs.fields(op.params) if one.encode_name in names]


def sayable(found: Any, name: str) -> None:
    """An answer, or a refusal that is for the peer."""
    assert not isinstance(found, Internal), name
    if isinstance(found, EdgeError):
        assert not any(word in found.message for word in ("Traceback", "sqlite", "msgspec", "site-packages")), name
        assert len(found.message) < 2_000, name


async def test_many_operations_are_walked(village: Village) -> None:
    assert len(village.operations()) > 40


async def test_a_call_on_behalf_of_another_device_or_slot_is_refused(village: Village) -> None:
    """M-6: identity comes from the connection; what repeats it must agree."""
    walked = 0
    for op, name in village.operations():
        if (
            name in OF_A_TARGET
            or not op.scope
            or not PLACES <= {one.encode_name for one in msgspec.structs.fields(op.params)}
        ):
            continue
        walked += 1
        for wrong in ({"device_id": "dev-2"}, {"slot_id": "elsewhere"}):
            before = await village.state()
            found = await village.call(name, village.params(op) | wrong)
            assert isinstance(found, NotPermitted | InvalidParams | NotFound), (name, found)
            assert await village.state() == before, name
        found = await village.call(name, village.params(op) | {"device_id": "dev-1", "slot_id": "default/x"})
        assert not (isinstance(found, NotPermitted) and "slot" in found.message), (name, found)
    assert walked >= 4


async def test_a_foreign_aid_is_merely_unknown_and_a_malformed_one_refused(village: Village) -> None:
    walked = 0
    for op, name in village.operations():
        for field in fields(op, AIDS):
            walked += 1
            before = await village.state()
            for aid in (FOREIGN, "no aid", "", "../../etc/passwd", "a" * 300 + ".edge.test", "\x00.edge.test"):
                found = await village.call(name, village.params(op) | {field: aid})
                sayable(found, name)
                if isinstance(found, EdgeError):
                    assert await village.state() == before, (name, aid)
                before = await village.state()
    assert walked >= 10


async def test_a_number_from_the_future_is_clamped_or_refused(village: Village) -> None:
    walked = 0
    for op, name in village.operations():
        for field in fields(op, CURSORS):
            if dict((one.encode_name, one.type) for one in msgspec.structs.fields(op.params))[field] is str:
                continue
            walked += 1
            for number in (SAFE_INTEGER, 1 << 52, -1, 0):
                found = await village.call(name, village.params(op) | {field: number})
                sayable(found, name)
                for key, value in found.items() if isinstance(found, dict) else ():
                    if key in ("ack_seq", "peer_ack_seq", "effective_ack_seq", "server_ack_seq"):
                        assert value == 0, (name, key, value)
    assert walked >= 5


async def test_a_cursor_that_was_acked_from_the_future_still_reads_what_comes(village: Village) -> None:
    await village.call("message.ack", {"seq": SAFE_INTEGER})
    bob = Principal(Kind.AGENT, village.bob, AGENT_SCOPES, "aun", "b1", "")
    sent = {"to": village.alice.aid, "payload": {"n": 1}}
    await village.node.house.dispatcher.call("aun", "message.send", dumps(sent), bob)
    page = await village.call("message.pull", {})
    assert [row["seq"] for row in page["messages"]] == [1]
    assert page["server_ack_seq"] == 0


async def test_a_key_that_comes_again_with_other_content_is_a_conflict(village: Village) -> None:
    walked = 0
    for op, name in village.operations():
        if not op.once:
            continue
        walked += 1
        params = village.params(op) | {op.once: "key-1"}
        first = await village.call(name, params)
        if isinstance(first, EdgeError):
            continue
        assert await village.call(name, params) == first
        before = await village.state()
        assert isinstance(await village.call(name, params | {"unknown": 1}), Conflict), name
        assert await village.state() == before, name
    assert walked >= 1


async def test_a_message_id_that_comes_again_is_one_message_whatever_it_says(village: Village) -> None:
    """M-1: by its rows, not by `once`: the second answer repeats the first."""
    params = {"to": village.bob, "message_id": "m-1", "payload": {"text": "one"}}
    first = await village.call("message.send", params)
    again = await village.call("message.send", params | {"payload": {"text": "two"}})
    assert (again["seq"], again["status"]) == (first["seq"], "duplicate")


async def test_texts_without_end_are_refused_or_forgotten(village: Village) -> None:
    """No text parameter of an operation brings 200 kB into the store."""
    walked = 0
    for op, name in village.operations():
        for one in msgspec.structs.fields(op.params):
            if one.type is not str or name in WITHOUT_END:
                continue
            walked += 1
            size = await _octets(village)
            sayable(await village.call(name, village.params(op) | {one.encode_name: LONG}), name)
            assert await _octets(village) - size < 100_000, (name, one.encode_name)
    assert walked >= 40


async def _octets(village: Village) -> int:
    def look(unit: Unit) -> int:
        [(pages,)] = unit.run("PRAGMA page_count")
        [(free,)] = unit.run("PRAGMA freelist_count")
        return (int(str(pages)) - int(str(free))) * 4096

    return await village.node.house.node.read(look)


def _wrongs(value: Any) -> Iterator[Any]:
    yield None
    yield SAFE_INTEGER
    yield {"a": {"b": value}}
    yield [value] * 3
    yield "é\u0000\u2028"


async def test_strange_values_in_every_place_get_one_answer_and_a_refusal_changes_nothing(village: Village) -> None:
    for op, name in village.operations():
        base = village.params(op)
        for one in msgspec.structs.fields(op.params):
            for wrong in _wrongs(base.get(one.encode_name, "x")):
                raw = json.dumps(base | {one.encode_name: wrong})
                before = await village.state()
                try:
                    async with asyncio.timeout(PATIENCE_S):
                        await village.node.house.dispatcher.call("aun", name, raw.encode(), village.alice)
                except EdgeError as error:
                    sayable(error, name)
                    assert await village.state() == before, (name, one.encode_name, wrong)


async def test_what_only_the_owner_may_no_agent_may(village: Village) -> None:
    table = village.node.house.table
    admin = [op for op in table if op.scope.endswith(":admin")]
    assert len(admin) > 8
    for op in admin:
        for surface, names in op.wire.items():
            for name in names:
                with pytest.raises(NotPermitted):
                    await village.node.house.dispatcher.call(surface, name, b"{}", village.alice)
