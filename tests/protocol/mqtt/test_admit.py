"""CONNECT: who gets in, who does not, and what of an earlier connection is left."""

from __future__ import annotations

import pytest

from edge.contract.bus import Admission, Refusal
from edge.contract.principal import Kind, Principal
from edge.protocol.mqtt import codec
from edge.protocol.mqtt.codec import V5, V311, Connack, Connect, Disconnect, Will
from edge.protocol.mqtt.properties import Prop, Properties
from edge.protocol.mqtt.reasons import Reason
from tests.protocol.mqtt.box import Box

DAY = 86_400


def test_a_known_user_is_let_in() -> None:
    """MQTT 3.1.1 §3.2: CONNACK is the first packet, return code 0."""
    client = Box().client()
    assert client.connack == Connack(False, 0)
    assert client.open


@pytest.mark.parametrize(("user", "code"), [("stranger", 4), (None, 5)])
def test_a_stranger_is_told_and_closed(user: str | None, code: int) -> None:
    """MQTT-3.2.2-5 of 3.1.1. Nobody is anonymous."""
    box = Box()
    client = box.wire().send(Connect("c", user=user))
    assert client.take(Connack) == Connack(False, code)
    assert not client.open
    assert not box.broker.sessions


@pytest.mark.parametrize(
    ("refusal", "version", "code"),
    [
        (Refusal.NOT_AUTHORIZED, V311, 5),
        (Refusal.NOT_AUTHORIZED, V5, 0x87),
        (Refusal.BUSY, V311, 3),
        (Refusal.BUSY, V5, 0x89),
    ],
)
def test_a_refusal_has_a_code_of_its_own(refusal: Refusal, version: int, code: int) -> None:
    """A client that is told "busy" tries again, one that is told "not authorized" need not."""
    box = Box()
    box.refusal = refusal
    client = box.wire()
    client.version = version
    client.send(Connect("c", user="stranger", password=b"p", version=version))
    assert client.take(Connack).reason == code
    assert not client.open


@pytest.mark.parametrize(("user", "reason"), [("stranger", 0x86), (None, 0x87)])
def test_a_stranger_with_version_5_is_told_why(user: str | None, reason: int) -> None:
    """MQTT 5 §3.2.2.2."""
    client = Box().wire()
    client.version = V5
    client.send(Connect("c", user=user, version=V5))
    assert client.take(Connack).reason == reason
    assert not client.open


@pytest.mark.parametrize("raw", ["10 0c 0004 4d515454 06 02 0000 0000", "10 0e 0006 4d5149736470 03 02 0000 0000"])
def test_another_protocol_level_is_refused_by_code_1(raw: str) -> None:
    """MQTT-3.1.2-2 of 3.1.1."""
    client = Box().wire().raw(bytes.fromhex(raw))
    assert client.take(Connack) == Connack(False, 1)
    assert not client.open


@pytest.mark.parametrize("level", [0x06, 0x63])
def test_a_level_above_5_in_the_grammar_of_5_is_refused_as_5_does(level: int) -> None:
    """MQTT-3.1.2-2 of 5: 0x84, in a CONNACK that such a client can read."""
    box = Box()
    raw = codec.encode(Connect("new", properties={Prop.RECEIVE_MAXIMUM: 9}, version=V5), V5)
    client = box.wire()
    client.version = V5
    client.raw(raw.replace(b"MQTT\x05", b"MQTT" + bytes((level,))))
    assert client.take(Connack) == Connack(False, Reason.UNSUPPORTED_PROTOCOL_VERSION)
    assert not client.open
    assert not box.broker.sessions


def test_a_level_below_4_is_refused_as_3_1_1_does_whatever_follows() -> None:
    """MQTT-3.1.2-2 of 3.1.1: who asks for less than 4 knows nothing of 5."""
    raw = codec.encode(Connect("old", version=V5), V5)
    client = Box().wire().raw(raw.replace(b"MQTT\x05", b"MQTT\x03"))
    assert client.take(Connack) == Connack(False, 1)
    assert not client.open


