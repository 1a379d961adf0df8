"""What lies under a connection, and what its acks may wait for."""

from __future__ import annotations

from edge.protocol.mqtt.codec import Ack, Connack
from edge.protocol.mqtt.reasons import Reason
from edge.protocol.mqtt.wire import AT_ONCE, JOURNAL, Reply, State
from tests.protocol.mqtt.box import Box


class Noted(Reply):
    """A reply that notes when it was sent."""

    def __init__(self, data: bytes, order: list[bytes]) -> None:
        super().__init__(data)
        self._order = order

    def sent(self) -> None:
        self._order.append(self.data)


def test_a_reply_is_asked_for_its_bytes_and_told_when_they_are_on_their_way() -> None:
    box, order = Box(), []
    client = box.client()
    for data in (b"\x40\x02\x00\x01", b"\x40\x02\x00\x02"):
        client.connection.ack(AT_ONCE, Noted(data, order))
    box.broker.need_turn()
    assert [one.packet_id for one in client.read() if isinstance(one, Ack)] == [1, 2]
    assert order == [b"\x40\x02\x00\x01", b"\x40\x02\x00\x02"]


def test_a_reply_for_the_journal_waits_for_what_was_noted_so_far() -> None:
    box, order = Box(instant=False), []
    client = box.client()
    box.host("a", b"x", retain=True)
    box.commit()
    box.host("a", b"y", retain=True)
    client.connection.ack(JOURNAL, Noted(b"\x40\x02\x00\x01", order))
    box.broker.need_turn()
    box.turn()
    assert order == []
    while box.disk:
        box.commit()
        box.turn()
    assert len(order) == 1


def test_a_reply_has_nothing_to_say_unless_it_is_given_something() -> None:
    reply = Reply()
    assert (reply.kept(), reply.failed(), reply.data) == (b"", None, b"")


def test_a_connection_is_new_until_connect_and_open_after_it() -> None:
    box = Box()
    wire = box.wire()
    assert wire.connection.state is State.NEW
    client = box.client()
    assert isinstance(client.connack, Connack)
    assert client.connection.state is State.OPEN
    client.connection.close(Reason.SERVER_SHUTTING_DOWN, "")
    assert client.connection.state is State.CLOSED
    assert not client.open


def test_a_silent_peer_gets_no_byte() -> None:
    box = Box()
    wire = box.wire()
    box.turn()
    assert wire.inbox == []
    assert wire.connection.state is State.NEW
