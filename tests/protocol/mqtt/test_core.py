"""What every part of the broker shares: one moment per turn, what was lost, what is counted."""

from __future__ import annotations

import msgspec
import pytest

from edge.contract.bus import Publish
from edge.contract.principal import NODE, PLAIN_LAN
from edge.contract.time import SECOND
from edge.protocol.mqtt import codec, limits
from edge.protocol.mqtt.core import DECLARE_US
from edge.protocol.mqtt.fields import Fault
from edge.protocol.mqtt.reasons import Reason
from edge.protocol.mqtt.router import CLASSES
from tests.protocol.mqtt.box import EVERYTHING, V5, Box


def test_everything_in_a_turn_happens_at_one_moment() -> None:
    box = Box()
    first = box.broker.stamp
    box.now_us += SECOND
    assert box.broker.stamp is first
    box.broker.turn()
    assert box.broker.now_us == first.mono_us + SECOND


def test_a_turn_is_asked_for_once() -> None:
    box = Box()
    box.turn()
    for _ in range(3):
        box.broker.need_turn()
    assert box._turns == 1
    box.turn()
    box.broker.need_turn()
    assert box._turns == 1


@pytest.mark.limit("mqtt.topic_octets", "mqtt.topic_levels")
@pytest.mark.parametrize(
    ("topic", "broken"),
    [("x" * 10, ""), ("x" * 11, limits.TOPIC_OCTETS.name), ("a/b/c", ""), ("a/b/c/d", limits.TOPIC_LEVELS.name)],
)
def test_a_topic_at_its_limit_is_good_and_one_above_is_a_fault(topic: str, broken: str) -> None:
    box = Box(topic_octets=10, topic_levels=3)
    if not broken:
        box.broker.check_topic(topic, topic.encode())
        assert box.limits.hits == {}
        return
    with pytest.raises(Fault) as caught:
        box.broker.check_topic(topic, topic.encode())
    assert caught.value.reason is Reason.TOPIC_NAME_INVALID
    assert box.limits.hits == {broken: 1}


def test_what_is_lost_is_counted_by_reason_and_told_by_class_reason_and_user() -> None:
    box = Box(instant=False)
    for rank in (0, 2, 2):
        box.broker.lost("queue_full", rank, "lamp")
    assert box.broker.counters == {"dropped.queue_full": 3}
    assert box.disk == []
    box.pass_(DECLARE_US / SECOND)
    [(changes, _)] = box.disk
    assert changes.losses == {(CLASSES[0], "queue_full", "lamp"): 1, (CLASSES[2], "queue_full", "lamp"): 2}


def test_losses_that_meet_a_running_commit_are_declared_after_it() -> None:
    box = Box(instant=False)
    box.broker.lost("queue_full", 0, "lamp")
    box.pass_(3)
    box.broker.lost("queue_full", 0, "lamp")
    box.pass_(3)
    assert len(box.disk) == 1
    box.commit()
    box.pass_(3)
    assert [changes.losses for changes, _ in box.disk] == [{("telemetry", "queue_full", "lamp"): 1}]


def test_a_refused_publish_is_a_loss_of_its_class() -> None:
    box = Box()
    box.traffic = lambda topic: "alarm"
    client = box.client()
    publish = Publish("alarm/smoke", b"", 0, False, NODE, box.broker.stamp)
    box.broker.refused(publish, client.connection, Reason.NOT_AUTHORIZED)
    assert box.broker.counters == {"refused.not_authorized": 1, "dropped.refused_not_authorized": 1}
    box.broker.declare()
    box.turn()
    assert box.written[-1].losses == {("alarm", "refused_not_authorized", "lamp"): 1}


def test_a_live_copy_without_room_is_counted_under_the_limit_that_it_met() -> None:
    box = Box()
    session = box.client().connection.session
    assert session is not None
    box.broker.lost_live(box.broker.router.route("a"), session, limits.WRITE_OCTETS)
    assert box.limits.hits == {limits.WRITE_OCTETS.name: 1}
    assert box.broker.counters == {"dropped.no_room": 1}


def test_figures_say_how_much_there_is() -> None:
    box = Box()
    reader = box.client("r")
    reader.subscribe("a/#", qos=1)
    box.host("a/1", b"four", 1, retain=True)
    found = box.broker.stats()
    assert found["messages_in"] == 1
    assert {name: found[name] for name in ("connections", "sessions", "subscriptions", "retained", "inflight")} == {
        "connections": 1,
        "sessions": 1,
        "subscriptions": 1,
        "retained": 1,
        "inflight": 1,
    }
    assert found["retained_octets"] == len(b"\0\3a/1four")
    assert found["octets_out"] > 0
    box.broker.count("odd", 2)
    assert box.broker.stats()["odd"] == 2


def test_an_appointment_is_kept_when_its_time_has_come() -> None:
    box, kept = Box(), []
    box.broker.deadlines.at(box.now_us + 2 * SECOND, lambda: kept.append(box.broker.now_us))
    box.pass_(1.9)
    assert kept == []
    box.pass_(0.1)
    assert kept == [3 * SECOND]


def test_who_came_in_without_tls_neither_tells_nor_hears_a_closed_topic() -> None:
    """Settled G14; also when a topic is closed while they are there."""
    box = Box()
    plain = msgspec.structs.replace(EVERYTHING.who, via=PLAIN_LAN)
    box.users["plain"] = msgspec.structs.replace(EVERYTHING, who=plain, user="plain")
    shut: set[str] = set()
    box.broker.closed = lambda topic: topic in shut
    safe, lamp = box.client("safe"), box.client("lamp", user="plain", version=V5)
    for client in (safe, lamp):
        client.subscribe("#")
    for closed, heard in ((False, 2), (True, 1)):
        if closed:
            shut.add("lock/set")
            box.broker.router.generation += 1
        lamp.publish("lock/set", b"open", qos=1)
        reason = [one.reason for one in lamp.read() if isinstance(one, codec.Ack)]
        assert reason == [0x87 if closed else 0]
        safe.read()
        safe.publish("lock/set", b"open")
        assert len(safe.read()) + len(lamp.read()) == heard