def test_another_protocol_name_is_closed_without_a_word() -> None:
    """MQTT-3.1.2-1."""
    client = Box().wire().raw(bytes.fromhex("10 0c 0004 4d515458 04 02 0000 0000"))
    assert client.read() == []
    assert not client.open


def test_a_first_packet_that_is_not_connect_closes() -> None:
    """MQTT-3.1.0-1."""
    box = Box()
    client = box.wire().publish("a", b"x")
    assert client.read() == []
    assert not client.open
    assert box.heard == []


def test_a_second_connect_closes() -> None:
    """MQTT-3.1.0-2."""
    client = Box().client()
    client.send(Connect("c", user="lamp"))
    assert not client.open


def test_an_empty_client_id_needs_a_clean_session() -> None:
    """MQTT-3.1.3-8 of 3.1.1."""
    box = Box()
    client = box.wire().send(Connect("", clean=False, user="lamp"))
    assert client.take(Connack) == Connack(False, 2)
    assert not client.open
    assert box.client("").open


def test_version_5_is_told_the_client_id_it_was_given() -> None:
    """MQTT-3.2.2-16."""
    box = Box()
    one, two = box.client("", version=V5), box.client("", version=V5)
    assert one.connack.properties[Prop.ASSIGNED_CLIENT_ID] != two.connack.properties[Prop.ASSIGNED_CLIENT_ID]
    assert Prop.ASSIGNED_CLIENT_ID not in box.client("mine", version=V5).connack.properties


def test_enhanced_authentication_is_refused_by_its_code() -> None:
    """MQTT 5 §4.12: 0x8C."""
    client = Box().client(version=V5, properties={Prop.AUTHENTICATION_METHOD: "SCRAM"})
    assert client.connack.reason == Reason.BAD_AUTHENTICATION_METHOD
    assert not client.open


def test_auth_later_is_a_protocol_error() -> None:
    """MQTT 5 §4.12."""
    client = Box().client(version=V5)
    client.send(codec.Auth(0x19, {Prop.AUTHENTICATION_METHOD: "SCRAM"}))
    assert client.take(Disconnect).reason == Reason.PROTOCOL_ERROR


def test_the_same_client_id_takes_the_connection_over() -> None:
    """MQTT-3.1.4-2 of 3.1.1."""
    box = Box()
    one = box.client("c")
    two = box.client("c")
    assert not one.open
    assert two.open
    assert box.broker.stats()["taken_over"] == 1


def test_version_5_hears_that_it_was_taken_over() -> None:
    """MQTT-3.1.4-3."""
    box = Box()
    one = box.client("c", version=V5)
    box.client("c")
    assert one.take(Disconnect).reason == Reason.SESSION_TAKEN_OVER


def test_another_users_client_id_is_another_session() -> None:
    box = Box()
    box.users["sensor"] = Admission(Principal(Kind.DEVICE, "d-sensor"), "sensor", ("#",), ("#",))
    one = box.client("c", clean=False)
    one.subscribe("a", qos=1)
    other = box.client("c", user="sensor")
    assert one.open
    other.publish("a", b"x", 1)
    assert one.publishes() == [("a", b"x", 1)]


def test_a_wrong_password_touches_nothing() -> None:
    """Neither the session nor the connection of the client id's owner (spec/mqtt.md S2, S3)."""
    box = Box()
    one = box.client("c", clean=False, will=Will("w", b"real"))
    one.subscribe("a", qos=1)
    for clean in (True, False):
        box.wire().send(Connect("c", clean=clean, user="stranger", will=Will("w", b"forged")))
    assert one.open
    box.host("a", b"x", 1)
    assert one.publishes() == [("a", b"x", 1)]
    one.drop()
    assert [publish.payload for publish in box.heard if publish.topic == "w"] == [b"real"]


