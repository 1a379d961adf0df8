"""What is gathered for the next commit, and what becomes of it when a commit fails."""

from __future__ import annotations

from edge.contract.bus import Done, Publish
from edge.contract.principal import GUEST
from edge.contract.time import SECOND, Stamp
from edge.protocol.mqtt import codec
from edge.protocol.mqtt.codec import V311, Ack
from edge.protocol.mqtt.journal import Changes, Journal
from edge.protocol.mqtt.message import Message, head_of
from edge.protocol.mqtt.reasons import Packet
from edge.protocol.mqtt.router import ALARM
from edge.protocol.mqtt.session import Session
from tests.protocol.mqtt.box import Box


class Disk:
    """A store that finishes when told to."""

    def __init__(self) -> None:
        self.commits: list[tuple[Changes, Done]] = []
        self.journal = Journal(lambda changes, done: self.commits.append((changes, done)))
        self.told: list[tuple[str, BaseException | None]] = []

    def after(self, name: str) -> None:
        self.journal.after(lambda error: self.told.append((name, error)))

    def finish(self, error: BaseException | None = None) -> Changes:
        changes, done = self.commits.pop(0)
        done(error)
        return changes


def message(topic: str, rank: int = 0) -> Message:
    return Message(Publish(topic, b"x", 1, True, GUEST, Stamp(1, 0)), head_of(topic), rank=rank)


class Refusing(Disk):
    """A store that has refused telemetry `t` and alarm `a`, and was told of by who waits for each."""

    def __init__(self) -> None:
        super().__init__()
        self.journal.retain("t", message("t"))
        self.journal.retain("a", message("a", ALARM), ALARM)
        self.after("t")
        self.urgently("a")
        self.journal.flush(0)
        self.error = OSError("disk full")
        assert set(self.finish(self.error).retained) == {"t", "a"}
        assert self.told == [("t", self.error)]

    def urgently(self, name: str) -> None:
        self.journal.after(lambda error: self.told.append((name, error)), urgent=True)


def test_alarms_go_down_alone_when_the_store_refuses_the_whole() -> None:
    disk = Refusing()
    disk.journal.flush(1)
    assert disk.commits[0][0].urgent
    assert set(disk.finish().retained) == {"a"}
    assert disk.told[1:] == [("a", None)]
    disk.journal.flush(2)
    assert disk.commits == [], "the rest has its time"
    disk.journal.flush(SECOND)
    assert set(disk.finish().retained) == {"t"}
    assert disk.journal.idle
    assert disk.journal.recoveries == 1


def test_a_store_that_refuses_even_alarms_is_left_alone_for_a_while() -> None:
    disk = Refusing()
    disk.journal.flush(1)
    last = OSError("no reserve")
    disk.finish(last)
    disk.urgently("b")
    disk.journal.flush(2)
    assert disk.told[1:] == [("a", last), ("b", last)]
    assert disk.commits == []
    disk.journal.flush(SECOND)
    assert set(disk.finish(disk.error).retained) == {"t", "a"}
    disk.urgently("c")
    disk.journal.flush(SECOND + 1)
    assert disk.commits[0][0].urgent, "another try each time"


def test_alarms_that_nobody_waits_for_wait_for_the_rest() -> None:
    disk = Disk()
    disk.journal.retain("a", message("a", ALARM), ALARM)
    disk.journal.flush(0)
    disk.finish(OSError())
    disk.journal.flush(1)
    assert disk.commits == []
    assert disk.journal.failing


def test_who_waits_for_alarms_only_is_told_at_once_when_there_are_none() -> None:
    disk = Disk()
    disk.journal.retain("t", message("t"))
    disk.journal.flush(0)
    disk.finish(OSError())
    disk.journal.after(lambda error: disk.told.append(("a", error)), urgent=True)
    disk.journal.flush(1)
    assert disk.told == [("a", None)]
    assert disk.commits == []


def test_the_loss_of_an_alarm_is_written_with_alarms() -> None:
    disk = Refusing()
    disk.journal.lost("alarm", "queue_full", "lamp")
    disk.journal.lost("telemetry", "queue_full", "lamp")
    disk.journal.flush(1)
    assert disk.finish().losses == {("alarm", "queue_full", "lamp"): 1}
    disk.journal.lost("alarm", "queue_full", "lamp")
    disk.urgently("b")
    disk.journal.flush(2)
    assert disk.finish().losses == {("alarm", "queue_full", "lamp"): 1}
    assert disk.told[-1] == ("b", None)


def test_the_last_note_of_a_row_counts_when_its_class_has_changed() -> None:
    """Whatever was under way, and whether or not it was taken."""
    disk = Refusing()
    newer, newest = message("t", ALARM), message("t")
    disk.journal.retain("t", newer, ALARM)
    disk.urgently("t")
    disk.journal.flush(1)
    disk.journal.retain("t", newest)
    assert disk.commits[0][0].retained["t"] is newer
    disk.finish(OSError())
    disk.journal.flush(SECOND)
    changes = disk.finish(OSError()).retained
    assert changes["t"] is newest
    assert set(changes) == {"t", "a"}


