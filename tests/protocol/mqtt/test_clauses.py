"""Every numbered statement about a server has a test (`clauses.py` says which); here those that no other file shows."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from edge.contract.bus import Admission
from edge.contract.principal import Kind, Principal
from edge.protocol.mqtt import codec
from edge.protocol.mqtt.codec import V5, V311, Ack, Connack, Connect, Disconnect, PublishPacket, Suback, Unsuback, Will
from edge.protocol.mqtt.properties import Prop, Properties
from edge.protocol.mqtt.reasons import ALLOWED, Packet, Reason
from tests.protocol.mqtt import clauses
from tests.protocol.mqtt.box import Box, Client

BOTH = pytest.mark.parametrize("version", [V311, V5])
HERE = Path(__file__).resolve().parent
TRANSPORTS = HERE.parents[1] / "transports" / "mqtt"


@cache
def named(file: str) -> frozenset[str]:
    """The tests of a file."""
    path = HERE / f"test_{file}.py"
    tree = ast.parse((path if path.exists() else TRANSPORTS / path.name).read_text(encoding="utf-8"))
    found = (node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(name.removeprefix("test_") for name in found if name.startswith("test_"))


@pytest.mark.parametrize(("table", "count"), [(clauses.V311, 141), (clauses.V5, 251)], ids=["3.1.1", "5"])
def test_every_statement_has_a_test_that_is_there_or_a_reason(table: str, count: int) -> None:
    rows = clauses.rows(table)
    assert len(rows) == count
    for number, told in rows.items():
        if told[0] in clauses.REASONS:
            continue
        for one in told:
            file, name = one.split(": ")
            assert name in named(file), f"MQTT-{number}: {one}"


def keep(version: int) -> dict[str, Any]:
    """Fields of a CONNECT for a session that stays."""
    return {"clean": False, "properties": {Prop.SESSION_EXPIRY: 600} if version == V5 else {}}


def publishes(client: Client) -> list[PublishPacket]:
    return [one for one in client.read() if isinstance(one, PublishPacket)]


def acks(client: Client) -> list[Ack]:
    return [one for one in client.read() if isinstance(one, Ack)]


# CONNECT and its session.


@BOTH
@pytest.mark.parametrize("client_id", ["a", "0123456789abcdefghijklm", "nopqrstuvwxyzABCDEFGHIJ", "KLMNOPQRSTUVWXYZ"])
def test_client_ids_of_the_smallest_alphabet_are_taken(version: int, client_id: str) -> None:
    """MQTT-3.1.3-5."""
    assert Box().client(client_id, version=version).connack.reason == 0


@BOTH
def test_clients_without_an_id_are_sessions_of_their_own(version: int) -> None:
    """MQTT-3.1.3-6, MQTT-3.2.2-16 of 5."""
    box = Box()
    one, two = box.client("", version=version), box.client("", version=version)
    assert (one.connack.reason, two.connack.reason) == (0, 0)
    assert one.open
    assert len(box.broker.sessions) == 2
    if version == V5:
        given = [found.connack.properties[Prop.ASSIGNED_CLIENT_ID] for found in (one, two)]
        assert sorted(given) == sorted(client_id for _, client_id in box.broker.sessions)


CONNECT_FIELDS = [
    ("nothing announced, a client id is there", 0x02, "0001 70", True),
    ("MQTT-3.1.3-3 no client id", 0x02, "", False),
    ("MQTT-3.1.2-18 of 3.1.1, -16 of 5: a user name that is not announced", 0x02, "0001 70 0001 71", False),
    ("MQTT-3.1.2-19 of 3.1.1, -17 of 5: no user name", 0x82, "0001 70", False),
    ("a user name", 0x82, "0001 70 0004 6c616d70", True),
    ("MQTT-3.1.2-20 of 3.1.1, -18 of 5: a password that is not announced", 0x82, "0001 70 0001 71 0001 71", False),
    ("MQTT-3.1.2-21 of 3.1.1, -19 of 5: no password", 0xC2, "0001 70 0004 6c616d70", False),
    ("user name and password", 0xC2, "0001 70 0004 6c616d70 0001 70", True),
    ("MQTT-3.1.2-9: no will topic and no message", 0x06, "0001 70", False),
    ("MQTT-3.1.2-9: no will message", 0x06, "0001 70 0001 77", False),
]


@BOTH
@pytest.mark.parametrize(("why", "flags", "tail", "good"), CONNECT_FIELDS, ids=[row[0] for row in CONNECT_FIELDS])
def test_a_connect_has_the_fields_that_its_flags_announce(
    version: int, why: str, flags: int, tail: str, good: bool
) -> None:
    box = Box()
    box.users[""] = box.users["lamp"]
    properties = b"\0" if version == V5 else b""
    rest = bytes.fromhex(tail)
    if version == V5 and flags & 4:
        rest = rest[:3] + b"\0" + rest[3:]
    client = box.wire()
    client.version = version
    client.raw(codec.frame(0x10, b"\0\4MQTT" + bytes((version, flags, 0, 0)) + properties + rest))
    assert client.open is good
    assert bool(box.broker.sessions) is good


@BOTH
@pytest.mark.parametrize("bad", ["eda080", "c328", "610062"], ids=["a surrogate", "ill-formed", "U+0000"])
@pytest.mark.parametrize("place", ["client id", "will topic", "user name"])
def test_strings_of_a_connect_are_well_formed(version: int, bad: str, place: str) -> None:
    """MQTT-3.1.3-4, MQTT-3.1.3-10 and -11 of 3.1.1, MQTT-3.1.3-11 and -12 of 5."""
    box = Box()
    mark = {"client id": "IDID", "will topic": "WIWI", "user name": "lamp"}[place]
    whole = codec.encode(Connect("IDID", user="lamp", version=version, will=Will("WIWI", b"x")), version)
    raw = bytes.fromhex(bad)
    at = whole.index(mark.encode())
    body = whole[2 : at - 2] + len(raw).to_bytes(2, "big") + raw + whole[at + 4 :]
    client = box.wire()
    client.version = version
    client.raw(codec.frame(0x10, body))
    assert not client.open
    assert not box.broker.sessions


@BOTH
def test_what_follows_a_refused_connect_is_not_looked_at(version: int) -> None:
    """MQTT-3.1.4-5 of 3.1.1, MQTT-3.1.4-6 of 5."""
    box = Box()
    client = box.wire()
    client.version = version
    client.send(Connect("c", user="stranger", version=version), PublishPacket("a", b"x"), codec.Ping())
    assert isinstance(client.take(Connack), Connack)
    assert not client.open
    assert box.heard == []


def test_a_refusal_that_3_1_1_has_no_code_for_closes_in_silence() -> None:
    """MQTT-3.2.2-6 of 3.1.1: here a will topic that is too long."""
    box = Box(topic_octets=3)
    client = box.wire().send(Connect("c", user="lamp", will=Will("long", b"")))
    assert client.read() == []
    assert not client.open


def test_every_refusal_of_a_connect_has_a_code_that_a_connack_may_carry() -> None:
    """MQTT-3.2.2-8 of 5: the codec of the test refuses what is not in the table."""
    box = Box(topic_octets=3, client_id_octets=5)
    box.users["deaf"] = Admission(Principal(Kind.DEVICE, "d"), "deaf", (), ())
    asked: list[tuple[Connect, int]] = [
        (Connect("c", user="stranger", version=V5), 0x86),
        (Connect("c", version=V5), 0x87),
        (Connect("c", user="deaf", will=Will("a"), version=V5), 0x87),
        (Connect("c", user="lamp", will=Will("long"), version=V5), 0x90),
        (Connect("longer", user="lamp", version=V5), 0x85),
        (Connect("c", user="lamp", version=V5, properties={Prop.AUTHENTICATION_METHOD: "x"}), 0x8C),
    ]
    for connect, reason in asked:
        client = box.wire()
        client.version = V5
        found = client.send(connect).take(Connack)
        assert (found.reason, found.session_present) == (reason, False)
        assert reason in ALLOWED[Packet.CONNACK]
        assert not client.open


def test_a_connack_says_nothing_that_was_not_asked_for() -> None:
    """MQTT-3.1.2-28, MQTT-4.12.0-6: no Response Information, no Authentication Method."""
    box = Box()
    asked: list[Properties] = [{}, {Prop.REQUEST_RESPONSE: 0}, {Prop.REQUEST_RESPONSE: 1}]
    for properties in asked:
        told = box.client(version=V5, properties=properties).connack.properties
        assert not {Prop.RESPONSE_INFORMATION, Prop.AUTHENTICATION_METHOD, Prop.AUTHENTICATION_DATA} & set(told)


@BOTH
def test_clean_start_discards_what_there_was(version: int) -> None:
    """MQTT-3.1.2-4, MQTT-3.1.2-6, MQTT-3.1.4-4, MQTT-3.2.2-2 of 5; MQTT-3.1.2-6 of 3.1.1."""
    box = Box()
    first = box.client(version=version, **keep(version))
    assert not first.connack.session_present
    first.subscribe("a", qos=1)
    first.drop()
    box.host("a", b"kept", 1)
    clean = box.client(version=version, clean=True)
    assert not clean.connack.session_present
    assert clean.read() == []
    box.host("a", b"live", 1)
    assert clean.read() == []


def test_before_its_connack_nobody_hears_a_disconnect() -> None:
    """MQTT-3.14.0-1: a client that is taken over while the store still has its session to keep."""
    box = Box(instant=False)
    early = box.wire()
    early.version = V5
    connect = Connect("c", user="lamp", version=V5, properties={Prop.SESSION_EXPIRY: 60})
    early.send(connect)
    late = box.wire()
    late.version = V5
    late.send(connect)
    assert early.read() == []
    assert not early.open
    while box.disk:
        box.commit()
        box.turn()
    assert late.take(Connack).reason == 0


def test_after_disconnect_nothing_more_is_sent() -> None:
    """MQTT-3.14.4-1."""
    box = Box()
    box.keeps = lambda publish: publish.qos > 0
    client = box.client(version=V5)
    client.subscribe("a")
    client.publish("b", b"x", 1, 5)
    client.raw(b"\x36\0")
    assert isinstance(client.read()[-1], Disconnect)
    box.keep()
    box.host("a", b"late")
    assert client.read() == []


def test_auth_with_flags_is_malformed() -> None:
    """MQTT-3.15.1-1."""
    client = Box().client(version=V5).raw(b"\xf1\0")
    assert client.take(Disconnect).reason == Reason.MALFORMED_PACKET


# Wills and retained messages.


@BOTH
def test_a_will_goes_out_once(version: int) -> None:
    """MQTT-3.1.2-10, MQTT-3.1.2-16 of 3.1.1, MQTT-3.1.2-14 of 5: not again, and not retained."""
    box = Box()
    box.client(version=version, will=Will("w", b"gone"), **keep(version)).drop()
    assert [one.payload for one in box.heard] == [b"gone"]
    box.client(version=version, **keep(version)).drop()
    box.pass_(700_000)
    assert [one.payload for one in box.heard] == [b"gone"]
    assert box.broker.stats()["retained"] == 0


@BOTH
def test_without_a_will_nothing_goes_out(version: int) -> None:
    """MQTT-3.1.2-12 of 3.1.1."""
    box = Box()
    box.client(version=version).drop()
    box.client(version=version, keep_alive=1)
    box.pass_(10)
    assert box.heard == []


@BOTH
def test_a_retained_message_outlives_the_session_it_came_from(version: int) -> None:
    """MQTT-3.1.2-7 of 3.1.1."""
    box = Box()
    box.client("p", version=version).publish("a", b"stays", retain=True).drop()
    reader = box.client("r", version=version)
    reader.subscribe("a")
    assert [one.payload for one in publishes(reader)] == [b"stays"]


@BOTH
def test_a_retained_message_of_qos_0_takes_the_place_of_the_last(version: int) -> None:
    """MQTT-3.3.1-7 of 3.1.1, MQTT-3.3.1-5 of 5."""
    box = Box()
    publisher = box.client("p", version=version)
    publisher.publish("a", b"old", 1, 1, retain=True).publish("a", b"new", retain=True)
    reader = box.client("r", version=version)
    reader.subscribe("a", qos=2)
    assert [(one.payload, one.qos, one.retain) for one in publishes(reader)] == [(b"new", 0, True)]


# Packets and their order.


@BOTH
def test_acks_carry_the_packet_identifier_they_answer(version: int) -> None:
    """MQTT-2.3.1-6 and -7, MQTT-3.3.4-1 of 3.1.1, MQTT-2.2.1-5 and -6 of 5; QoS 0 has no answer."""
    client = Box().client(version=version)
    for packet_id in (1, 0x1234, 0xFFFF):
        client.publish("a", b"x", 0)
        assert client.read() == []
        assert client.publish("a", b"x", 1, packet_id).take(Ack) == Ack(Packet.PUBACK, packet_id)
        assert client.publish("a", b"x", 2, packet_id).take(Ack) == Ack(Packet.PUBREC, packet_id)
        assert client.send(Ack(Packet.PUBREL, packet_id)).take(Ack) == Ack(Packet.PUBCOMP, packet_id)
        assert client.send(codec.Subscribe(packet_id, [codec.Wish("b")])).take(Suback).packet_id == packet_id
        assert client.send(codec.Unsubscribe(packet_id, ["b"])).take(Unsuback).packet_id == packet_id


@BOTH
@pytest.mark.parametrize("qos", [1, 2])
def test_what_is_sent_first_has_no_dup_whatever_came_in(version: int, qos: int) -> None:
    """MQTT-3.3.1-3, MQTT-4.3.1-1, MQTT-4.3.2-1 of 3.1.1, MQTT-4.3.2-2 and MQTT-4.3.3-2 of 5."""
    box = Box()
    readers = [box.client(f"r{granted}", version=version) for granted in range(3)]
    for granted, reader in enumerate(readers):
        reader.subscribe("a", qos=granted)
    publisher = box.client("p", version=version).publish("a", b"x", qos, 7, dup=True)
    publisher.send(Ack(Packet.PUBREL, 7)) if qos == 2 else None
    for granted, reader in enumerate(readers):
        assert [(one.qos, one.dup) for one in publishes(reader)] == [(min(qos, granted), False)]


@BOTH
def test_a_packet_identifier_is_new_again_once_its_exchange_is_over(version: int) -> None:
    """MQTT-4.3.2-2 and MQTT-4.3.3-2 of 3.1.1, MQTT-4.3.2-5, MQTT-4.3.3-9 and -12 of 5: whatever DUP says."""
    box = Box()
    box.users["lamp"] = Admission(box.users["lamp"].who, "lamp", ("a",), ())
    client = box.client(version=version)
    for dup in (False, True):
        client.publish("a", b"1", 1, 3, dup=dup)
        client.publish("forbidden", b"2", 2, 3, dup=dup)
        if version == V311:
            client.send(Ack(Packet.PUBREL, 3))
        client.publish("a", b"2", 2, 3, dup=dup)
        client.send(Ack(Packet.PUBREL, 3))
    assert [one.payload for one in box.heard] == [b"1", b"2", b"1", b"2"]


def test_pubrecs_leave_in_order_although_commits_do_not() -> None:
    """MQTT-4.6.0-3 of 3.1.1, as a receiver: a message that nobody keeps does not overtake one that is kept."""
    box = Box()
    box.keeps = lambda publish: publish.payload == b"kept"
    client = box.client()
    client.publish("a", b"kept", 2, 1).publish("a", b"x", 2, 2)
    assert client.read() == []
    box.keep()
    assert [one.packet_id for one in acks(client)] == [1, 2]


@BOTH
def test_pubrels_leave_in_the_order_of_their_pubrecs(version: int) -> None:
    """MQTT-4.6.0-4 of 3.1.1, as a sender."""
    box = Box()
    client = box.client(version=version, **keep(version))
    client.subscribe("a", qos=2)
    for _ in range(3):
        box.host("a", b"x", 2)
    sent = [one.packet_id for one in publishes(client)]
    order = [sent[1], sent[2], sent[0]]
    client.send(*[Ack(Packet.PUBREC, packet_id) for packet_id in order])
    assert [(one.kind, one.packet_id) for one in acks(client)] == [(Packet.PUBREL, one) for one in order]


@BOTH
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("away", [False, True])
def test_messages_of_a_topic_and_a_qos_come_in_the_order_in_which_they_were_sent(
    version: int, qos: int, away: bool
) -> None:
    """MQTT-4.6.0-5, MQTT-4.6.0-6; from a slow reader's queue, from an absent one's, and across both."""
    box = Box(inflight=4)
    reader = box.client("r", version=version, **keep(version))
    reader.subscribe("a", qos=qos)
    publisher = box.client("p", version=version)
    found: list[bytes] = []

    def take() -> None:
        while got := publishes(reader):
            for one in got:
                found.append(one.payload)
                if one.qos:
                    reader.send(Ack(Packet.PUBACK if one.qos == 1 else Packet.PUBREC, one.packet_id))
                if one.qos == 2:
                    reader.send(Ack(Packet.PUBCOMP, one.packet_id))

    for at in range(30):
        if at == 10 and away and qos:
            reader.drop()
        publisher.publish("a", b"%02d" % at, qos, at + 1)
        if qos == 2:
            publisher.send(Ack(Packet.PUBREL, at + 1))
    if away and qos:
        reader = box.client("r", version=version, **keep(version))
    take()
    assert list(dict.fromkeys(found)) == [b"%02d" % at for at in range(30)]


def test_what_was_sent_once_does_not_expire() -> None:
    """MQTT-4.3.3-7: expiry is for messages whose delivery has not begun."""
    box = Box()
    client = box.client(version=V5, **keep(V5))
    client.subscribe("a", qos=2)
    publisher = box.client("p", version=V5)
    publisher.publish("a", b"x", 2, 1, properties={Prop.MESSAGE_EXPIRY: 5}).send(Ack(Packet.PUBREL, 1))
    assert len(publishes(client)) == 1
    client.drop()
    box.pass_(60)
    client = box.client(version=V5, **keep(V5))
    assert [(one.payload, one.dup, one.properties) for one in publishes(client)] == [
        (b"x", True, {Prop.MESSAGE_EXPIRY: 0})
    ]


def test_an_exchange_goes_on_although_its_message_has_expired() -> None:
    """MQTT-4.3.3-13."""
    box = Box()
    for fields in (keep(V5), {}):
        client = box.client(version=V5, **fields)
        client.publish("a", b"x", 2, 30, properties={Prop.MESSAGE_EXPIRY: 1})
        assert client.take(Ack) == Ack(Packet.PUBREC, 30)
        box.pass_(5)
        assert client.send(Ack(Packet.PUBREL, 30)).take(Ack) == Ack(Packet.PUBCOMP, 30)


def test_a_full_window_stops_messages_only() -> None:
    """MQTT-4.9.0-3."""
    box = Box()
    client = box.client(version=V5, properties={Prop.RECEIVE_MAXIMUM: 1})
    client.subscribe("a", qos=1)
    for _ in range(3):
        box.host("a", b"x", 1)
    assert len(publishes(client)) == 1
    assert client.send(codec.Ping()).take(codec.Ping).kind == Packet.PINGRESP
    assert client.publish("b", b"x", 1, 4).take(Ack) == Ack(Packet.PUBACK, 4)
    assert client.send(codec.Subscribe(5, [codec.Wish("c")])).take(Suback).reasons == [0]
    box.host("c", b"qos 0", 0)
    assert [one.payload for one in publishes(client)] == [b"qos 0"]


# Subscriptions.


@BOTH
def test_a_filter_ends_by_its_very_characters(version: int) -> None:
    """MQTT-3.10.4-1: a filter that matches another does not end it."""
    box = Box()
    client = box.client(version=version)
    client.subscribe("a/+", "a/b", "A/b")
    reasons = client.send(codec.Unsubscribe(1, ["a/#", "a/B", "a/b/", "a/b"])).take(Unsuback).reasons
    assert reasons == ([0x11, 0x11, 0x11, 0] if version == V5 else [])
    session = client.connection.session
    assert session is not None
    assert set(session.subscriptions) == {"a/+", "A/b"}


@BOTH
def test_several_filters_end_with_one_answer(version: int) -> None:
    """MQTT-3.10.4-6, MQTT-3.11.3-1 of 5."""
    box = Box()
    client = box.client(version=version)
    client.subscribe("a", "b", "c")
    found = client.send(codec.Unsubscribe(9, ["a", "x", "c"])).take(Unsuback)
    assert (found.packet_id, found.reasons) == (9, [0, 0x11, 0] if version == V5 else [])
    for topic in "abc":
        box.host(topic, b"x")
    assert [one.topic for one in publishes(client)] == ["b"]


@BOTH
@pytest.mark.parametrize("qos", [1, 2])
def test_what_was_under_way_when_its_subscription_ended_is_completed(version: int, qos: int) -> None:
    """MQTT-3.10.4-3: also after a reconnect."""
    box = Box()
    client = box.client(version=version, **keep(version))
    client.subscribe("a", qos=2)
    box.host("a", b"x", qos)
    packet_id = client.take(PublishPacket).packet_id
    client.send(codec.Unsubscribe(1, ["a"])).take(Unsuback)
    client.drop()
    client = box.client(version=version, **keep(version))
    assert client.take(PublishPacket) == PublishPacket("a", b"x", qos, dup=True, packet_id=packet_id)
    if qos == 2:
        assert client.send(Ack(Packet.PUBREC, packet_id)).take(Ack) == Ack(Packet.PUBREL, packet_id)
        client.send(Ack(Packet.PUBCOMP, packet_id))
    else:
        client.puback(packet_id)
    assert box.broker.stats()["inflight"] == 0


@BOTH
def test_a_subscription_is_replaced_without_losing_a_message(version: int) -> None:
    """MQTT-3.8.4-4 of 5, MQTT-3.8.4-3 of 3.1.1: the flow of publications is not interrupted."""
    box = Box()
    client = box.client(version=version)
    client.subscribe("a", qos=2)
    box.host("a", b"before", 1)
    client.send(codec.Subscribe(5, [codec.Wish("a", 1)]))
    box.host("a", b"after", 1)
    assert [one.payload for one in publishes(client)] == [b"before", b"after"]


@BOTH
@pytest.mark.parametrize("bad", ["eda080", "c328", "610062"], ids=["a surrogate", "ill-formed", "U+0000"])
@pytest.mark.parametrize("first", [0x82, 0xA2], ids=["SUBSCRIBE", "UNSUBSCRIBE"])
def test_strings_of_a_subscription_are_well_formed(version: int, bad: str, first: int) -> None:
    """MQTT-3.8.3-1, MQTT-3.10.3-1."""
    raw = bytes.fromhex(bad)
    body = b"\0\1" + (b"\0" if version == V5 else b"") + len(raw).to_bytes(2, "big") + raw
    client = Box().client(version=version).raw(codec.frame(first, body + (b"\0" if first == 0x82 else b"")))
    assert not client.open
    if version == V5:
        assert client.take(Disconnect).reason == Reason.MALFORMED_PACKET


@BOTH
def test_names_are_compared_as_they_are(version: int) -> None:
    """MQTT-4.7.3-4: no normalization, no folding, no substitution."""
    box = Box()
    client = box.client(version=version)
    names = ["é", "e\u0301", "É", "/é", "é/", " é", "\ufeffé"]
    assert client.subscribe(*names) == [0] * len(names)
    for name in names:
        box.host(name, name.encode())
    assert [(one.topic, one.payload) for one in publishes(client)] == [(name, name.encode()) for name in names]


def group_of(box: Box, *members: tuple[str, int]) -> list[Client]:
    """Members of one shared subscription, each with its QoS."""
    found = []
    for client_id, qos in members:
        client = box.client(client_id, version=V5, **keep(V5))
        client.subscribe("$share/g/a", qos=qos)
        found.append(client)
    return found


def test_each_member_of_a_group_has_its_own_qos() -> None:
    """MQTT-4.8.2-3."""
    box = Box()
    members = group_of(box, ("zero", 0), ("one", 1), ("two", 2))
    for _ in range(9):
        box.host("a", b"x", 2)
    for qos, member in enumerate(members):
        assert [one.qos for one in publishes(member)] == [qos] * 3


def test_a_message_of_qos_2_that_a_member_was_sent_stays_that_members() -> None:
    """MQTT-4.8.2-4, MQTT-4.8.2-5: completed when it comes back, and nobody else's when it does not."""
    box = Box()
    one, two = group_of(box, ("one", 2), ("two", 2))
    for payload in (b"1", b"2"):
        box.host("a", payload, 2)
    mine, others = publishes(one), publishes(two)
    assert len(mine) == len(others) == 1
    one.drop()
    assert two.read() == []
    one = box.client("one", version=V5, **keep(V5))
    assert [(again.payload, again.dup) for again in publishes(one)] == [(mine[0].payload, True)]
    one.drop()
    assert not box.client("one", version=V5, clean=True).connack.session_present
    assert two.read() == []