def test_a_will_that_the_client_may_not_publish_refuses_the_connection() -> None:
    box = Box()
    box.users["sensor"] = Admission(Principal(Kind.DEVICE, "d-sensor"), "sensor", ("sensor/#",), ())
    client = box.wire().send(Connect("c", user="sensor", will=Will("lamp/on", b"1")))
    assert client.take(Connack) == Connack(False, 5)
    assert not client.open


def test_a_will_on_a_dollar_topic_goes_nowhere() -> None:
    """Mosquitto's bridges leave one under `$SYS/broker/connection`: they get in all the same."""
    box = Box()
    client = box.client("b", will=Will("$SYS/broker/connection/b/state", b"0", 1, True))
    assert client.open
    client.drop()
    assert box.heard == []
    assert box.broker.stats()["retained"] == 0
    assert box.broker.counters["refused.will"] == 1


def test_a_session_is_present_only_where_one_was_kept() -> None:
    """MQTT-3.2.2-1 to -3 of 3.1.1."""
    box = Box()
    assert not box.client("c", clean=False).connack.session_present
    assert box.client("c", clean=False).connack.session_present
    assert not box.client("c", clean=True).connack.session_present
    assert not box.client("c", clean=False).connack.session_present


def test_a_clean_session_ends_with_its_connection() -> None:
    """MQTT-3.1.2-6 of 3.1.1."""
    box = Box()
    box.client("c").drop()
    assert not box.broker.sessions


def test_version_5_keeps_a_session_for_its_expiry_interval() -> None:
    """MQTT-3.1.2-23."""
    box = Box()
    box.client("c", version=V5, properties={Prop.SESSION_EXPIRY: 5}).drop()
    box.pass_(4)
    client = box.client("c", version=V5, clean=False, properties={Prop.SESSION_EXPIRY: 5})
    assert client.connack.session_present
    client.drop()
    box.pass_(5)
    assert not box.client("c", version=V5, clean=False).connack.session_present


def test_version_5_without_an_expiry_keeps_nothing() -> None:
    """MQTT 5 §3.1.2.11.2."""
    box = Box()
    box.client("c", version=V5, clean=False).drop()
    assert not box.broker.sessions


def test_the_expiry_can_be_changed_at_disconnect() -> None:
    """MQTT 5 §3.14.2.2.2."""
    box = Box()
    client = box.client("c", version=V5, properties={Prop.SESSION_EXPIRY: 1})
    client.send(Disconnect(0, {Prop.SESSION_EXPIRY: 5}))
    box.pass_(3)
    client = box.client("c", version=V5, clean=False, properties={Prop.SESSION_EXPIRY: 1})
    assert client.connack.session_present
    client.send(Disconnect(0, {Prop.SESSION_EXPIRY: 0}))
    assert not box.broker.sessions


def test_an_expiry_only_at_disconnect_is_a_protocol_error() -> None:
    """MQTT-3.1.2-23, §3.14.2.2.2."""
    client = Box().client("c", version=V5)
    client.send(Disconnect(0, {Prop.SESSION_EXPIRY: 5}))
    assert client.take(Disconnect).reason == Reason.PROTOCOL_ERROR


def test_version_5_is_told_what_we_take() -> None:
    """MQTT 5 §3.2.2.3."""
    client = Box(receive_maximum=7, packet_octets=5000, topic_aliases=3).client(version=V5)
    assert client.connack.properties == {
        Prop.RECEIVE_MAXIMUM: 7,
        Prop.MAXIMUM_PACKET_SIZE: 5000,
        Prop.TOPIC_ALIAS_MAXIMUM: 3,
    }


@pytest.mark.limit("mqtt.session_expiry_s")
def test_version_5_is_told_of_an_expiry_cut_to_the_limit() -> None:
    """MQTT 5 §3.2.2.3.2."""
    box = Box(session_expiry_s=DAY)
    client = box.client(version=V5, properties={Prop.SESSION_EXPIRY: DAY})
    assert Prop.SESSION_EXPIRY not in client.connack.properties
    client = box.client(version=V5, properties={Prop.SESSION_EXPIRY: DAY + 1})
    assert client.connack.properties[Prop.SESSION_EXPIRY] == DAY
    client.drop()
    box.pass_(DAY - 1)
    assert box.broker.sessions
    box.pass_(1)
    assert not box.broker.sessions


