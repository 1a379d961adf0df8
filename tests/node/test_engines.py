"""What a device may expect of the bus, whichever engine it is. What an engine is known to miss stands in `MISSES`: such
a test is expected to fail there, and one that passes after all fails the run."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiomqtt
import pytest

from edge.contract.bus import Publish
from edge.contract.principal import NODE
from tests.support.engines import ENGINES, Box, box
from tests.support.patience import PATIENCE_S

MISSES = {
    "amqtt": {
        "test_a_message_comes_with_the_lower_of_both_qos": "C3: the QoS of the subscription, whatever was published",
        "test_nobody_is_sent_what_they_did_not_subscribe_to": "S1: others' retained messages at CONNECT",
        "test_what_waited_for_a_client_comes_as_it_was_published": "C6: queued messages arrive with RETAIN set",
        "test_a_wrong_password_disturbs_nobody": "S2, S3: the session is touched before the password is looked at",
        "test_a_client_that_hangs_is_given_up": "C1: keep-alive is not enforced",
        "test_subscribing_again_changes_the_qos": "C4: acknowledged, not applied",
        "test_what_was_not_acked_is_sent_again": "C2: in flight is dropped with the connection",
        "test_what_was_promised_outlives_a_restart": "nothing is kept in a file",
        "test_version_5_is_spoken": "3.1.1 only",
        "test_a_malformed_packet_closes_the_connection": "C7",
    },
    "external": {
        "test_a_silent_connection_is_closed": "Mosquitto 2.0 has no time limit for CONNECT",
    },
}
"""By engine: the test, and the fault (spec/mqtt.md §4)."""
MISSED_S = 4.0
"""How long a known miss is waited for: it does not come."""


@pytest.fixture(
    params=[pytest.param(name, marks=[pytest.mark.needs("mosquitto")] * (name == "external")) for name in ENGINES]
)
def name(request: pytest.FixtureRequest) -> str:
    """The engine; its known misses must fail."""
    function = request.node.originalname
    why = MISSES.get(request.param, {}).get(function)
    if why is not None:
        request.node.add_marker(pytest.mark.xfail(reason=why, strict=True))
    found: str = request.param
    return found


@pytest.fixture
def patience_s(request: pytest.FixtureRequest, name: str) -> float:
    """How long the test waits for what must come."""
    return MISSED_S if request.node.originalname in MISSES.get(name, {}) else PATIENCE_S


@pytest.fixture
async def bus(name: str, patience_s: float, tmp_path: Path) -> AsyncIterator[Box]:
    async with box(name, tmp_path) as made:
        made.patience_s = patience_s
        yield made


def test_every_listed_miss_is_a_test() -> None:
    for misses in MISSES.values():
        assert set(misses) <= set(globals())


# Messages.


async def test_what_a_device_publishes_is_heard_once_in_order_with_who_it_is(bus: Box) -> None:
    async with bus.client("alice") as alice:
        for number in range(60):
            await alice.publish("alice/x", b"\xff%d" % number, qos=number % 3)
        await bus.until(lambda: len(bus.heard) == 60)
    assert {(one.who.aid, one.topic, one.live, one.retain) for one in bus.heard} == {
        ("d-alice.test", "alice/x", True, False)
    }
    assert [one.payload for one in bus.heard] == [b"\xff%d" % number for number in range(60)]


async def test_a_message_reaches_who_subscribed_and_nobody_else(bus: Box) -> None:
    async with bus.client("alice") as alice, bus.client("bob") as bob:
        await alice.subscribe("shared/+/x", qos=1)
        await bob.subscribe("shared/#", qos=1)
        await bob.publish("shared/a/y", b"1", qos=1)
        await bob.publish("shared/a/x", b"2", qos=1)
        assert [one.payload for one in await bus.take(bob, 2)] == [b"1", b"2"]
        assert [one.payload for one in await bus.take(alice, 1)] == [b"2"]
        await alice.unsubscribe("shared/+/x")
        await bob.publish("shared/a/x", b"3", qos=1)
        await bus.take(bob, 1)
        assert len(alice.messages) == 0


async def test_a_message_comes_with_the_lower_of_both_qos(bus: Box) -> None:
    async with bus.client("alice") as alice, bus.client("bob") as bob:
        await alice.subscribe("shared/#", qos=1)
        for qos in (0, 1, 2):
            await bob.publish("shared/x", b"%d" % qos, qos=qos)
        found = {one.payload: one.qos for one in await bus.take(alice, 3)}
    assert found == {b"0": 0, b"1": 1, b"2": 1}


async def test_subscribing_again_changes_the_qos(bus: Box) -> None:
    async with bus.client("alice") as alice, bus.client("bob") as bob:
        await alice.subscribe("shared/#", qos=0)
        await alice.subscribe("shared/#", qos=2)
        await bob.publish("shared/x", b"", qos=2)
        assert (await bus.take(alice, 1))[0].qos == 2


async def test_many_messages_of_qos_1_and_2_come_in_order(bus: Box) -> None:
    async with bus.client("alice") as alice, bus.client("bob") as bob:
        await alice.subscribe("shared/#", qos=2)
        for qos in (1, 2):
            for number in range(50):
                await bob.publish("shared/x", b"%d" % number, qos=qos)
            assert [one.payload for one in await bus.take(alice, 50)] == [b"%d" % number for number in range(50)]


async def test_a_large_binary_message_passes_unchanged(bus: Box) -> None:
    payload = bytes(range(256)) * 800
    async with bus.client("alice") as alice, bus.client("bob") as bob:
        await alice.subscribe("shared/#", qos=1)
        await bob.publish("shared/x", payload, qos=1)
        assert (await bus.take(alice, 1))[0].payload == payload
    assert bus.heard[-1].payload == payload


async def test_the_nodes_own_messages_reach_devices(bus: Box) -> None:
    async with bus.client("alice") as alice:
        await alice.subscribe("alice/set", qos=1)
        bus.publish("alice/set", b"on")
        assert (await bus.take(alice, 1))[0].payload == b"on"
    assert [(one.topic, one.who.kind) for one in bus.heard] == [("alice/set", "node")]


async def test_version_5_is_spoken(bus: Box) -> None:
    version = aiomqtt.ProtocolVersion.V5
    async with bus.client("alice", protocol=version) as alice, bus.client("bob", protocol=version) as bob:
        await alice.subscribe("shared/#", qos=1)
        await bob.publish("shared/x", b"5", qos=1)
        assert (await bus.take(alice, 1))[0].payload == b"5"


# Retained messages and wills.


async def test_a_retained_message_comes_with_the_subscription_and_an_empty_one_forgets_it(bus: Box) -> None:
    async with bus.client("alice") as alice, bus.client("bob") as bob:
        await bob.subscribe("shared/#", qos=1)
        await bob.publish("shared/kept", b"1", qos=1, retain=True)
        bus.publish("shared/node", b"2", retain=True)
        await bus.take(bob, 2)  # and the broker has both
        await alice.subscribe("shared/#", qos=1)
        found = await bus.take(alice, 2)
        assert {(one.payload, one.retain) for one in found} == {(b"1", True), (b"2", True)}
        await bob.publish("shared/kept", b"3", qos=1, retain=True)
        assert [(one.payload, one.retain) for one in await bus.take(alice, 1)] == [(b"3", False)]
        await bob.publish("shared/kept", b"", qos=1, retain=True)
        await bus.take(alice, 1)
        await alice.unsubscribe("shared/#")
        await alice.subscribe("shared/#", qos=1)
        assert [(one.payload, one.retain) for one in await bus.take(alice, 1)] == [(b"2", True)]


async def test_nobody_is_sent_what_they_did_not_subscribe_to(bus: Box) -> None:
    async with bus.client("bob") as bob:
        await bob.subscribe("shared/#", qos=1)
        await bob.publish("shared/kept", b"1", qos=1, retain=True)
        await bus.take(bob, 1)
        async with bus.client("alice") as alice:
            await alice.subscribe("alice/#", qos=1)
            await alice.publish("alice/end", b"", qos=1)
            assert [str(one.topic) for one in await bus.take(alice, 1)] == ["alice/end"]


async def test_nobody_is_sent_what_they_may_not_read(bus: Box) -> None:
    async with bus.client("bob") as bob:
        await bob.subscribe("bob/#", qos=1)
        await bob.publish("bob/secret", b"1", qos=1, retain=True)
        await bus.take(bob, 1)
        async with bus.client("alice") as alice:
            codes = await alice.subscribe([("+/secret", 1), ("#", 1), ("alice/#", 1)])
            assert [_number(code) for code in codes] == _refusals(bus)
            await bob.publish("bob/secret", b"2", qos=1)
            await alice.publish("alice/end", b"", qos=1)
            assert [str(one.topic) for one in await bus.take(alice, 1)] == ["alice/end"]


def _number(code: Any) -> int:
    found: int = getattr(code, "value", code)
    return found


def _refusals(bus: Box) -> list[int]:
    """Mosquitto grants any filter that a client with patterns asks for, and looks at each message instead."""
    return [1, 1, 1] if bus.name == "external" else [0x80, 0x80, 1]


async def test_a_will_is_published_for_who_goes_without_a_word_and_only_then(bus: Box) -> None:
    async with bus.client("bob") as bob:
        await bob.subscribe("shared/#", qos=1)
        for goodbye in (True, False):
            sock = connect(bus, "alice", will=("shared/gone", b"alice"))
            await bus.reply(sock, 4)
            if goodbye:
                sock.sendall(b"\xe0\0")
                await asyncio.sleep(0.2)
            sock.close()
        await asyncio.sleep(0.2)
        assert [(one.payload, one.retain) for one in await bus.take(bob, 1)] == [(b"alice", False)]
        assert len(bob.messages) == 0
        await bus.until(lambda: bus.heard)
    assert [(one.topic, one.payload) for one in bus.heard] == [("shared/gone", b"alice")]


# Sessions.


async def test_what_waited_for_a_client_comes_as_it_was_published(bus: Box) -> None:
    async with bus.client("alice", clean_session=False) as alice:
        await alice.subscribe("shared/#", qos=1)
    async with bus.client("bob") as bob:
        for number in range(10):
            await bob.publish("shared/x", b"\xfe%d" % number, qos=1)
        await bob.publish("shared/x", b"nobody waits for this", qos=0)
    async with bus.client("alice", clean_session=False) as alice:
        found = await bus.take(alice, 10)
    assert [(one.payload, one.qos, one.retain) for one in found] == [
        (b"\xfe%d" % number, 1, False) for number in range(10)
    ]


async def test_what_was_not_acked_is_sent_again(bus: Box) -> None:
    sock = connect(bus, "alice", clean=False)
    await bus.reply(sock, 4)
    sock.sendall(b"\x82\x0d\0\1\0\x08shared/#\1")
    await bus.reply(sock, 5)
    async with bus.client("bob") as bob:
        await bob.publish("shared/x", b"once", qos=1)
        first = await bus.reply(sock, 18)
        assert (first[0], first[-4:]) == (0x32, b"once")
        sock.close()
        await asyncio.sleep(0.2)
    sock = connect(bus, "alice", clean=False)
    assert await bus.reply(sock, 4) == b"\x20\x02\x01\0"
    again = await bus.reply(sock, 18)
    assert (again[0], again[1:]) == (0x3A, first[1:])


async def test_the_same_client_id_again_ends_the_first_connection(bus: Box) -> None:
    first = connect(bus, "alice", clean=True)
    await bus.reply(first, 4)
    async with bus.client("alice", identifier="raw") as alice:
        assert await bus.reply(first, 1) == b""
        first.close()
        await alice.subscribe("alice/#", qos=1)
        await alice.publish("alice/x", b"1", qos=1)
        await bus.take(alice, 1)


async def test_what_was_promised_outlives_a_restart(bus: Box) -> None:
    async with bus.client("alice", clean_session=False) as alice, bus.client("bob") as bob:
        await alice.subscribe("shared/x", qos=1)
        await bob.publish("shared/kept", b"\xff", qos=1, retain=True)
    async with bus.client("bob") as bob:
        await bob.publish("shared/x", b"\xfe", qos=1)
    await bus.stop()
    await bus.start()
    async with bus.client("alice", clean_session=False) as alice:
        assert [one.payload for one in await bus.take(alice, 1)] == [b"\xfe"]
        await alice.subscribe("shared/kept", qos=1)
        assert [(one.payload, one.retain) for one in await bus.take(alice, 1)] == [(b"\xff", True)]


# Who may come in, and what nobody may do.


@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nobody", "nobody-secret"), ("alice", "")])
async def test_a_stranger_is_not_let_in(bus: Box, user: str, password: str) -> None:
    with pytest.raises(aiomqtt.MqttError):
        async with bus.client(user, password=password):
            pass


async def test_what_somebody_may_not_publish_is_heard_by_nobody(bus: Box) -> None:
    async with bus.client("alice") as alice, bus.client("bob") as bob:
        await bob.subscribe("bob/#", qos=1)
        await alice.publish("bob/x", b"forged", qos=1)
        await bob.publish("bob/x", b"mine", qos=1)
        assert [one.payload for one in await bus.take(bob, 1)] == [b"mine"]
        await bus.until(lambda: bus.heard)
    assert [one.payload for one in bus.heard] == [b"mine"]


async def test_a_will_that_somebody_may_not_publish_is_heard_by_nobody(bus: Box) -> None:
    async with bus.client("bob") as bob:
        await bob.subscribe("bob/#", qos=1)
        sock = connect(bus, "alice", will=("bob/x", b"forged"))
        await bus.reply(sock, 4)
        sock.close()
        await asyncio.sleep(0.2)
        await bob.publish("bob/x", b"mine", qos=1)
        assert [one.payload for one in await bus.take(bob, 1)] == [b"mine"]
        await bus.until(lambda: bus.heard)
    assert [one.payload for one in bus.heard] == [b"mine"]


async def test_a_wrong_password_disturbs_nobody(bus: Box) -> None:
    async with bus.client("alice", clean_session=False) as alice:
        await alice.subscribe("alice/#", qos=1)
        for clean in (True, False):
            with pytest.raises(aiomqtt.MqttError):
                async with bus.client("alice", password="wrong", clean_session=clean):
                    pass
        await alice.publish("alice/x", b"still here", qos=1)
        assert (await bus.take(alice, 1))[0].payload == b"still here"


async def test_a_client_that_hangs_is_given_up(bus: Box) -> None:
    async with bus.client("bob") as bob:
        await bob.subscribe("shared/#", qos=1)
        sock = connect(bus, "alice", will=("shared/gone", b"alice"), keep_alive=1)
        await bus.reply(sock, 4)
        assert (await bus.take(bob, 1))[0].payload == b"alice"


# Bad input.

MALFORMED = {
    "qos 3": b"\x36\x05\0\1t\0\1",
    "a wildcard in a topic": b"\x30\x05\0\3t/#",
    "bad utf-8": b"\x30\x05\0\3\xff\xfe\xfd",
    "nul in a topic": b"\x30\x05\0\3t\0x",
    "a topic longer than its packet": b"\x32\x04\0\x20ab",
    "wrong flags": b"\x80\x06\0\1\0\1t\1",
    "nothing to subscribe to": b"\x82\x02\0\1",
}


@pytest.mark.parametrize("what", MALFORMED)
async def test_a_malformed_packet_closes_the_connection(bus: Box, what: str) -> None:
    packet = MALFORMED[what]
    sock = connect(bus, "root")
    await bus.reply(sock, 4)
    sock.sendall(packet)
    assert await bus.reply(sock, 1) == b""


async def test_a_packet_that_claims_to_be_huge_closes_the_connection_and_stops_nobody(bus: Box) -> None:
    if bus.name == "external":
        pytest.skip("a bound of Mosquitto's own configuration (max_packet_size)")
    sock = connect(bus, "root")
    await bus.reply(sock, 4)
    sock.sendall(b"\x30\xff\xff\xff\x7f\0\1t" + b"x" * 10_000)
    async with bus.client("alice") as alice:
        await alice.publish("alice/x", b"1", qos=1)
    with pytest.raises(ConnectionError):
        await asyncio.get_running_loop().run_in_executor(None, flood, sock)


async def test_a_silent_connection_is_closed(name: str, patience_s: float, tmp_path: Path) -> None:
    async with box(name, tmp_path, connect_s=1) as bus:
        bus.patience_s = patience_s
        assert await bus.reply(bus.raw(), 1) == b""


# Bytes.


def flood(sock: socket.socket) -> None:
    """Write until the other side has had enough."""
    while True:
        sock.sendall(b"x" * 65_536)


def connect(
    bus: Box, user: str, *, clean: bool = True, will: tuple[str, bytes] | None = None, keep_alive: int = 0
) -> socket.socket:
    """A raw connection under the client id `raw` that has sent CONNECT."""
    flags = 0xC0 | clean << 1 | (0x0C if will else 0)
    parts = [b"raw", *([will[0].encode(), will[1]] if will else []), user.encode(), f"{user}-secret".encode()]
    body = b"\0\4MQTT\4" + bytes((flags,)) + keep_alive.to_bytes(2, "big")
    body += b"".join(len(part).to_bytes(2, "big") + part for part in parts)
    sock = bus.raw()
    sock.sendall(b"\x10" + bytes((len(body),)) + body)
    return sock


@pytest.mark.parametrize("retain", [False, True])
@pytest.mark.parametrize("qos", [0, 1])
async def test_the_node_hears_when_what_is_kept_of_its_message_is_on_disk(bus: Box, qos: int, retain: bool) -> None:
    told: list[object] = []
    bus.keeps = True
    bus.engine.publish(Publish("shared/x", b"1", qos, retain, NODE, bus.clock.now()), told.append)
    assert told == []
    await bus.until(lambda: bus.kept)
    await asyncio.sleep(0.05)
    assert told == []
    bus.kept.pop()(None)
    await bus.until(lambda: told)
    assert told == [None]


async def test_the_node_hears_what_a_sink_could_not_keep(bus: Box) -> None:
    told: list[object] = []
    bus.keeps = True
    full = OSError("full")
    bus.engine.publish(Publish("shared/x", b"1", 0, False, NODE, bus.clock.now()), told.append)
    await bus.until(lambda: bus.kept)
    bus.kept.pop()(full)
    await bus.until(lambda: told)
    assert told == [full]


async def test_the_node_need_not_wait_for_what_nobody_keeps(bus: Box) -> None:
    told: list[object] = []
    bus.engine.publish(Publish("shared/x", b"1", 0, False, NODE, bus.clock.now()), told.append)
    await bus.until(lambda: told)
    assert told == [None]
