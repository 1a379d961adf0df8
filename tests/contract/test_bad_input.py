"""Walks every AUN operation with calls that are well formed and wrong: a new operation is covered by existing.

Whatever is asked, there is one answer, it says nothing of the inside, and a refusal has changed nothing.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from types import UnionType
from typing import Any, Union, get_args, get_origin

import msgspec
import pytest

from edge.contract.errors import (
    MESSAGE_LENGTH,
    Conflict,
    EdgeError,
    GroupNotFound,
    Internal,
    InvalidParams,
    NotFound,
    NotMember,
    NotPermitted,
    RoleInsufficient,
)
from edge.contract.op import Door, Op, Outcome
from edge.contract.principal import AGENT_SCOPES, Kind, Principal
from edge.contract.store import Unit
from edge.contract.wire import SAFE_INTEGER, dumps
from edge.node.life import Node
from edge.protocol import keys
from edge.session.conversation import ANSWER
from edge.store import groups
from tests.support.identity import new_key
from tests.support.node import agent, running
from tests.support.patience import PATIENCE_S

KEY = base64.b64encode(keys.spki_of(new_key("team").public_key())).decode()
ANYWHERE = (InvalidParams, NotPermitted)
"""What any operation may answer, whatever it declares: params that cannot be read, a scope that is missing."""
FOREIGN = "somebody.aid.pub"
AIDS = {
    "aid",
    "to",
    "peer_aid",
    "sender_aid",
    "owner_aid",
    "requester_aid",
    "member_aid",
    "push_server_aid",
    "new_owner",
    "subject",
    "invitee_aid",
}
"""Params that name one AID, whatever the operation."""
PLACES = {"device_id", "slot_id"}
CURSORS = {
    "after_seq",
    "before_seq",
    "seq",
    "msg_seq",
    "event_seq",
    "up_to_seq",
    "ack_up_to_seq",
    "after_event_seq",
    "since_seq",
    "cursor",
}
OF_A_TARGET = {"message.send", "group.unregister_device"}
"""Operations whose `device_id` is not about the connection."""
LONG = "x" * 200_000
WITHOUT_END = {"payload", "envelope", "input"}
"""Params that may be so large: they have a limit of their own."""
FOR_EACH_THEIR_OWN = {"group.block", "group.unblock", "group.set_role", "group.leave", "group.complete_transfer"}
"""Operations that a member may use on themselves, or that refuse the owner only."""
FOR_OUTSIDERS = {"group.get_info", "group.complete_transfer", "group.check_membership", "group.request_join"}
"""Operations that also answer who is not in the group."""
HEAD = 100
"""More numbers than anything in the village has given out."""


class Village:
    """A node with agents and a group: Alice owns it, Bob is an admin, Carol a member, Dave outside.

    Calls are made as Alice, on a device and a slot of hers, unless somebody else is named.
    """

    def __init__(self, node: Node, *aids: str) -> None:
        self.node = node
        self.alice = Principal(Kind.AGENT, aids[0], AGENT_SCOPES, "aun", "dev-1", "default")
        self.bob, self.carol, self.dave = (Principal(Kind.AGENT, aid, AGENT_SCOPES, "aun") for aid in aids[1:])
        self.gid = self.message_id = self.code = ""

    def operations(self) -> list[tuple[Op, str]]:
        """Every operation that an agent reaches, with its first name."""
        found = [(op, op.wire["aun"][0]) for op in self.node.house.table if op.wire.get("aun")]
        return [(op, name) for op, name in found if self.alice.may(op.scope)]

    async def walk(self) -> AsyncIterator[tuple[Op, str]]:
        """Each operation, with the group as it should be."""
        for op, name in self.operations():
            await self.gather()
            yield op, name

    async def gather(self) -> None:
        """A group whose members are as said, with a message, an invite code and somebody who asks to come in."""

        def whole(unit: Unit) -> bool:
            group = groups.find(unit, self.gid)
            roles = {one.aid: one.role for one in groups.members(unit, self.gid)}
            wanted = {self.alice.aid: "owner", self.bob.aid: "admin", self.carol.aid: "member"}
            free = not groups.shuts(unit, self.gid, groups.BAN, 0) and not groups.shuts(unit, self.gid, groups.BLOCK, 0)
            return (
                group is not None and group.status == groups.ACTIVE and not group.pending and roles == wanted and free
            )

        if bool(self.gid) and await self.node.house.node.read(whole):
            return
        made = await self.call("group.create", {"name": "Team"})
        self.gid = made["group_id"]
        for who, role in ((self.bob, "admin"), (self.carol, "member")):
            joined = await self.call("group.add_member", {"group_id": self.gid, "aid": who.aid, "role": role})
            assert joined["member"]["role"] == role
        said = await self.call("group.send", {"group_id": self.gid, "payload": {"text": "hi"}})
        self.message_id = said["message_id"]
        self.code = (await self.call("group.create_invite_code", {"group_id": self.gid}))["invite_code"]["code"]
        asked = await self.call("group.request_join", {"group_id": self.gid}, self.dave)
        assert asked["status"] == "pending"

    async def call(self, name: str, params: dict[str, Any], who: Principal | None = None) -> Any:
        """The result, or the error, which the operation must have declared."""
        return await self.raw(name, dumps(params), who)

    async def raw(self, name: str, params: bytes, who: Principal | None = None) -> Any:
        """`call` with params as text."""
        dispatcher = self.node.house.dispatcher
        door = Door(channel="c-test", address="127.0.0.1")
        try:
            async with asyncio.timeout(PATIENCE_S):
                outcome: Outcome = await dispatcher.call("aun", name, params, who or self.alice, door=door)
        except EdgeError as error:
            return self._declared(name, error)
        answer = dumps(outcome.result)
        assert len(answer) < ANSWER.default, name
        return json.loads(answer)

    def _declared(self, name: str, error: EdgeError) -> EdgeError:
        op = self.node.house.dispatcher.find("aun", name)
        assert op is not None
        assert isinstance(error, op.raises) or type(error) in ANYWHERE, (name, type(error))
        return error

    def params(self, op: Op) -> dict[str, Any]:
        """What the operation asks for, each with a value of the right type that means something where it can."""
        known: dict[str, Any] = {
            **dict.fromkeys(AIDS, self.bob.aid),
            "aids": [self.bob.aid],
            "payload": {"type": "text", "text": "hi"},
            "context": {"type": "run", "id": "r-1"},
            "target": {"aid": self.bob.aid},
            "deliver": {"method": "event/app.x", "params": {}},
            "group_id": self.gid,
            "message_ids": [self.message_id],
            "code": self.code,
            "settings": {"name": "x"},
            "role": "member",
            "public_key": KEY,
            "attachments": [],
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
    often = ("rate.auth", "group.created", "group.joined")
    async with running(tmp_path / "state", *(f"limits.{name}=100000" for name in often)) as node:
        people = [await agent(node, name) for name in ("alice", "bobby", "carol", "david")]
        made = Village(node, *(one.aid for one in people))
        await made.gather()
        yield made


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
        assert len(found.message) <= MESSAGE_LENGTH, name


async def test_many_operations_are_walked_and_most_do_what_they_are_asked(village: Village) -> None:
    answered, in_a_group = 0, 0
    async for op, name in village.walk():
        found = await village.call(name, village.params(op))
        sayable(found, name)
        if name != "group.leave":  # the owner cannot
            assert not isinstance(found, GroupNotFound | NotMember | RoleInsufficient), (name, found)
        answered += not isinstance(found, EdgeError)
        in_a_group += bool(fields(op, {"group_id"}))
    assert in_a_group > 60
    assert answered > 70


async def test_what_a_member_may_not_do_changes_nothing(village: Village) -> None:
    """An operation that names a role refuses who has a lower one; one that does not, never speaks of roles."""
    walked = 0
    async for op, name in village.walk():
        if not fields(op, {"group_id"}):
            continue
        before = await village.state()
        found = await village.call(name, village.params(op), village.carol)
        sayable(found, name)
        if RoleInsufficient in op.raises and name not in FOR_EACH_THEIR_OWN:
            walked += 1
            assert isinstance(found, RoleInsufficient | InvalidParams | NotFound), (name, found)
        if isinstance(found, EdgeError):
            assert await village.state() == before, name
    assert walked > 20


async def test_who_is_outside_a_group_learns_and_changes_nothing(village: Village) -> None:
    walked = 0
    async for op, name in village.walk():
        if "group_id" not in village.params(op) or NotMember not in op.raises or name in FOR_OUTSIDERS:
            continue
        walked += 1
        before = await village.state()
        found = await village.call(name, village.params(op), village.dave)
        assert isinstance(found, NotMember | InvalidParams | NotFound), (name, found)
        assert "Team" not in found.message, name
        assert await village.state() == before, name
    assert walked > 50


async def test_a_group_that_is_not_there_has_no_member_and_no_secret(village: Village) -> None:
    walked = 0
    async for op, name in village.walk():
        if "group_id" not in village.params(op) or GroupNotFound not in op.raises:
            continue
        walked += 1
        before = await village.state()
        for gid in (f"g-nobodys.{village.node.issuer}", f"team.{FOREIGN}", "../../x", "", "g-" + "x" * 300):
            found = await village.call(name, village.params(op) | {"group_id": gid})
            assert isinstance(found, NotFound | InvalidParams | NotMember), (name, gid, found)
        assert await village.state() == before, name
    assert walked > 50


async def test_params_that_nobody_declared_change_nothing_about_an_answer(village: Village) -> None:
    """Spec aun-services §0 item 4: the SDKs add some."""
    more = {"a_field_nobody_declared": {"deep": [1]}, "need_render_": True, "_private": 1}
    async for op, name in village.walk():
        plain = await village.call(name, village.params(op))
        await village.gather()
        found = await village.call(name, village.params(op) | more)
        if isinstance(found, InvalidParams):
            assert type(found) is type(plain), (name, found)
            assert not any(word in found.message for word in more), name


async def test_a_call_on_behalf_of_another_device_or_slot_is_refused(village: Village) -> None:
    """M-6: identity comes from the connection; what repeats it must agree."""
    walked = 0
    async for op, name in village.walk():
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
    async for op, name in village.walk():
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
    async for op, name in village.walk():
        for field in fields(op, CURSORS):
            if dict((one.encode_name, one.type) for one in msgspec.structs.fields(op.params))[field] is str:
                continue
            walked += 1
            for number in (SAFE_INTEGER, 1 << 52, -1, 0):
                found = await village.call(name, village.params(op) | {field: number})
                sayable(found, name)
                for key, value in found.items() if isinstance(found, dict) else ():
                    if key in ("ack_seq", "peer_ack_seq", "effective_ack_seq", "server_ack_seq"):
                        assert value <= HEAD, (name, key, value)
    assert walked >= 5


async def test_a_cursor_that_was_acked_from_the_future_still_reads_what_comes(village: Village) -> None:
    await village.call("message.ack", {"seq": SAFE_INTEGER})
    sent = {"to": village.alice.aid, "payload": {"n": 1}}
    await village.node.house.dispatcher.call("aun", "message.send", dumps(sent), village.bob)
    page = await village.call("message.pull", {})
    assert [row["seq"] for row in page["messages"]] == [1]
    assert page["server_ack_seq"] == 0


async def test_a_key_that_comes_again_with_other_content_is_a_conflict(village: Village) -> None:
    walked = 0
    async for op, name in village.walk():
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
    params = {"to": village.bob.aid, "message_id": "m-1", "payload": {"text": "one"}}
    first = await village.call("message.send", params)
    again = await village.call("message.send", params | {"payload": {"text": "two"}})
    assert (again["seq"], again["status"]) == (first["seq"], "duplicate")


async def test_g21_a_group_message_id_that_comes_again_is_one_message_whatever_it_says(village: Village) -> None:
    params = {"group_id": village.gid, "message_id": "m-1", "payload": {"text": "one"}}
    first = await village.call("group.send", params)
    before = await village.state()
    again = await village.call("group.send", params | {"payload": {"text": "two"}})
    assert (again["seq"], again["status"], again["message"]["payload"]) == (first["seq"], "duplicate", {"text": "one"})
    assert isinstance(await village.call("group.send", params, village.bob), InvalidParams)
    assert await village.state() == before


async def test_g2_a_creation_that_comes_again_is_one_group_whatever_it_says(village: Village) -> None:
    params = {"name": "One", "_create_request_id": "anon:" + hashlib.sha256(b"one").hexdigest()}
    first = await village.call("group.create", params)
    before = await village.state()
    again = await village.call("group.create", params | {"name": "Two", "visibility": "public"})
    assert (again["group_id"], again["group"]["name"]) == (first["group_id"], "One")
    assert await village.state() == before


async def test_values_without_end_are_refused_or_forgotten(village: Village) -> None:
    """No parameter of an operation but a payload brings 200 kB into the store."""
    walked = 0
    async for op, name in village.walk():
        for one in msgspec.structs.fields(op.params):
            for endless in _endless(one.type) if one.encode_name not in WITHOUT_END else ():
                walked += 1
                await village.gather()
                size = await _octets(village)
                sayable(await village.call(name, village.params(op) | {one.encode_name: endless}), name)
                assert await _octets(village) - size < 100_000, (name, one.encode_name)
    assert walked >= 200


def _endless(kind: Any) -> list[Any]:
    """Values of a type that are 200 kB long; none of a number."""
    if kind is msgspec.Raw:
        return [{"x": LONG}, [LONG], ["x"] * 50_000]
    if get_origin(kind) in (UnionType, Union):
        return [value for part in get_args(kind) for value in _endless(part)]
    if get_origin(kind) in (list, tuple):
        inner = get_args(kind)[0]
        return [[filler(inner)] * (50_000 if inner in (str, Any) else 2_000), *([[LONG]] if inner is str else [])]
    if get_origin(kind) is dict:
        return [{"x": LONG}, {LONG: 1}, {f"x{number}": 1 for number in range(20_000)}]
    return [LONG] if kind is str else []


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
    async for op, name in village.walk():
        for one in msgspec.structs.fields(op.params):
            await village.gather()
            base = village.params(op)
            for wrong in _wrongs(base.get(one.encode_name, "x")):
                before = await village.state()
                found = await village.raw(name, json.dumps(base | {one.encode_name: wrong}).encode())
                sayable(found, name)
                if isinstance(found, EdgeError):
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