@pytest.mark.limit("mqtt.session_expiry_s")
def test_a_session_of_3_1_1_is_kept_as_long_as_the_limit_says() -> None:
    box = Box(session_expiry_s=DAY)
    box.client("c", clean=False).drop()
    box.pass_(DAY - 1)
    assert box.broker.sessions
    box.pass_(1)
    assert not box.broker.sessions
    assert not box.client("c", clean=False).connack.session_present


@pytest.mark.limit("mqtt.keep_alive_s")
def test_version_5_is_told_of_a_keep_alive_cut_to_the_limit() -> None:
    """MQTT-3.1.2-21, §3.2.2.3.14."""
    box = Box()
    client = box.client("a", version=V5, keep_alive=120)
    assert client.connack.properties[Prop.SERVER_KEEP_ALIVE] == 60
    assert Prop.SERVER_KEEP_ALIVE not in box.client("b", version=V5, keep_alive=60).connack.properties
    box.pass_(90)
    assert client.take(Disconnect).reason == Reason.KEEP_ALIVE_TIMEOUT


@pytest.mark.limit("mqtt.client_id_octets")
def test_a_client_id_over_the_limit_is_refused() -> None:
    box = Box(client_id_octets=23)
    assert box.client("x" * 23).open
    client = box.wire().send(Connect("x" * 24, user="lamp"))
    assert client.take(Connack) == Connack(False, 2)
    assert box.limits.hits["mqtt.client_id_octets"] == 1


@pytest.mark.limit("mqtt.connect_s")
def test_a_silent_socket_is_closed() -> None:
    box = Box(connect_s=10)
    client = box.wire()
    box.pass_(9.9)
    assert client.open
    box.pass_(0.1)
    assert not client.open
    assert box.limits.hits["mqtt.connect_s"] == 1
    assert not box.broker.connections


def test_a_slow_connect_is_closed_all_the_same() -> None:
    box = Box(connect_s=10)
    raw = codec.encode(Connect("c", user="lamp"), V311)
    client = box.wire()
    for at in range(len(raw) - 1):
        client.raw(raw[at : at + 1])
        box.pass_(0.6)
    assert not client.open


@pytest.mark.limit("mqtt.connect_octets")
def test_a_first_packet_over_its_limit_closes_by_its_header() -> None:
    box = Box(connect_octets=1000)
    assert box.wire().raw(b"\x10\xe5\x07").open
    assert not box.wire().raw(b"\x10\xe6\x07").open
    assert not box.wire().raw(b"\x10\xff\xff\xff\x7f").open
    assert box.limits.hits["mqtt.connect_octets"] == 2


@pytest.mark.limit("mqtt.sessions")
def test_of_too_many_absent_sessions_the_one_absent_longest_goes() -> None:
    box = Box(sessions=2)
    for name in ("a", "b", "c"):
        box.client(name, clean=False)
    for name in ("b", "a"):
        box.client(name, clean=False).drop()
        box.pass_(1)
    assert len(box.broker.sessions) == 3
    box.client("c", clean=False).drop()
    assert sorted(key[1] for key in box.broker.sessions) == ["a", "c"]
    assert box.limits.hits["mqtt.sessions"] == 1


@pytest.mark.limit("mqtt.sessions_per_user")
def test_a_user_with_many_client_ids_costs_nobody_else_a_session() -> None:
    box = Box(sessions=5, sessions_per_user=3)
    box.users["sensor"] = Admission(Principal(Kind.DEVICE, "d-sensor"), "sensor", ("#",), ("#",))
    box.client("old", user="sensor", clean=False).drop()
    for at in range(6):
        box.pass_(1)
        box.client(f"c{at}", clean=False).drop()
    assert sorted(box.broker.sessions) == [("lamp", "c3"), ("lamp", "c4"), ("lamp", "c5"), ("sensor", "old")]
    assert box.limits.hits == {"mqtt.sessions_per_user": 3}


