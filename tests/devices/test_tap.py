from __future__ import annotations

from edge.contract.bus import Publish
from edge.contract.limit import Limits
from edge.contract.principal import NODE
from edge.contract.time import Stamp
from edge.devices.tap import Taps, heard


def message(topic: str, payload: bytes = b"x") -> Publish:
    return Publish(topic, payload, 0, False, NODE, Stamp(1, 1))


async def test_a_tap_that_is_not_read_skips_and_says_how_many() -> None:
    limits = Limits({"devices.tap_queue": 2})
    taps = Taps(limits)
    listening = taps.open(("#",))
    assert taps.sink([message(str(number)) for number in range(4)], lambda error: None) == ()
    assert limits.hits == {"devices.tap_queue": 2}
    assert [(await anext(listening)).topic for _ in range(2)] == ["0", "1"]
    taps.sink([message("4")], lambda error: None)
    last = await anext(listening)
    assert (last.topic, last.missed) == ("4", 2)


async def test_a_tap_that_was_closed_copies_nothing() -> None:
    taps = Taps(Limits())
    listening = taps.open(("#",))
    taps.sink([message("a")], lambda error: None)
    await anext(listening)
    await listening.aclose()  # type: ignore[attr-defined]
    taps.sink([message("b")], lambda error: None)
    assert [item async for item in listening] == []


def test_a_message_names_who_sent_it() -> None:
    assert heard(message("a")).user == "node"