@pytest.mark.parametrize(("qos", "kind"), [(1, Packet.PUBACK), (2, Packet.PUBREC)])
def test_what_a_member_refuses_goes_to_no_other(qos: int, kind: Packet) -> None:
    """MQTT-4.8.2-6."""
    box = Box()
    members = group_of(box, ("one", qos), ("two", qos))
    box.host("a", b"x", qos)
    sent = [(member, one) for member in members for one in publishes(member)]
    assert len(sent) == 1
    chosen, message = sent[0]
    chosen.send(Ack(kind, message.packet_id, Reason.UNSPECIFIED_ERROR))
    assert all(member.read() == [] for member in members)
    assert box.broker.stats()["inflight"] == 0


# Properties and reasons of version 5.


def test_user_properties_keep_their_order() -> None:
    """MQTT-3.3.2-18, MQTT-3.1.3-10: of a message, of a retained one, of a will."""
    box = Box()
    pairs = [("b", "1"), ("a", "2"), ("b", "0"), ("a", "2")]
    reader = box.client("r", version=V5)
    reader.subscribe("a", "w")
    publisher = box.client("p", version=V5, will=Will("w", b"", properties={Prop.USER_PROPERTY: pairs}))
    publisher.publish("a", b"x", retain=True, properties={Prop.USER_PROPERTY: pairs}).drop()
    late = box.client("late", version=V5)
    late.subscribe("a")
    found = [*publishes(reader), *publishes(late)]
    assert [one.properties[Prop.USER_PROPERTY] for one in found] == [pairs] * 3