def test_packets_behind_the_connect_wait_for_the_connack() -> None:
    """A client need not wait for CONNACK (MQTT 3.1.1 §3.1.4); with a durable session the answer waits for the disk."""
    box = Box(instant=False)
    client = box.wire()
    client.send(Connect("c", clean=False, user="lamp"), codec.Subscribe(1, [codec.Wish("a", 1)]), codec.Ping())
    assert client.read() == []
    assert not client.reading
    client.send(codec.Ping())
    box.commit()
    assert [type(one) for one in client.read()] == [Connack]
    box.commit()
    assert [type(one) for one in client.read()] == [codec.Suback, codec.Ping, codec.Ping]
    assert client.reading


def test_a_store_that_keeps_nothing_gives_a_session_for_the_connection_only() -> None:
    """Local work goes on; version 5 is told (session expiry 0)."""
    box = Box(instant=False)
    client = box.wire()
    client.version = V5
    client.send(Connect("c", version=V5, user="lamp", properties={Prop.SESSION_EXPIRY: 60}))
    box.commit(OSError("disk full"))
    box.turn()
    assert client.take(Connack).properties[Prop.SESSION_EXPIRY] == 0
    client.drop()
    assert not box.broker.sessions


@pytest.mark.parametrize("version", [V311, V5])
def test_a_session_on_disk_stays_the_clients_when_the_store_keeps_nothing(version: int) -> None:
    """With all that was acked for it: that it is connected now is nothing that must be kept."""
    box = Box()
    found: Properties = {Prop.SESSION_EXPIRY: 60} if version == V5 else {}
    reader = box.client("c", version=version, clean=False, properties=found)
    reader.subscribe("a", qos=1)
    reader.drop()
    box.client("p").publish("a", b"x", 1)
    box.instant = False
    client = box.wire()
    client.version = version
    client.send(Connect("c", clean=False, version=version, user="lamp", properties=found))
    box.commit(OSError("disk full"))
    connack, message = client.read()
    assert isinstance(connack, Connack)
    assert connack.session_present
    assert Prop.SESSION_EXPIRY not in connack.properties
    assert isinstance(message, codec.PublishPacket)
    client.drop()
    assert box.broker.sessions["lamp", "c"].durable
    assert len(list(box.broker.sessions["lamp", "c"].pending())) == 1


def test_expelling_a_user_closes_and_forgets() -> None:
    box = Box()
    one = box.client("c", version=V5, will=Will("w"), properties={Prop.SESSION_EXPIRY: 60})
    box.client("d", clean=False).drop()
    box.users["sensor"] = Admission(Principal(Kind.DEVICE, "d-sensor"), "sensor", ("#",), ("#",))
    other = box.client("c", user="sensor")
    assert box.broker.expel("lamp") == 2
    assert one.take(Disconnect).reason == Reason.ADMINISTRATIVE_ACTION
    assert other.open
    assert list(box.broker.sessions) == [("sensor", "c")]
    assert box.heard == []


def test_expelling_reaches_clients_without_a_lasting_session() -> None:
    box = Box()
    client = box.client("c")
    assert box.broker.expel("lamp") == 1
    assert not client.open
    assert box.broker.expel("lamp") == 0


