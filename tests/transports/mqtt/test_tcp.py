"""TLS, client certificates, unix sockets, listeners for some networks only."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from ipaddress import ip_network
from pathlib import Path

import pytest

from edge.contract.bus import Admission, Login, Refusal, Verdict
from edge.contract.principal import Kind, Principal
from edge.protocol.mqtt import codec
from edge.protocol.mqtt.codec import V5, V311, Ack, Connack, Connect, Disconnect, PublishPacket
from edge.protocol.mqtt.reasons import Reason
from edge.transports.mqtt.tcp import Entrance
from tests.transports.mqtt.certificates import Authority
from tests.transports.mqtt.conftest import Gate, Rig, rig, run
from tests.transports.mqtt.raw import Peer, dial, dial_raw


class CertifiedGate(Gate):
    """Knows some clients by their certificate."""

    def admit(self, login: Login, then: Verdict) -> None:
        name = login.certificate
        who = Principal(Kind.DEVICE, f"d-{name}.test", via="mqtt")
        if not name:
            super().admit(login, then)
        elif name == "stranger":
            then(Refusal.NOT_AUTHORIZED)
        else:
            then(Admission(who, name, (f"{name}/#",), (f"{name}/#",)))


async def test_messages_pass_over_tls(engine: Rig, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    port = await engine.engine.listen("127.0.0.1", 0, ssl=authority.server())
    peer = await dial(port, version=V5, tls=authority.client())
    await peer.subscribe("a", 1)
    peer.send(*[PublishPacket("a", b"x" * 10_000, 1, packet_id=at) for at in range(1, 101)])
    found = [await peer.next() for _ in range(200)]
    assert sum(isinstance(one, PublishPacket) for one in found) == 100
    assert sum(isinstance(one, Ack) for one in found) == 100
    await peer.close()
    await engine.until(lambda: not engine.engine.stats()["sockets"])


async def test_mosquittos_client_speaks_tls(engine: Rig, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    port = await engine.engine.listen("127.0.0.1", 0, ssl=authority.server())
    command = ("mosquitto_pub", "-h", "localhost", "-p", str(port), "-u", "lamp", "-P", "secret", "-t", "a", "-m", "x")
    assert await run(*command, "--cafile", str(authority.file), "-q", "1") == (0, "")
    assert [one.payload for one in engine.heard] == [b"x"]


async def test_a_renewed_certificate_is_shown_and_drops_nobody(engine: Rig, tmp_path: Path) -> None:
    """Settled G32: reload is `load_cert_chain` on the same context."""
    authority = Authority(tmp_path)
    context = authority.server("first")
    port = await engine.engine.listen("127.0.0.1", 0, ssl=context)
    before = await dial(port, "before", tls=authority.client())
    context.load_cert_chain(*authority.issue("second", dns="localhost"))
    after = await dial(port, "after", tls=authority.client())
    assert [_server_name(peer) for peer in (before, after)] == ["first", "second"]
    before.send(codec.Ping())
    await before.take(codec.Ping)
    for peer in (before, after):
        await peer.close()


def _server_name(peer: Peer) -> str:
    found = peer.writer.get_extra_info("peercert")
    return str(dict(pair[0] for pair in found["subject"])["commonName"])


@pytest.mark.parametrize(("dns", "user"), [("", "sensor"), ("sensor.home", "sensor.home")])
async def test_a_client_certificates_name_is_the_user(tmp_path: Path, dns: str, user: str) -> None:
    """Settled G02: its DNS name, else its common name; no password is asked for."""
    authority = Authority(tmp_path)
    async with rig(tmp_path, gate=CertifiedGate()) as made:
        port = await made.engine.listen("127.0.0.1", 0, ssl=authority.server(clients=True))
        peer = await dial(port, user="somebody else", tls=authority.client("sensor", dns=dns))
        assert peer.connack.reason == 0
        peer.send(PublishPacket(f"{user}/x", b"1"), PublishPacket("lamp/x", b"2"))
        await made.until(lambda: made.heard)
        assert [(one.topic, one.who.aid) for one in made.heard] == [(f"{user}/x", f"d-{user}.test")]
        await peer.close()


async def test_a_stranger_with_a_good_certificate_is_refused(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with rig(tmp_path, gate=CertifiedGate()) as made:
        port = await made.engine.listen("127.0.0.1", 0, ssl=authority.server(clients=True))
        peer = await dial(port, tls=authority.client("stranger"))
        assert peer.connack.reason == 5
        await peer.close()


async def test_without_a_certificate_the_password_counts(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with rig(tmp_path, gate=CertifiedGate()) as made:
        port = await made.engine.listen("127.0.0.1", 0, ssl=authority.server(clients=True))
        peer = await dial(port, tls=authority.client())
        assert peer.connack.reason == 0
        await peer.close()


async def test_a_foreign_certificate_does_not_get_through(tmp_path: Path) -> None:
    authority, foreign = Authority(tmp_path), Authority(_other(tmp_path))
    async with rig(tmp_path, gate=CertifiedGate()) as made:
        port = await made.engine.listen("127.0.0.1", 0, ssl=authority.server(clients=True))
        context = authority.client()
        context.load_cert_chain(*foreign.issue("sensor", file="forged"))
        peer = await dial_raw(port, V311, context)
        peer.send(Connect("c", user="lamp", password=b"secret"))
        with suppress(ssl.SSLError):
            assert await peer.next() is None
        await peer.close()
        assert made.engine.stats()["sessions"] == 0


def _other(folder: Path) -> Path:
    made = folder / "foreign"
    made.mkdir()
    return made


async def test_version_5_reads_its_reason_over_tls_too(engine: Rig, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    port = await engine.engine.listen("127.0.0.1", 0, ssl=authority.server())
    peer = await dial(port, version=V5, tls=authority.client())
    peer.writer.write(b"\x36\x00")
    assert (await peer.take(Disconnect)).reason == Reason.MALFORMED_PACKET
    assert await peer.next() is None
    await peer.close()


async def test_no_tls_where_tls_is_spoken_costs_nothing(engine: Rig, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    port = await engine.engine.listen("127.0.0.1", 0, ssl=authority.server())
    peer = await dial_raw(port)
    peer.send(Connect("c", user="lamp", password=b"secret"))
    assert await peer.next() is None
    await peer.close()
    assert engine.engine.stats()["sockets"] == 0


async def test_messages_pass_over_a_unix_socket(engine: Rig, tmp_path: Path) -> None:
    path = str(tmp_path / "mqtt.sock")
    await engine.engine.listen_unix(path)
    peer = Peer(*await asyncio.open_unix_connection(path), V311)
    peer.send(Connect("c", user="lamp", password=b"secret"))
    assert (await peer.take(Connack)).reason == 0
    peer.send(PublishPacket("a", b"x"))
    await engine.until(lambda: engine.heard)
    await peer.close()


async def test_a_listener_for_some_networks_closes_to_others(engine: Rig) -> None:
    """Settled G14: `plain_lan`."""
    near = Entrance(networks=(ip_network("127.0.0.0/8"),), via="mqtt-plain")
    far = Entrance(networks=(ip_network("10.0.0.0/8"), ip_network("fd00::/8")))
    port, closed = [await engine.engine.listen("127.0.0.1", 0, entrance=one) for one in (near, far)]
    peer = await dial(port)
    peer.send(PublishPacket("a", b"x"))
    await engine.until(lambda: engine.heard)
    assert engine.heard[0].who.via == "mqtt-plain"
    stranger = await dial_raw(closed)
    assert await stranger.next() is None
    for each in (peer, stranger):
        await each.close()


@pytest.mark.parametrize(
    ("address", "good"),
    [
        ("192.168.1.7", True),
        ("::ffff:192.168.1.7", True),
        ("192.168.2.7", False),
        ("fe80::1%eth0", True),
        ("2001:db8::1", False),
        ("local", False),
    ],
)
def test_an_entrance_knows_its_networks(address: str, good: bool) -> None:
    entrance = Entrance(networks=(ip_network("192.168.1.0/24"), ip_network("fe80::/10")))
    assert entrance.admits(address) is good
    assert Entrance().admits(address)
