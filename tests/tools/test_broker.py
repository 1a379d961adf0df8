"""`tools/broker` as a test suite of somebody else meets it: a process of its own, real sockets, a real file."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import websockets

from edge.protocol.mqtt import codec
from edge.protocol.mqtt.codec import V5, V311, Connack, Connect, PublishPacket, Suback, Subscribe, Wish
from edge.protocol.mqtt.reasons import Reason
from tests.transports.mqtt.raw import dial, dial_raw, hang_up

BROKER = Path(__file__).resolve().parents[2] / "tools" / "broker.py"
BOTH = pytest.mark.parametrize("version", [V311, V5])


class Running:
    """A broker that says where it listens: `ports["mqtt"]`, `ports["ws"]`."""

    def __init__(self, *words: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, str(BROKER), "--port", "0", *words], stdout=subprocess.PIPE, text=True
        )
        self.ports: dict[str, int] = {}
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line == "ready\n":
                return
            word, host, port = line.split()
            assert host in ("127.0.0.1", "::1")
            assert self.ports.setdefault(word, int(port)) == int(port)
        raise AssertionError(f"it ended with {self.process.wait()}")

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        with self.process:
            return self.process.wait(30)


@contextmanager
def broker(*words: str) -> Iterator[Running]:
    running = Running(*words)
    try:
        yield running
    finally:
        hang_up()
        if running.process.poll() is None:
            assert running.end(signal.SIGTERM) == 0


@BOTH
async def test_anybody_may_come_in_where_that_was_asked_for(version: int) -> None:
    with broker("--anonymous") as running:
        peer = await dial_raw(running.ports["mqtt"], version)
        peer.send(Connect("nobody", version=version))
        assert (await peer.take(Connack)).reason == 0
        await peer.subscribe("a/+", 1)
        other = await dial(running.ports["mqtt"], "b", user="whoever", version=version)
        other.send(PublishPacket("a/b", b"hello"))
        assert (await peer.take(PublishPacket)).payload == b"hello"
        await peer.close()
        await other.close()


async def test_all_who_come_unasked_are_one_user_so_a_client_id_is_one_session() -> None:
    """MQTT-3.1.4-3 of 5: the second connection of a client id takes over."""
    with broker("--anonymous") as running:
        one = await dial(running.ports["mqtt"], "same", user="one", version=V5)
        two = await dial(running.ports["mqtt"], "same", user="two", version=V5)
        assert (await one.take(codec.Disconnect)).reason == Reason.SESSION_TAKEN_OVER
        await one.close()
        await two.close()


@pytest.mark.parametrize(
    ("words", "version", "code"),
    [
        (("test/no",), V311, 0x80),
        (("test/no",), V5, 0x87),
        (("test/no:0x80",), V5, 0x80),
        (("test/no:0x97",), V5, 0x97),
        (("test/no:0x97",), V311, 0x80),
    ],
)
async def test_a_subscription_can_be_refused_by_a_code_of_choice(words: tuple[str], version: int, code: int) -> None:
    with broker("--anonymous", "--refuse-subscribe", *words) as running:
        peer = await dial(running.ports["mqtt"], version=version)
        peer.send(Subscribe(1, [Wish("test/no"), Wish("test/yes"), Wish("#")]))
        assert (await peer.take(Suback)).reasons == [code, 0, 0]
        await peer.close()


async def test_users_need_their_password_and_the_unnamed_are_told_to_go() -> None:
    with broker("--user", "lamp:secret", "--user", "hub:other", "--allow-subscribe", "%u/#") as running:
        peer = await dial(running.ports["mqtt"], version=V5)
        assert peer.connack.reason == 0
        peer.send(Subscribe(1, [Wish("lamp/x"), Wish("hub/x")]))
        assert (await peer.take(Suback)).reasons == [0, Reason.NOT_AUTHORIZED]
        wrong = await dial(running.ports["mqtt"], user="hub", version=V5)
        assert wrong.connack.reason == Reason.BAD_USER_OR_PASSWORD
        unnamed = await dial_raw(running.ports["mqtt"], V5)
        unnamed.send(Connect("x", version=V5))
        assert (await unnamed.take(Connack)).reason == Reason.NOT_AUTHORIZED
        for one in (peer, wrong, unnamed):
            await one.close()


async def test_websockets_are_served_on_a_port_of_their_own() -> None:
    with broker("--anonymous", "--ws-port", "0", "--ws-path", "/ws") as running:
        where = f"ws://127.0.0.1:{running.ports['ws']}/ws"
        async with websockets.connect(where, subprotocols=[websockets.Subprotocol("mqtt")]) as ws:
            await ws.send(codec.encode(Connect("w"), V311))
            assert await ws.recv() == b"\x20\x02\0\0"


async def test_limits_can_be_set() -> None:
    with broker("--anonymous", "--limit", "mqtt.receive_maximum=7") as running:
        peer = await dial(running.ports["mqtt"], version=V5)
        assert peer.connack.properties[0x21] == 7
        await peer.close()


async def test_what_it_keeps_in_its_folder_survives_a_kill(tmp_path: Path) -> None:
    words = ("--anonymous", "--state", str(tmp_path / "new"))
    running = Running(*words)
    peer = await dial(running.ports["mqtt"], "c", clean=False)
    await peer.subscribe("a", 1)
    await peer.close()
    other = await dial(running.ports["mqtt"], "p")
    other.send(PublishPacket("a", b"kept", 1, packet_id=1))
    await other.take(codec.Ack)
    await other.close()
    assert running.end(signal.SIGKILL) == -signal.SIGKILL
    with broker(*words) as again:
        peer = await dial(again.ports["mqtt"], "c", clean=False)
        assert peer.connack.session_present
        assert (await peer.take(PublishPacket)).payload == b"kept"
        await peer.close()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "nobody could come in"),
        (("--anonymous", "--host", "0.0.0.0"), "no loopback address"),
        (("--anonymous", "--host", "example.org"), "no loopback address"),
        (("--user", "lamp"), "NAME:PASSWORD"),
        (("--anonymous", "--limit", "mqtt.nonsense=1"), "no limit is called"),
        (("--anonymous", "--limit", "mqtt.inflight=many"), "needs a number"),
        (("--anonymous", "--limit", "mqtt.packet_octets=128"), "at least 129"),
        (("--anonymous", "--refuse-subscribe", "a/#/b"), "no topic filter"),
        (("--anonymous", "--refuse-subscribe", "a:0x01"), "no refusal"),
    ],
)
def test_what_cannot_be_is_said(words: tuple[str, ...], said: str) -> None:
    done = subprocess.run([sys.executable, str(BROKER), *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert said in done.stderr
