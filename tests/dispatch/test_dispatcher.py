from __future__ import annotations

import asyncio
import logging
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest

from edge.contract.errors import (
    Conflict,
    Internal,
    InvalidParams,
    MethodNotFound,
    NotAuthenticated,
    NotFound,
    NotPermitted,
    SwitchedOff,
    Unavailable,
)
from edge.contract.op import Call, Outcome, Params, op
from edge.contract.principal import GUEST, NODE, Kind, Principal
from edge.contract.store import Unit
from edge.contract.wire import dumps
from edge.dispatch.dispatcher import Dispatcher
from edge.dispatch.table import OpTable
from tests.support.store import database

ALICE = Principal(kind=Kind.AGENT, aid="alice.edge.test", scopes=frozenset({"note:write"}))
BOB = Principal(kind=Kind.AGENT, aid="bobb.edge.test", scopes=frozenset({"note:write"}))


class Note(Params, frozen=True, kw_only=True):
    ALIASES: ClassVar = {"body": "text", "id": "key"}

    text: str
    key: str = ""


class Kept(msgspec.Struct):
    seq: int


class Notes:
    def __init__(self) -> None:
        self.prepared: list[object] = []
        self.closed = False

    @op("note.add", scope="note:write", wire={"aun": ("note.add",)}, writes=True, once="key", before="weigh")
    def add(self, call: Call[Note], unit: Unit) -> Kept:
        """Keep a note."""
        self.prepared.append(call.prepared)
        if call.params.text == "bad":
            unit.append("note", "all", [b"half"])
            raise NotFound("no such page")
        if call.params.text == "broken":
            raise ZeroDivisionError
        return Kept(unit.append("note", "all", [call.params.text.encode()]))

    async def weigh(self, call: Call[Note]) -> int:
        if self.closed:
            raise Unavailable("closed")
        return len(call.params.text)

    @op("note.jot", scope="note:write", wire={"aun": ("note.jot",)}, writes=True)
    def jot(self, call: Call[Note], unit: Unit) -> Kept:
        """Keep a note that nobody weighs; a repeat is one more."""
        return Kept(unit.append("note", "all", [call.params.text.encode()]))

    @op("note.burn", scope="note:admin", wire={"aun": ("note.burn",)})
    async def burn(self, call: Call[Note]) -> None:
        """End it all, in a unit of its own."""

    @op("note.echo", scope="any", wire={"aun": ("note.echo",)})
    async def echo(self, call: Call[Note]) -> Outcome:
        """Say it back and close."""
        return Outcome(result=call.params.text, close=1000)


@pytest.fixture
def notes() -> Notes:
    return Notes()


@pytest.fixture
async def dispatcher(tmp_path: Path, notes: Notes):
    async with database(tmp_path) as store:
        made = Dispatcher(OpTable(notes), {"node": store})
        made.store = store  # type: ignore[attr-defined]
        yield made


async def heads(dispatcher: Dispatcher) -> int:
    return await dispatcher.store.read(lambda unit: unit.log("note").head("all"))  # type: ignore[attr-defined]


async def test_a_writing_operation_answers_after_its_commit(dispatcher: Dispatcher) -> None:
    outcome = await dispatcher.call("aun", "note.add", dumps({"text": "hi"}), ALICE)
    assert outcome.result == Kept(1)
    assert await heads(dispatcher) == 1


async def test_what_before_returns_reaches_the_unit(dispatcher: Dispatcher, notes: Notes) -> None:
    await dispatcher.call("aun", "note.add", dumps({"text": "four"}), ALICE)
    assert notes.prepared == [4]


async def test_a_write_needs_no_preparation_and_without_a_key_each_call_counts(dispatcher: Dispatcher) -> None:
    raw = dumps({"text": "hi", "key": "k1"})
    assert [(await dispatcher.call("aun", "note.jot", raw, ALICE)).result for _ in "ab"] == [Kept(1), Kept(2)]


async def test_an_alias_is_folded_and_the_own_name_wins(dispatcher: Dispatcher) -> None:
    assert (await dispatcher.call("aun", "note.echo", b'{"body":"a"}', ALICE)).result == "a"
    assert (await dispatcher.call("aun", "note.echo", b'{"body":"a","text":"b"}', ALICE)).result == "b"


async def test_unknown_params_are_tolerated_and_wrong_ones_are_refused(dispatcher: Dispatcher) -> None:
    assert (await dispatcher.call("aun", "note.echo", b'{"text":"a","more":1}', ALICE)).close == 1000
    for params in (b"{}", b'{"text":1}', b"[]", b'{"body":3}', b"null"):
        with pytest.raises(InvalidParams):
            await dispatcher.call("aun", "note.echo", params, ALICE)


async def test_an_operation_is_found_before_it_is_called(dispatcher: Dispatcher) -> None:
    found = dispatcher.find("aun", "note.add")
    assert found is not None
    assert found.name == "note.add"
    assert dispatcher.find("edge", "note.add") is None


async def test_a_known_name_that_nothing_answers_is_refused_with_the_reason(dispatcher: Dispatcher) -> None:
    with pytest.raises(MethodNotFound, match="keeps no objects") as refused:
        await dispatcher.call("aun", "storage.get_object", b"{}", ALICE)
    assert refused.value.data == {"absent": "storage"}
    with pytest.raises(MethodNotFound, match=r"method not found: note\.gone"):
        await dispatcher.call("aun", "note.gone", b"{}", ALICE)