@pytest.mark.parametrize("bad", ["eda080", "c328", "610062"], ids=["a surrogate", "ill-formed", "U+0000"])
@pytest.mark.parametrize("before", ["26", "26000161", "03", "08"], ids=["name", "value", "content type", "response"])
def test_strings_of_user_properties_are_well_formed(bad: str, before: str) -> None:
    """MQTT-1.5.7-1, MQTT-3.3.2-13, MQTT-3.3.2-19."""
    raw = bytes.fromhex(bad)
    listed = bytes.fromhex(before) + len(raw).to_bytes(2, "big") + raw + (b"\0\1v" if before == "26" else b"")
    body = b"\0\1a" + bytes((len(listed),)) + listed
    client = Box().client(version=V5).raw(codec.frame(0x30, body))
    assert client.take(Disconnect).reason == Reason.MALFORMED_PACKET


def test_a_client_that_takes_no_aliases_gets_none() -> None:
    """MQTT-3.1.2-27: absent or 0."""
    box = Box()
    asked: list[Properties] = [{}, {Prop.TOPIC_ALIAS_MAXIMUM: 0}]
    for properties in asked:
        client = box.client(version=V5, properties=properties)
        client.subscribe("a", qos=2)
        for qos in (0, 1, 2):
            box.host("a", b"x", qos)
        assert [(one.topic, one.properties) for one in publishes(client)] == [("a", {})] * 3