def test_a_packet_id_is_one_row_whatever_the_class_of_its_messages() -> None:
    disk, session = Disk(), Session(("lamp", "c"), 5, None, GUEST)  # type: ignore[arg-type]
    first, second = message("a", ALARM), message("t")
    disk.journal.incoming(session, 7, first, ALARM)
    disk.journal.flush(0)
    disk.journal.incoming(session, 7, False, ALARM)
    disk.journal.incoming(session, 7, second)
    disk.finish(OSError())
    disk.journal.flush(SECOND)
    assert disk.finish().incoming == {(5, 7): second}


def test_a_session_is_known_to_be_on_disk_once_its_row_is() -> None:
    disk, session = Disk(), Session(("lamp", "c"), 5, None, GUEST)  # type: ignore[arg-type]
    disk.journal.session(session)
    disk.journal.flush(0)
    assert not session.kept
    disk.finish()
    assert session.kept
    disk.journal.session(session)
    disk.journal.flush(0)
    disk.journal.forget(session)
    disk.finish()
    assert not session.kept, "it goes with the next commit"


def test_what_gathers_while_a_commit_runs_is_the_next_commit() -> None:
    disk = Disk()
    disk.journal.retain("a", message("a"))
    disk.after("a")
    disk.journal.flush(0)
    for topic in ("b", "c"):
        disk.journal.retain(topic, message(topic))
        disk.after(topic)
        disk.journal.flush(0)
    assert len(disk.commits) == 1
    assert set(disk.finish().retained) == {"a"}
    assert disk.told == [("a", None)]
    assert disk.commits == [], "the turn that is under way goes down whole"
    disk.journal.flush(0)
    assert set(disk.finish().retained) == {"b", "c"}
    assert disk.told == [("a", None), ("b", None), ("c", None)]
    assert disk.journal.idle


def test_who_waits_for_nothing_is_told_at_once() -> None:
    disk = Disk()
    disk.after("nothing")
    disk.journal.flush(0)
    assert disk.told == [("nothing", None)]
    assert disk.commits == []


def test_the_last_note_of_a_row_counts() -> None:
    disk = Disk()
    disk.journal.retain("a", message("a"))
    disk.journal.retain("a", None)
    disk.journal.flush(0)
    assert disk.finish().retained == {"a": None}


def test_a_failed_commit_is_tried_again_later_with_what_came_since() -> None:
    disk = Disk()
    first, second = message("a"), message("a")
    disk.journal.retain("a", first)
    disk.journal.retain("b", first)
    disk.after("first")
    disk.journal.flush(0)
    disk.journal.retain("a", second)
    disk.after("second")
    error = OSError("disk full")
    disk.finish(error)
    disk.journal.flush(SECOND // 2)
    assert disk.told == [("first", error), ("second", error)]
    assert disk.commits == []
    disk.journal.flush(SECOND)
    assert disk.finish().retained == {"a": second, "b": first}
    assert disk.journal.idle


def test_losses_alone_make_no_commit_until_they_are_declared() -> None:
    disk = Disk()
    for _ in range(3):
        disk.journal.lost("telemetry", "no_room", "lamp")
    disk.journal.flush(0)
    assert disk.commits == []
    assert disk.journal.owes
    disk.journal.declare(0)
    assert disk.finish().losses == {("telemetry", "no_room", "lamp"): 3}
    assert not disk.journal.owes


def test_losses_go_with_whatever_is_written() -> None:
    disk = Disk()
    disk.journal.lost("alarm", "queue_full", "lamp")
    disk.journal.retain("a", message("a"))
    disk.journal.flush(0)
    disk.journal.lost("alarm", "queue_full", "lamp")
    disk.finish(OSError())
    disk.journal.flush(SECOND)
    assert disk.finish().losses == {("alarm", "queue_full", "lamp"): 2}


def test_an_ack_can_wait_for_a_loss() -> None:
    disk = Disk()
    disk.journal.lost("state", "refused_not_authorized", "lamp")
    disk.after("ack")
    disk.journal.flush(0)
    assert disk.told == []
    disk.finish()
    assert disk.told == [("ack", None)]


def test_a_released_message_and_its_packet_id_are_in_one_commit() -> None:
    """A commit that ends between PUBREL and the turn must not take one without the other: QoS 2 would come twice."""
    box = Box()
    publisher, other = (box.client(name, clean=False) for name in "ps")
    other.subscribe("a", qos=2)
    publisher.publish("a", b"x", 2, 5)
    box.instant = False
    publisher.publish("b", b"kept", 1, 6, retain=True)
    box.written.clear()
    publisher.connection.receive(codec.encode(Ack(Packet.PUBREL, 5), V311))
    box.commit()
    assert box.disk == []
    box.turn()
    [(changes, _)] = box.disk
    assert list(changes.incoming.values()) == [False]
    assert [out.message.publish.payload for out in changes.outgoing.values() if out is not None] == [b"x"]


def test_a_session_discarded_by_a_clean_start_is_gone_from_disk_before_connack() -> None:
    """Else a kill brings it back, and the next CONNACK says session present (MQTT-3.1.2-6, MQTT-3.2.2-1)."""
    box = Box()
    box.client("c", clean=False).drop()
    box.instant = False
    wire = box.wire()
    wire.send(codec.Connect("c", clean=True, user="lamp"))
    assert wire.read() == []
    [(changes, _)] = box.disk
    assert list(changes.sessions.values()) == [None]
    box.commit()
    assert wire.take(codec.Connack) == codec.Connack(False)