async def test_nobody_calls_what_is_not_there_or_not_theirs(dispatcher: Dispatcher) -> None:
    with pytest.raises(MethodNotFound):
        await dispatcher.call("edge", "note.add", b"{}", NODE)
    with pytest.raises(NotAuthenticated):
        await dispatcher.call("aun", "note.echo", b'{"text":"a"}', GUEST)
    with pytest.raises(NotPermitted):
        await dispatcher.call("aun", "note.add", b'{"text":"a"}', Principal(kind=Kind.AGENT, aid="carol.edge.test"))
    assert await heads(dispatcher) == 0


async def test_a_failing_unit_leaves_nothing_behind(dispatcher: Dispatcher) -> None:
    with pytest.raises(NotFound):
        await dispatcher.call("aun", "note.add", b'{"text":"bad"}', ALICE)
    assert await heads(dispatcher) == 0


async def test_what_breaks_inside_leaves_as_internal_error(
    dispatcher: Dispatcher, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.ERROR), pytest.raises(Internal, match=r"^internal error$"):
        await dispatcher.call("aun", "note.add", b'{"text":"broken"}', ALICE)
    assert "ZeroDivisionError" in caplog.text
    assert dispatcher.calls["note.add", "Internal"] == 1


async def test_a_repeat_with_the_same_key_gets_the_first_answer(dispatcher: Dispatcher) -> None:
    raw = dumps({"text": "hi", "key": "k1"})
    first, second = await asyncio.gather(*(dispatcher.call("aun", "note.add", raw, ALICE) for _ in range(2)))
    assert dumps(first.result) == dumps(second.result) == b'{"seq":1}'
    with pytest.raises(Conflict):
        await dispatcher.call("aun", "note.add", dumps({"text": "other", "key": "k1"}), ALICE)
    assert (await dispatcher.call("aun", "note.add", raw, BOB)).result == Kept(2)
    assert await heads(dispatcher) == 2


async def test_a_repeat_gets_its_answer_although_the_call_could_not_begin_now(
    dispatcher: Dispatcher, notes: Notes
) -> None:
    raw = dumps({"text": "hi", "key": "k1"})
    await dispatcher.call("aun", "note.add", raw, ALICE)
    notes.closed = True
    assert dumps((await dispatcher.call("aun", "note.add", raw, ALICE)).result) == b'{"seq":1}'
    with pytest.raises(Conflict):
        await dispatcher.call("aun", "note.add", dumps({"text": "other", "key": "k1"}), ALICE)
    for fresh in ({"text": "hi", "key": "k2"}, {"text": "hi"}):
        with pytest.raises(Unavailable):
            await dispatcher.call("aun", "note.add", dumps(fresh), ALICE)
    assert await heads(dispatcher) == 1


async def test_one_area_asks_another_by_name(dispatcher: Dispatcher) -> None:
    assert await dispatcher.run("note.echo", {"text": "a"}, ALICE) == "a"
    assert await dispatcher.run("note.add", Note(text="b"), NODE) == Kept(1)


async def test_an_operators_writes_are_audited(dispatcher: Dispatcher, caplog: pytest.LogCaptureFixture) -> None:
    owner = Principal(kind=Kind.OPERATOR, aid="", scopes=frozenset({"*"}), via="control")
    with caplog.at_level(logging.INFO, logger="edge.audit"):
        for name in ("note.add", "note.burn", "note.echo"):
            await dispatcher.call("aun", name, b'{"text":"a"}', owner)
    said = [record.getMessage() for record in caplog.records]
    assert said == ["note.add 'a' by operator via control", "note.burn 'a' by operator via control"]


async def test_what_is_switched_off_says_so_and_still_serves_the_node_itself(tmp_path: Path) -> None:
    async with database(tmp_path) as db:
        dispatcher = Dispatcher(OpTable(Notes()), {"node": db})
        dispatcher.table.switch_off(["note"])
        with pytest.raises(SwitchedOff, match="note is switched off") as refused:
            await dispatcher.call("aun", "note.add", b"{}", ALICE)
        assert refused.value.data == {"disabled": "note"}
        assert (await dispatcher.run("note.add", {"text": "x"}, NODE)).seq == 1


async def test_an_operation_that_nobody_has_is_no_failure_of_ours(tmp_path: Path) -> None:
    async with database(tmp_path) as db:
        with pytest.raises(MethodNotFound):
            await Dispatcher(OpTable(Notes()), {"node": db}).run("no.such", {}, NODE)


async def test_a_check_refuses_what_a_call_would_and_does_nothing(tmp_path: Path) -> None:
    async with database(tmp_path) as db:
        notes = Notes()
        dispatcher = Dispatcher(OpTable(notes), {"node": db})
        op = dispatcher.permitted("aun", "note.add", ALICE)
        dispatcher.check(op, b'{"text":"x"}')
        with pytest.raises(InvalidParams):
            dispatcher.check(op, b"")
        for name, who, error in (("note.add", GUEST, NotAuthenticated), ("no.such", ALICE, MethodNotFound)):
            with pytest.raises(error):
                dispatcher.permitted("aun", name, who)
        assert notes.prepared == []
