from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.contract.errors import EdgeError, InvalidParams, InvalidRequest, NotFound, RateLimited, TooLarge, UnknownAid
from edge.contract.wire import JsonLimits
from edge.protocol import jsonrpc
from edge.protocol.jsonrpc import ErrorTable, Refused, Request


def test_id_and_params_stay_byte_for_byte() -> None:
    frame = b'{ "params" : {"b": 1.0,\n "a": "\\u00e9"} , "id" : "x\\u0041" , "method":"m", "jsonrpc":"2.0","more":[]}'
    assert jsonrpc.read(frame) == Request(b'"x\\u0041"', "m", b'{"b": 1.0,\n "a": "\\u00e9"}')


@pytest.mark.parametrize("key", ["0", "-3", "9007199254740991", '""', '"rpc-0011223344556677"'])
def test_ids_are_strings_and_integers(key: str) -> None:
    read = jsonrpc.read(b'{"jsonrpc":"2.0","id":%b,"method":"m"}' % key.encode())
    assert read == Request(key.encode(), "m", b"{}")


def test_a_request_without_id_wants_no_answer() -> None:
    read = jsonrpc.read(b'{"jsonrpc":"2.0","method":"notification/x","params":{}}')
    assert isinstance(read, Request)
    assert not read.wants_answer


@pytest.mark.parametrize("frame", [b'{"jsonrpc":"2.0","id":1,"result":1}', b'{"id":1,"error":{}}'])
def test_a_response_is_nobodys(frame: bytes) -> None:
    assert jsonrpc.read(frame) is None


def test_a_frame_over_its_limits_is_too_large_or_malformed() -> None:
    read = jsonrpc.read(b'{"a":[[]]}', JsonLimits(octets=9))
    assert isinstance(read, Refused)
    assert isinstance(read.error, TooLarge)


@pytest.mark.parametrize(
    ("frame", "key", "kind"),
    [
        (b'[{"jsonrpc":"2.0","id":1,"method":"m"}]', b"null", InvalidRequest),
        (b'"text"', b"null", InvalidRequest),
        (b'{"jsonrpc":"2.0","id":[1],"method":"m"}', b"null", InvalidRequest),
        (b'{"jsonrpc":"2.0","id":"%b","method":"m"}' % (b"x" * 255), b"null", InvalidRequest),
        (b'{"jsonrpc":"1.0","id":1,"method":"m"}', b"1", InvalidRequest),
        (b'{"jsonrpc":"2.0","id":1,"method":"%b"}' % (b"m" * 129), b"1", InvalidRequest),
        (b'{"jsonrpc":"2.0","id":1,"method":"m","params":[]}', b"1", InvalidParams),
        (b'{"jsonrpc":"2.0","method":"m","params":null}', b"null", InvalidParams),
    ],
)
def test_a_frame_that_is_no_request_says_why_to_the_id_it_has(frame: bytes, key: bytes, kind: type[EdgeError]) -> None:
    refused = jsonrpc.read(frame)
    assert isinstance(refused, Refused)
    assert (refused.id, type(refused.error)) == (key, kind)


def test_the_version_may_be_missing_where_a_surface_allows_it() -> None:
    assert jsonrpc.read(b'{"id":1,"method":"m"}', version=False) == Request(b"1", "m", b"{}")
    refused = jsonrpc.read(b'{"id":1,"method":"m","jsonrpc":"1.0"}', version=False)
    assert isinstance(refused, Refused)


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_no_bytes_make_it_raise(frame: bytes) -> None:
    assert isinstance(jsonrpc.read(frame), Request | Refused | None)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(st.fixed_dictionaries({}, optional={name: _JSON for name in ("jsonrpc", "id", "method", "params", "result")}))
def test_no_object_makes_it_raise_and_what_passes_is_an_answerable_request(found: dict[str, object]) -> None:
    read = jsonrpc.read(msgspec.json.encode({"jsonrpc": "2.0", **found}))
    if isinstance(read, Request):
        assert isinstance(msgspec.json.decode(read.params), dict)
        answer = msgspec.json.decode(jsonrpc.result(read.id or b"null", b"1"))
        assert answer["id"] == found.get("id")
    elif isinstance(read, Refused):
        assert "error" in msgspec.json.decode(jsonrpc.error(read.id, -1, "no", {}))


def test_frames_are_compact_json() -> None:
    assert jsonrpc.result(b"1", b"{}", b',"_trace":{}') == b'{"jsonrpc":"2.0","id":1,"result":{},"_trace":{}}'
    assert jsonrpc.notification("event/x", b"{}") == b'{"jsonrpc":"2.0","method":"event/x","params":{}}'


def test_a_class_without_a_row_has_the_number_of_its_nearest_ancestor() -> None:
    table = ErrorTable({EdgeError: 1, NotFound: 2})
    assert table.number(UnknownAid) == 2
    assert table.number(InvalidParams) == 1
    assert table.over({UnknownAid: 3}).number(UnknownAid) == 3
    with pytest.raises(ValueError, match="EdgeError"):
        ErrorTable({NotFound: 2})


def test_error_data_says_whether_a_retry_helps_and_may_say_otherwise() -> None:
    table = ErrorTable({EdgeError: 1})
    assert msgspec.json.decode(table.frame(b"7", RateLimited("later", data={"x": 1}))) == {
        "jsonrpc": "2.0",
        "id": 7,
        "error": {"code": 1, "message": "later", "data": {"retryable": True, "x": 1}},
    }
    frame = msgspec.json.decode(table.frame(b"7", NotFound(data={"retryable": True})))
    assert frame["error"]["data"]["retryable"] is True
