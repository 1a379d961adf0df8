from __future__ import annotations

import pytest

from edge.session.doors import Hosts


@pytest.mark.parametrize(
    "host", ["edge.test", "EDGE.test:80", "a.edge.test", "localhost", "10.0.0.7:9010", "[fe80::1]:9010"]
)
def test_our_names_are_ours(host: str) -> None:
    assert Hosts(["Edge.Test", "*.edge.test"]).ours(host)


@pytest.mark.parametrize(
    "host",
    ["edge.test.evil", "evil", "aedge.test", ".edge.test/", "edge.test/x", "edge.test:99999999", "[::1", "a@localhost"],
)
def test_other_names_are_not(host: str) -> None:
    assert not Hosts(["edge.test", "*.edge.test"]).ours(host)


def test_below_a_name_is_not_the_name() -> None:
    assert not Hosts(["*.edge.test"]).ours("edge.test")
