"""Walks every declared operation: a new one is covered by existing."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from edge.contract.errors import EdgeError, InvalidParams, NotAuthenticated, NotPermitted
from edge.contract.op import Op, Params
from edge.contract.principal import GUEST, Kind, Principal
from edge.contract.wire import dumps
from edge.node.life import Node
from edge.protocol.aun import NUMBERS
from edge.transports.http.app import STATUS
from tests.support.node import running

STRANGER = Principal(kind=Kind.AGENT, aid="stranger.edge.test")
ENDLESS = {"mqtt.sub"}
OWNER = Principal(kind=Kind.OPERATOR, aid="", scopes=frozenset({"*"}), via="control")


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with running(tmp_path / "state") as made:
        yield made


def on_a_wire(node: Node) -> list[tuple[Op, str, str]]:
    return [(op, surface, name) for op in node.house.table for surface, names in op.wire.items() for name in names]


def required(op: Op) -> list[str]:
    return [field.encode_name for field in msgspec.structs.fields(op.params) if field.required]


async def test_there_are_operations(node: Node) -> None:
    assert len(node.house.table) > 40


async def test_every_operation_says_what_it_does(node: Node) -> None:
    for op in node.house.table:
        assert len(op.doc) > 10, op.name
        assert "." in op.name or op.name in {"status", "methods", "limits"}, op.name
        assert issubclass(op.params, Params), op.name


async def test_every_declared_error_has_a_number_and_a_status(node: Node) -> None:
    for op in node.house.table:
        for error in op.raises:
            assert isinstance(NUMBERS.number(error), int), (op.name, error)
            assert 400 <= STATUS.number(error) < 600, (op.name, error)


async def test_every_operation_needs_its_scope(node: Node) -> None:
    for op, surface, name in on_a_wire(node):
        if op.scope == "":
            continue
        with pytest.raises(NotAuthenticated):
            await node.house.dispatcher.call(surface, name, b"{}", GUEST)
        if op.scope != "any":
            with pytest.raises(NotPermitted, match=op.scope):
                await node.house.dispatcher.call(surface, name, b"{}", STRANGER)


async def test_params_that_are_no_object_are_refused(node: Node) -> None:
    for _, surface, name in on_a_wire(node):
        for raw in (b"[]", b"1", b'"x"', b"null"):
            with pytest.raises(InvalidParams):
                await node.house.dispatcher.call(surface, name, raw, OWNER)


async def test_a_missing_param_is_named(node: Node) -> None:
    for op, surface, name in on_a_wire(node):
        for field in required(op):
            with pytest.raises(InvalidParams) as caught:
                await node.house.dispatcher.call(surface, name, b"{}", OWNER)
            assert any(one in caught.value.message for one in required(op)), (name, field)


async def test_a_param_of_the_wrong_type_is_refused_and_changes_nothing(node: Node) -> None:
    for op, surface, name in on_a_wire(node):
        for field in msgspec.structs.fields(op.params):
            wrong = _wrong(field.type)
            if wrong is None:
                continue
            before = node.house.node.figures().units
            with pytest.raises(InvalidParams):
                await node.house.dispatcher.call(surface, name, dumps({field.encode_name: wrong}), OWNER)
            assert node.house.node.figures().units == before, name


async def refusal(node: Node, surface: str, name: str, params: dict[str, Any]) -> EdgeError | None:
    try:
        await node.house.dispatcher.call(surface, name, json.dumps(params).encode(), OWNER)
    except EdgeError as error:
        return error
    return None


async def test_unknown_params_are_tolerated(node: Node) -> None:
    for op, surface, name in on_a_wire(node):
        if required(op) or op.writes or name in ENDLESS:
            continue
        error = await refusal(node, surface, name, {"a_field_nobody_declared": [1]})
        assert error is None or "a_field_nobody_declared" not in error.message, name


async def test_no_failure_leaks_what_went_wrong_inside(node: Node) -> None:
    for op, surface, name in on_a_wire(node):
        if name in ENDLESS:
            continue
        fields = msgspec.structs.fields(op.params)
        error = await refusal(
            node, surface, name, {one.encode_name: _filler(one.type) for one in fields if one.required}
        )
        assert node.house.dispatcher.calls[op.name, "Internal"] == 0, (name, error)
        said = error.message if error else ""
        assert not any(word in said for word in ("Traceback", "sqlite", "site-packages")), name


def _wrong(kind: Any) -> object:
    """A value that no reader of this type may take; None where every value is good."""
    if kind is str:
        return [1]
    if kind in (int, bool, float):
        return "x"
    return None


def _filler(kind: Any) -> object:
    """A well-typed value without meaning."""
    return {str: "x", int: 1, bool: True, float: 1.0, dict: {}, list: []}.get(kind, {})
