"""What an admission allows one client."""

from __future__ import annotations

import pytest

from edge.contract.bus import Admission
from edge.contract.principal import GUEST
from edge.protocol.mqtt.rights import Rights


def rights(*filters: str, user: str = "lamp", client_id: str = "c1") -> Rights:
    return Rights(Admission(GUEST, user, filters, filters), client_id)


def test_patterns_stand_for_user_and_client_id() -> None:
    mine = rights("%u/%c/#")
    assert mine.may_publish("lamp/c1/x")
    assert mine.may_subscribe("lamp/c1/+")
    assert mine.may_read("lamp/c1")
    assert not mine.may_publish("lamp/c2/x")


@pytest.mark.parametrize("client_id", ["", "+", "#", "a/b", "a+", "%u#"])
def test_a_client_id_cannot_widen_a_pattern(client_id: str) -> None:
    mine = rights("%c/#", "a", client_id=client_id)
    assert not mine.may_publish(f"{client_id}/x")
    assert not mine.may_subscribe("#")
    assert mine.may_publish("a")


def test_everything_is_not_the_dollar_topics() -> None:
    mine = rights("#")
    assert mine.may_publish("a")
    assert not mine.may_publish("$SYS/a")
    assert not mine.may_subscribe("$SYS/#")
    assert mine.may_subscribe("#")


def test_a_withheld_filter_is_refused_by_its_code_and_what_lies_around_it_is_not() -> None:
    mine = Rights(Admission(GUEST, "lamp", (), ("#",), (("a/b", 0x80),)), "c1")
    assert (mine.refusal("a/b"), mine.refusal("a/#"), mine.refusal("$x")) == (0x80, 0, 0x87)
    assert not mine.may_subscribe("a/b")


def test_a_closed_topic_stands_above_every_filter_and_may_open_again() -> None:
    shut = {"lock/set"}
    mine = Rights(Admission(GUEST, "lamp", ("#",), ("#",)), "c1", lambda topic: topic in shut)
    assert not mine.may_publish("lock/set")
    assert not mine.may_read("lock/set")
    assert mine.may_publish("lamp")
    assert mine.may_subscribe("#"), "delivery is checked again"
    shut.clear()
    assert mine.may_publish("lock/set")
    assert mine.may_read("lock/set")