def answers(box: Box) -> list[codec.AnyPacket]:
    """Every kind of ack, good and bad, that a client of one topic can get."""
    who = Principal(Kind.DEVICE, "d")
    box.users["lamp"] = Admission(who, "lamp", ("a", "r/#"), ("a",))
    client = box.client(version=V5, properties={Prop.REQUEST_PROBLEM: 0})
    text: Properties = {Prop.PAYLOAD_FORMAT: 1}
    for qos in (1, 2):
        client.publish("a", b"x", qos, 1)
        client.publish("forbidden", b"x", qos, 2)
        client.publish("a", b"\xff", qos, 3, properties=text)
        client.publish("r/1", b"x", qos, 4, retain=True)
        client.publish("r/2", b"x", qos, 5, retain=True)
    client.send(Ack(Packet.PUBREL, 1), Ack(Packet.PUBREL, 77), Ack(Packet.PUBREC, 78))
    client.send(codec.Subscribe(6, [codec.Wish("a", 2), codec.Wish("b")]), codec.Unsubscribe(7, ["a", "b"]))
    return client.read()


def test_every_reason_that_we_give_is_one_that_its_packet_may_carry() -> None:
    """MQTT-3.4.2-1, MQTT-3.5.2-1, MQTT-3.6.2-1, MQTT-3.7.2-1, MQTT-3.9.3-2, MQTT-3.11.3-2, MQTT-3.14.2-1."""
    box = Box(retained_topics=1)
    given: dict[int, set[int]] = {}
    for one in answers(box):
        if isinstance(one, Ack):
            given.setdefault(one.kind, set()).add(one.reason)
        elif isinstance(one, Suback | Unsuback):
            kind = Packet.SUBACK if isinstance(one, Suback) else Packet.UNSUBACK
            given.setdefault(kind, set()).update(one.reasons)
    assert given == {
        Packet.PUBACK: {0, 0x87, 0x97, 0x99},
        Packet.PUBREC: {0, 0x87, 0x97, 0x99},
        Packet.PUBREL: {0x92},
        Packet.PUBCOMP: {0, 0x92},
        Packet.SUBACK: {2, 0x87},
        Packet.UNSUBACK: {0, 0x11},
    }
    assert all(reasons <= ALLOWED[Packet(kind)] for kind, reasons in given.items())
    for raw, reason in (("36 00", 0x81), ("82 03 0001 00", 0x82), ("30 08 0001 61 03 23ffff 00", 0x94)):
        client = Box().client(version=V5).raw(bytes.fromhex(raw))
        assert client.take(Disconnect).reason == reason
        assert reason in ALLOWED[Packet.DISCONNECT]


def test_acks_have_no_reason_string_and_no_user_properties() -> None:
    """MQTT-3.1.2-29: a client that asked for no problem information gets none outside CONNACK and DISCONNECT."""
    found = answers(Box(retained_topics=1))
    assert len(found) > 10
    assert all(not one.properties for one in found if isinstance(one, Ack | Suback | Unsuback))
