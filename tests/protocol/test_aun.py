from __future__ import annotations

from typing import Any

import msgspec
import pytest

from edge.contract import errors
from edge.contract.errors import EdgeError
from edge.contract.event import Event
from edge.contract.wire import DEFAULT, dumps
from edge.protocol import aun
from edge.protocol.aun import AunCodec, Hello, isolation_key
from edge.protocol.jsonrpc import Refused, Request, Trace

CODES = {
    "Malformed": -32700,
    "InvalidRequest": -32600,
    "MethodNotFound": -32601,
    "InvalidParams": -32602,
    "Internal": -32603,
    "ProtocolVersion": -32000,
    "NotAuthenticated": -32001,
    "NonceInvalid": -32002,
    "CertificateInvalid": -32002,
    "SignatureInvalid": -32003,
    "NotPermitted": -32004,
    "RegistrationClosed": -32004,
    "TokenExpired": -32005,
    "NotFound": -32008,
    "UnknownAid": -32008,
    "VersionConflict": -32009,
    "NotReady": -32013,
    "RateLimited": -32029,
    "RecipientsStale": -33054,
    "TaskNotFound": -32170,
    "TaskStateInvalid": -32171,
    "TaskInputRequired": -32172,
    "TaskCanceled": -32173,
    "OutputTooLarge": -32174,
    "TaskAccessDenied": -32175,
    "TaskAlreadyAccepted": -32176,
    "TaskRejected": -32177,
    "TaskFailed": -32186,
}


def codec(mode: str = "log") -> AunCodec:
    return AunCodec(DEFAULT, lambda event, hello: event.body, lambda: "f" * 32, trace_mode=mode)


def read(params: dict[str, Any], mode: str = "log") -> Request:
    found = codec(mode).read(dumps({"jsonrpc": "2.0", "id": 1, "method": "m", "params": params}))
    assert isinstance(found, Request)
    return found


@pytest.mark.parametrize(("name", "code"), CODES.items())
def test_errors_have_the_numbers_of_the_documents(name: str, code: int) -> None:
    error = getattr(errors, name)()
    frame = msgspec.json.decode(codec().refuse(Request(b"1", "message.send"), error, 0, 0))
    assert frame["error"]["code"] == code


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("InvalidParams", 4000),
        ("NotAuthenticated", 4001),
        ("TokenExpired", 4001),
        ("NonceInvalid", 4010),
        ("Internal", 4500),
        ("ProtocolVersion", -32000),
        ("RateLimited", -32029),
    ],
)
def test_auth_connect_has_numbers_of_its_own(name: str, code: int) -> None:
    frame = msgspec.json.decode(codec().refuse(Request(b"1", "auth.connect"), getattr(errors, name)(), 0, 0))
    assert frame["error"]["code"] == code


def test_what_will_pass_by_itself_is_never_an_authentication_code() -> None:
    for kind in (errors.Unavailable, errors.StorageFull, errors.TimedOut):
        for method in ("auth.connect", "message.send"):
            error = msgspec.json.decode(codec().refuse(Request(b"1", method), kind(), 0, 0))["error"]
            assert 5000 <= error["code"] <= 5999
            assert error["data"]["retryable"] is True


def test_every_error_class_has_a_number() -> None:
    for kind in vars(errors).values():
        if isinstance(kind, type) and issubclass(kind, EdgeError):
            assert aun.NUMBERS.number(kind)
            assert aun.CONNECT_NUMBERS.number(kind)


def test_private_keys_are_taken_away_and_the_rest_stays_byte_for_byte() -> None:
    frame = b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"b":1.50,"_x":{},"\\u005fy":2,"a_":"_","c":{"_z":1}}}'
    found = codec().read(frame)
    assert isinstance(found, Request)
    assert found.params == b'{"b":1.50,"a_":"_","c":{"_z":1}}'
    untouched = b'{"b" : 1.50, "client_signature": {"_aid":"a"}}'
    found = codec().read(b'{"jsonrpc":"2.0","id":1,"method":"m","params":%b}' % untouched)
    assert isinstance(found, Request)
    assert found.params == untouched


def test_a_frame_without_private_keys_is_the_request_as_it_came() -> None:
    assert codec().read(b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"a": 1}}') == Request(b"1", "m", b'{"a": 1}')
    assert isinstance(codec().read(b"{"), Refused)


def test_what_only_looks_private_stays() -> None:
    params = b'{"text":"\\"_x\\": 1"}'
    found = codec().read(b'{"jsonrpc":"2.0","id":1,"method":"m","params":%b}' % params)
    assert isinstance(found, Request)
    assert found.params == params


def test_a_failure_names_the_trace_that_was_asked_for() -> None:
    request = read({"_trace": {"trace_id": "a" * 32}})
    error = msgspec.json.decode(codec().refuse(request, errors.NotFound(), 0, 0))["error"]
    assert error["data"] == {"retryable": False, "trace_id": "a" * 32}


def test_a_frame_that_is_no_request_is_answered_and_nothing_is_streamed() -> None:
    frame = msgspec.json.decode(codec().refuse_frame(b"null", errors.Malformed()))
    assert (frame["id"], frame["error"]["code"]) == (None, -32700)
    assert codec().item(Request(b"1", "m"), 1) is None


def test_only_a_missing_common_version_ends_the_connection() -> None:
    assert codec().fatal(errors.ProtocolVersion()) == 1002
    assert codec().fatal(errors.NotAuthenticated()) is None


