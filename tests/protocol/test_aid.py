from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.contract.errors import InvalidParams
from edge.protocol import aid


@pytest.mark.parametrize("name", ["alice", "a234", "_abc", "0-_-", "x" * 64])
def test_a_new_name_has_4_to_64_characters(name: str) -> None:
    assert aid.new_name(name) == name


@pytest.mark.parametrize("name", ["abc", "x" * 65, "-abc", "Alice", "al.ice", "al ice", "älice", "", "alice\n"])
def test_other_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidParams):
        aid.new_name(name)


@pytest.mark.parametrize("name", ["auth", "gateway", "guest", "guest-1", "d-thermo", "nameservice", "aid_custody"])
def test_names_of_the_node_itself_are_reserved(name: str) -> None:
    with pytest.raises(InvalidParams, match="reserved"):
        aid.new_name(name)


def test_any_valid_aid_may_be_mentioned() -> None:
    assert aid.normal(" Bob.AID.pub ") == "bob.aid.pub"
    assert aid.split("bob.aid.pub") == ("bob", "aid.pub")


@pytest.mark.parametrize("text", ["", "bob", "bob.", ".pub", "b b.pub", "bob.-pub", "bob.pub.", "bob.a..b", "x." * 200])
def test_what_is_no_aid_is_refused(text: str) -> None:
    with pytest.raises(InvalidParams):
        aid.normal(text)


@pytest.mark.parametrize(
    ("header", "host"),
    [
        ("Alice.Edge.Test", "alice.edge.test"),
        ("alice.edge.test:9010", "alice.edge.test"),
        ("alice.edge.test.", "alice.edge.test"),
        ("[::1]:9010", "::1"),
        ("[::1", ""),
        ("", ""),
    ],
)
def test_a_host_header_loses_port_case_and_final_dot(header: str, host: str) -> None:
    assert aid.host(header) == host


@given(st.text(max_size=80))
def test_whatever_comes_is_an_aid_or_refused(text: str) -> None:
    try:
        found = aid.normal(text)
    except InvalidParams:
        return
    assert aid.normal(found) == found
