from __future__ import annotations

from typing import Annotated

import pytest

from edge.contract.op import Call, Empty, Outcome, Params, op
from edge.dispatch.table import OpTable


class Ask(Params, frozen=True, kw_only=True):
    name: str


class One:
    @op("one.ask", scope="any", wire={"aun": ("one.ask", "one.query"), "edge": ("one.ask",)})
    async def ask(self, call: Call[Ask]) -> dict[str, str]:
        """Say the name back.

        More for who reads the source.
        """
        return {"name": call.params.name}

    @op("one.idle", scope="", wire={})
    async def idle(self, call: Call[Empty]) -> None:
        """Do nothing."""


class Bare:
    @op("bare.do", scope="", wire={})
    async def do(self, call):  # type: ignore[no-untyped-def]
        """Say nothing of types."""


class Last:
    @op("last.word", scope="any", wire={})
    async def word(self, call: Call[Ask]) -> Annotated[Outcome, dict[str, str]]:
        """Say the name back and close."""
        return Outcome(result={"name": call.params.name}, close=1000)


class Rival:
    @op("rival.ask", scope="any", wire={"aun": ("one.query",)})
    async def ask(self, call: Call[Ask]) -> None:
        """Claim somebody else's name."""


def test_an_operation_is_found_by_each_of_its_wire_names() -> None:
    table = OpTable(One())
    assert table.find("aun", "one.ask") is table.find("aun", "one.query") is table.get("one.ask")
    assert table.find("edge", "one.query") is None
    assert table.names("aun") == ["one.ask", "one.query"]
    assert len(table) == 2
    assert {entry.name for entry in table} == {"one.ask", "one.idle"}


def test_params_result_and_reference_text_come_from_the_method() -> None:
    found = OpTable(One()).get("one.ask")
    assert found.params is Ask
    assert found.doc == "Say the name back."


def test_a_method_that_names_no_records_takes_nothing_and_answers_anything() -> None:
    found = OpTable(Bare()).get("bare.do")
    assert (found.params, found.result) == (Empty, object)


def test_what_answers_with_an_outcome_names_the_record_inside() -> None:
    assert OpTable(Last()).get("last.word").result == dict[str, str]


def test_two_operations_may_not_claim_one_wire_name() -> None:
    with pytest.raises(ValueError, match="claimed by"):
        OpTable(One(), Rival())


def test_one_operation_may_not_be_declared_twice() -> None:
    with pytest.raises(ValueError, match="declared twice"):
        OpTable(One(), One())


def test_a_namespace_that_is_off_is_found_by_nobody_and_named() -> None:
    table = OpTable(One())
    assert table.namespaces("aun") == ["one"]
    table.switch_off(["one", "two"])
    assert table.find("aun", "one.ask") is None
    assert table.off("aun", "one.ask") == "one"
    assert table.off("aun", "two.anything") == "two"
    assert table.off("edge", "one.ask") == ""
    assert (table.names("aun"), table.namespaces("aun")) == ([], [])
    assert table.offered(table.get("one.ask")) == {"edge": ["one.ask"]}
    assert table.withheld(table.get("one.ask")) == {"aun": ["one.ask", "one.query"]}
    assert table.find("edge", "one.ask") is table.get("one.ask")


def test_a_notification_has_its_namespace_before_the_slash() -> None:
    table = OpTable()
    table.switch_off(["notification"])
    assert table.off("aun", "notification/route") == "notification"
    assert table.off("aun", "notification/group.route") == "notification"
