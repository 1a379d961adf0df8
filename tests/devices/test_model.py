from __future__ import annotations

import msgspec

from edge.contract.capability import Capability
from edge.contract.time import SECOND, Stamp
from edge.contract.wire import JsonLimits
from edge.devices.model import Cap, Device, Latest, Pending, Routes, moment, when, word
from edge.protocol.discovery.record import Availability, Component, Payload, Presence, Reader, Writer
from edge.store.devices import CapabilityRow, DeviceRow
from edge.system.clock import SystemClock
from edge.system.walltime import BUILD_US, UNSURE_US, Reading
from tests.support.clock import FakeClock


def cap(name: str, topic: str = "t", *presences: Presence) -> Cap:
    device = Device(DeviceRow(slug="d", aid="d-d.edge.test"))
    component = Component(
        uid=name,
        cap=Capability(name=name, title=name, kind="sensor"),
        reader=Reader(topic=topic),
        availability=Availability(presences),
    )
    made = Cap(device, CapabilityRow(id=1, slug="d", name=name, state=0, source="s", component=component))
    device.caps[name] = made
    return made


def test_a_topic_leads_to_everything_that_reads_it_and_to_nothing_else() -> None:
    routes, one, two = Routes(), cap("one"), cap("two", "t", Presence("a"), Presence("t"))
    routes.add(one)
    routes.add(two)
    route = routes.get("t")
    assert route is not None
    assert (list(route.readers), list(route.presences)) == ([one, two], [(two, 1)])
    assert "a" in routes
    routes.remove(two)
    assert "a" not in routes
    assert list(route.readers) == [one]
    routes.remove(two)
    routes.remove(one)
    assert routes.get("t") is None


def test_whoever_waits_for_a_commit_is_told_how_it_ended() -> None:
    pending, told = Pending(), []
    pending.then(told.append)
    pending.then(told.append)
    error = OSError()
    pending.done(error)
    assert told == [error, error]
    assert pending.over


def test_a_new_description_with_the_same_availability_keeps_what_is_known_of_it() -> None:
    one = cap("one", "t", Presence("a"))
    one.say(0, True)
    one.describe(one.component, "s2")
    assert (one.online(), one.source) == (True, "s2")
    other = cap("one", "t", Presence("b")).component
    one.describe(other, "s2")
    assert one.online() is None


def test_an_availability_word_is_compared_with_both_payloads() -> None:
    presence = Presence("a", "1", "0")
    for payload, said in ((b"1", True), (b"0", False), (b"2", None), (b"", None), (b"\xff", None)):
        assert word(presence, Payload(payload, JsonLimits())) is said


def test_the_moment_of_a_value_is_the_devices_word_or_its_arrival() -> None:
    clock = FakeClock()
    now = clock.now()
    assert moment(Latest(1, now), clock) == clock.wall(now)[0]
    assert moment(Latest(1, now, 42), clock) == 42
    assert moment(Latest(1, now, 0), clock) is None


def test_an_unsure_clock_dates_what_arrived_since_its_start_and_nothing_before() -> None:
    clock = SystemClock(2, read=lambda: Reading(BUILD_US + SECOND, UNSURE_US, False))
    assert not clock.sure
    assert when(clock.now(), clock) is not None
    assert when(Stamp(1, 7), clock) is None


def test_a_device_is_called_by_its_name_or_its_slug() -> None:
    assert Device(DeviceRow(slug="d", aid="a")).title == "d"
    assert Device(DeviceRow(slug="d", aid="a", name="D")).title == "D"


def test_a_topic_has_the_class_of_its_most_important_reader_and_changes_are_told() -> None:
    routes, plain, alarm = Routes(), cap("plain"), cap("alarm", "t", Presence("a"))
    told: list[int] = []
    routes.on_change.append(lambda: told.append(len(routes.topics())))
    what = msgspec.structs.replace(alarm.component.cap, traffic="alarm")
    alarm.component = msgspec.structs.replace(alarm.component, cap=what)
    routes.add(plain)
    assert routes.traffic("t") == "telemetry"
    routes.add(alarm)
    assert [routes.traffic(topic) for topic in ("t", "a", "elsewhere")] == ["alarm", "state", "telemetry"]
    assert sorted(routes.topics()) == ["a", "t"]
    routes.remove(alarm)
    assert (routes.traffic("t"), told) == ("telemetry", [1, 2, 1])


def test_the_topics_of_a_capability_of_high_risk_are_known_until_it_goes() -> None:
    """Settled G14: what `mqtt.plain_lan` has nothing to do with."""
    routes = Routes()
    lock, other, native = (
        cap("lock", "lock/state", Presence("alive")),
        cap("other", "t"),
        cap("bolt", "aun/v1/d/state/b"),
    )
    for one in (lock, native):
        risky = msgspec.structs.replace(one.component.cap, risk="high", native=one is native)
        writer = None if one is native else Writer(topic="lock/set")
        one.component = msgspec.structs.replace(one.component, cap=risky, writer=writer)
    for one in (lock, other, native):
        routes.add(one)
    closed = ["lock/state", "lock/set", "alive", "aun/v1/d/state/b", "aun/v1/d/task", "aun/v1/d/task/1/event"]
    assert [topic for topic in (*closed, "t", "aun/v1/d/announce") if routes.closed(topic)] == closed
    lock.component = other.component
    routes.remove(lock)
    routes.remove(native)
    assert not any(map(routes.closed, closed))