@pytest.mark.parametrize(
    ("why", "raw", "reason"),
    [
        ("MQTT-3.1.2-3 reserved flag", "10 0e 0004 4d515454 05 03 000a 00 0001 70", 0x81),
        ("MQTT-3.1.2-12 will QoS 3", "10 0e 0004 4d515454 05 1e 000a 00 0001 70", 0x81),
        ("MQTT-3.1.2-11 will retain without a will", "10 0e 0004 4d515454 05 22 000a 00 0001 70", 0x81),
        ("MQTT-3.1.2-16 a user name that was not announced", "10 11 0004 4d515454 05 02 000a 00 0001 70 0001 71", 0x81),
        ("MQTT-3.1.2-17 a user name that is not there", "10 0e 0004 4d515454 05 82 000a 00 0001 70", 0x81),
        ("MQTT-3.1.2-19 a password that is not there", "10 11 0004 4d515454 05 c2 000a 00 0001 70 0001 71", 0x81),
        ("MQTT-3.1.3-4 a client id that is no UTF-8", "10 10 0004 4d515454 05 02 000a 00 0003 eda080", 0x81),
        ("§3.1.2.11.3 Receive Maximum 0", "10 11 0004 4d515454 05 02 000a 03 210000 0001 70", 0x82),
        ("§3.1.2.11.2 Session Expiry twice", "10 18 0004 4d515454 05 02 000a 0a 1100000001 1100000001 0001 70", 0x82),
        ("MQTT-2.2.2.2 a property of PUBLISH", "10 11 0004 4d515454 05 02 000a 03 230001 0001 70", 0x81),
        ("§3.1.2.11.10 data without a method", "10 12 0004 4d515454 05 02 000a 04 16000170 0001 70", 0x82),
        ("§3.1.3.3 a will topic with a wildcard", "10 15 0004 4d515454 05 06 000a 00 0001 70 00 0001 23 0001 78", 0x90),
    ],
)
def test_version_5_is_told_what_is_wrong_with_its_connect(why: str, raw: str, reason: int) -> None:
    """MQTT 5 §4.13.1: a CONNACK may say it, then the connection is closed."""
    client = Box().wire()
    client.version = V5
    client.raw(bytes.fromhex(raw))
    assert client.take(Connack) == Connack(False, reason), why
    assert not client.open


def test_3_1_1_is_told_nothing_of_what_is_wrong_with_its_connect() -> None:
    """MQTT-3.1.4-1 of 3.1.1: closed without a CONNACK."""
    client = Box().wire().raw(bytes.fromhex("10 0d 0004 4d515454 04 03 000a 0001 70"))
    assert client.read() == []
    assert not client.open


def test_a_client_that_takes_no_packet_as_large_as_its_connack_is_closed_without_one() -> None:
    """MQTT-3.1.2-24."""
    box = Box()
    client = box.client(version=V5, properties={Prop.MAXIMUM_PACKET_SIZE: 10}, will=Will("w", b"x"))
    assert client.read() == []
    assert not client.open
    assert (box.heard, box.broker.counters["refused_connect.packet_maximum"]) == ([], 1)
    assert box.client(version=V5, properties={Prop.MAXIMUM_PACKET_SIZE: 20}).open


@pytest.mark.parametrize(("most", "told"), [(4, False), (5, True)])
def test_a_refusal_is_no_larger_than_the_client_takes(most: int, told: bool) -> None:
    """MQTT-3.1.2-24: CONNACK with a reason alone has five bytes."""
    client = Box().wire()
    client.version = V5
    client.send(Connect("c", user="stranger", properties={Prop.MAXIMUM_PACKET_SIZE: most}, version=V5))
    assert client.read() == ([Connack(False, Reason.BAD_USER_OR_PASSWORD)] if told else [])
    assert not client.open


def test_hanging_up_on_a_user_closes_the_connections_and_keeps_the_sessions() -> None:
    """With their wills, as when a client is lost."""
    box = Box()
    client = box.client("c", clean=False, version=V5, will=Will("gone"), properties={Prop.SESSION_EXPIRY: DAY})
    other = box.client("d")
    silent = box.wire()
    assert box.broker.hang_up("lamp") == 2
    box.turn()
    assert client.take(Disconnect).reason == Reason.NOT_AUTHORIZED
    assert (client.open, other.open, silent.open) == (False, False, True)
    assert [one.topic for one in box.heard] == ["gone"]
    assert list(box.broker.sessions) == [("lamp", "c")]
    assert box.broker.hang_up("lamp") == 0
