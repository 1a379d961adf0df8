from __future__ import annotations

import msgspec

from edge.contract import errors
from edge.contract.errors import EdgeError, UnknownAid
from edge.contract.event import Event
from edge.contract.wire import DEFAULT
from edge.protocol.control import NUMBERS, ControlCodec
from edge.protocol.jsonrpc import Refused, Request

CODEC = ControlCodec(DEFAULT)


def test_every_error_class_has_a_number_and_travels_by_name() -> None:
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, EdgeError):
            assert NUMBERS.number(kind)
            frame = msgspec.json.decode(CODEC.refuse(Request(b"1", "m"), kind("why", data={"a": 1}), 0, 0))
            assert frame["error"]["message"] == "why"
            assert frame["error"]["data"] == {"retryable": kind.retryable, "error": name, "a": 1}


def test_items_name_their_request() -> None:
    item = msgspec.json.decode(CODEC.item(Request(b'"x"', "follow"), {"v": 1}) or b"")
    assert item == {"jsonrpc": "2.0", "method": "item", "params": {"id": "x", "value": {"v": 1}}}


def test_frames_are_read_and_answered_as_json_rpc() -> None:
    request = CODEC.read(b'{"jsonrpc":"2.0","id":1,"method":"status"}')
    assert request == Request(b"1", "status")
    assert CODEC.answer(request, b"{}", 0, 0) == b'{"jsonrpc":"2.0","id":1,"result":{}}'
    assert isinstance(CODEC.read(b"["), Refused)


def test_the_control_socket_has_no_events_guests_farewells_or_dialects() -> None:
    assert CODEC.event(Event("inbox", "a", 1), {}) is None
    assert CODEC.farewell(4001, "", {}) is None
    assert not CODEC.open_to_guests("status")
    assert CODEC.fatal(UnknownAid()) is None
    assert CODEC.dialect({}) == ""