@pytest.mark.parametrize(
    ("asked", "most", "expected"),
    [
        ({"trace_id": "a" * 32}, "log", Trace("a" * 32, "log")),
        ({"trace_id": "a" * 32, "mode": "diag", "spans": [{"node": "n"}]}, "log", Trace("a" * 32, "log")),
        (
            {"trace_id": "a" * 32, "mode": "diag", "spans": [{"node": "n"}]},
            "diag",
            Trace("a" * 32, "diag", ({"node": "n"},)),
        ),
        ({"trace_id": "A" * 32, "mode": "log"}, "log", Trace("f" * 32, "log")),
        ({"trace_id": 7}, "log", Trace("f" * 32, "log")),
        ({"mode": "loud", "trace_id": "a" * 32}, "diag", Trace("a" * 32, "log")),
        ({"mode": "off", "trace_id": "a" * 32}, "diag", None),
        ({"mode": ["x"], "trace_id": "a" * 32}, "diag", Trace("a" * 32, "log")),
        ({"trace_id": "a" * 32}, "off", None),
        ({"trace_id": "a" * 32, "mode": "diag", "spans": "x"}, "diag", Trace("a" * 32, "diag")),
        (
            {"trace_id": "a" * 32, "mode": "diag", "spans": [7, {"ts": 1}]},
            "diag",
            Trace("a" * 32, "diag", ({"ts": 1},)),
        ),
        ("text", "diag", None),
        (None, "diag", None),
    ],
)
def test_a_trace_is_clamped_and_repaired(asked: Any, most: str, expected: Trace | None) -> None:
    assert read({"_trace": asked, "v": 1}, most).trace == expected


def test_spans_are_bounded_and_details_cut() -> None:
    spans = [{"node": str(number), "detail": "x" * 1000, "secret": 1} for number in range(100)]
    request = read({"_trace": {"trace_id": "a" * 32, "mode": "diag", "spans": spans}}, "diag")
    answer = msgspec.json.decode(codec("diag").answer(request, b"1", 1234, 5))["_trace"]
    assert len(answer["spans"]) == 32
    assert answer["spans"][-1] == {"node": "aun-edge", "ts": 1234, "action": "process", "ms": 5, "detail": "m"}
    assert all(len(span["detail"]) <= 256 and "secret" not in span for span in answer["spans"])


def test_a_log_trace_stays_inside() -> None:
    request = read({"_trace": {"trace_id": "a" * 32, "mode": "log"}})
    assert b"_trace" not in codec().answer(request, b"1", 0, 0)


def test_the_challenge_has_the_fields_of_the_documents() -> None:
    frame = msgspec.json.decode(aun.challenge("n1", "aun-edge", 1_760_000_000_100_000))
    assert frame == {
        "jsonrpc": "2.0",
        "method": "challenge",
        "params": {
            "nonce": "n1",
            "server": "aun-edge",
            "protocol": {"min": "1.0", "max": "1.0"},
            "auth_methods": ["kite_token", "aid"],
            "server_time": 1_760_000_000.1,
        },
    }


@pytest.mark.parametrize(
    ("slot", "key"), [("work/a", "work"), ("work:b", "work"), ("work c", "work"), ("", ""), ("a", "a")]
)
def test_slots_are_equal_by_their_isolation_key(slot: str, key: str) -> None:
    assert isolation_key(slot) == key


@pytest.mark.parametrize(
    ("announced", "expected", "dialect"),
    [
        ({}, Hello(), ""),
        ({"capabilities": {"e2ee": True}}, Hello(), "seed"),
        ({"capabilities": {"p2p_peer_pull_v1": True}}, Hello(peer_pull=True), "peer"),
        ({"capabilities": {"p2p_peer_pull_v1": 1}}, Hello(), "seed"),
        (
            {"delivery_mode": {"mode": "queue", "routing": "round_robin"}},
            Hello(mode="queue", routing="round_robin"),
            "seed",
        ),
        ({"delivery_mode": "queue", "options": [], "capabilities": None}, Hello(), "seed"),
        ({"options": {"kind": "short", "short_ttl_ms": 500}}, Hello(long=False, short_ttl_ms=500), "seed"),
        ({"options": {"kind": "short", "short_ttl_ms": -1}}, Hello(long=False), "seed"),
        ({"options": {"kind": "short", "short_ttl_ms": True}}, Hello(long=False), "seed"),
    ],
)
def test_an_announcement_is_read_tolerantly(announced: dict[str, Any], expected: Hello, dialect: str) -> None:
    assert aun.hello(announced) == expected
    assert codec().dialect(announced) == dialect


def test_only_closes_of_ours_say_farewell() -> None:
    assert codec().farewell(1012, "restart", {}) is None
    assert codec().farewell(1013, "slow", {}) is None
    frame = msgspec.json.decode(codec().farewell(4009, "replaced", {"a": 1}) or b"")
    assert frame["method"] == "event/gateway.disconnect"
    assert frame["params"] == {"code": 4009, "reason": "replaced", "detail": {"a": 1}}


def test_events_are_shown_by_whoever_knows_them() -> None:
    assert codec().event(Event("inbox", "a", 1, body=b"{}"), {}) == b"{}"


def test_guests_may_authenticate_and_ping() -> None:
    allowed = ["auth.connect", "auth.aid_login1", "auth.create_aid", "meta.ping", "meta.trust_roots"]
    assert all(codec().open_to_guests(method) for method in allowed)
    assert not any(codec().open_to_guests(m) for m in ("meta.status", "message.send", "authx", "initialize", ""))
