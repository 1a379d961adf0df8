from __future__ import annotations

import pytest

from edge.devices.names import RESERVED_US, Names
from edge.protocol.discovery.record import Refusal
from tests.support.clock import FakeClock


def names(*used: str, clock: FakeClock | None = None) -> Names:
    return Names(clock or FakeClock(), used.__contains__)


def test_the_first_hint_that_makes_a_slug_is_taken() -> None:
    assert names().first(("温度计", "aun", "x", "Living Room", "other")) == "living-room"
    assert names().first(()) == "device"


def test_a_taken_name_gets_a_number() -> None:
    assert names("lamp").first(("Lamp",)) == "lamp-2"
    assert names("lamp", "lamp-2", "lamp-3").first(("Lamp",)) == "lamp-4"


def test_a_name_is_reserved_for_a_minute_or_until_it_is_released() -> None:
    clock = FakeClock()
    book = names(clock=clock)
    assert book.reserve("Lamp") == "lamp"
    assert book.first(("lamp",)) == "lamp-2"
    with pytest.raises(Refusal, match="taken"):
        book.reserve("lamp")
    clock.advance(RESERVED_US)
    assert book.taken("lamp")
    clock.advance(1)
    assert not book.taken("lamp")
    book.reserve("lamp")
    book.release("lamp")
    book.release("lamp")
    assert not book.taken("lamp")


@pytest.mark.parametrize("name", ["aun", "Zigbee2MQTT", "", "x", "温度", "HOME"])
def test_a_name_of_a_convention_or_none_is_refused(name: str) -> None:
    with pytest.raises(Refusal, match="bad name"):
        names().reserve(name)


def test_a_long_name_is_cut() -> None:
    assert names().reserve("a" * 60) == "a" * 40
