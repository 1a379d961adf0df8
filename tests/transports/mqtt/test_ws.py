"""MQTT over WebSocket: what comes in, and what does not (MQTT 5 §6)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from edge.protocol.mqtt import codec
from edge.protocol.mqtt.codec import V5, V311, Connack, Connect, Frame, PublishPacket, Suback
from edge.transports.mqtt.tcp import Entrance
from tests.transports.mqtt.conftest import Rig, rig
from tests.transports.mqtt.raw import dial_raw, unread

LOGIN = codec.encode(Connect("c", user="lamp", password=b"secret"), V311)

CRLF = "\r\n"
UPGRADE = CRLF.join(
    [
        "Connection: Upgrade",
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
        "Sec-WebSocket-Protocol: mqtt",
        CRLF,
    ]
)


async def opened(made: Rig, **entrance: Any) -> str:
    """A WebSocket listener; its URL without the path."""
    return f"ws://127.0.0.1:{await made.engine.listen_ws('127.0.0.1', 0, entrance=Entrance(**entrance))}"


def dial(url: str, **options: Any) -> connect:
    return connect(url, **{"subprotocols": ["mqtt"], **options})


async def packets(socket: ClientConnection, count: int) -> list[codec.AnyPacket]:
    """As many packets, whatever frames they come in."""
    found: list[codec.AnyPacket] = []
    data = b""
    while len(found) < count:
        part = await socket.recv()
        assert isinstance(part, bytes)
        data += part
        while isinstance(frame := codec.split(data) if data else 2, Frame):
            found.append(codec.decode(frame.first, data, frame.start, frame.end, V311))
            data = data[frame.end :]
    return found


async def test_a_client_publishes_and_reads(engine: Rig) -> None:
    """MQTT-6.0.0-2: packets and frames need not share their borders; MQTT-6.0.0-4: the subprotocol is mqtt."""
    async with dial(await opened(engine) + "/mqtt") as socket:
        assert socket.subprotocol == "mqtt"
        subscribe = codec.encode(codec.Subscribe(1, [codec.Wish("a")]), V311)
        raw = LOGIN + subscribe + codec.encode(PublishPacket("a", b"x" * 5000), V311)
        for at in range(0, len(raw), 700):
            await socket.send(raw[at : at + 700])
        await socket.send([raw[:0], codec.encode(PublishPacket("a", b"y"), V311)])
        found = await packets(socket, 4)
        assert isinstance(found[0], Connack)
        assert sum(isinstance(one, Suback) for one in found) == 1
        assert [one.payload[:1] for one in found if isinstance(one, PublishPacket)] == [b"x", b"y"]
    await engine.until(lambda: not engine.engine.stats()["sockets"])


async def test_a_will_goes_out_when_the_websocket_ends(engine: Rig) -> None:
    will = codec.encode(Connect("c", user="lamp", password=b"secret", will=codec.Will("gone")), V311)
    async with dial(await opened(engine) + "/mqtt") as socket:
        await socket.send(will)
        await packets(socket, 1)
    await engine.until(lambda: engine.heard)
    assert engine.heard[0].topic == "gone"


async def test_a_protocol_error_ends_the_websocket(engine: Rig) -> None:
    async with dial(await opened(engine) + "/mqtt") as socket:
        await socket.send(LOGIN + b"\x36\x00")
        await packets(socket, 1)
        with pytest.raises(ConnectionClosed):
            await socket.recv()
        assert socket.close_code == 1000


async def test_text_is_refused(engine: Rig) -> None:
    """MQTT-6.0.0-1."""
    async with dial(await opened(engine) + "/mqtt") as socket:
        await socket.send("hello")
        with pytest.raises(ConnectionClosed):
            await socket.recv()
        assert socket.close_code == 1003
    await engine.until(lambda: not engine.engine.stats()["sockets"])


async def test_another_path_is_not_found(engine: Rig) -> None:
    with pytest.raises(InvalidStatus) as caught:
        await dial(await opened(engine) + "/")
    assert caught.value.response.status_code == 404


@pytest.mark.parametrize(
    ("origin", "good"), [("https://home.test", True), ("http://evil.test", False), ("null", False), ("", False)]
)
async def test_a_page_needs_an_origin_that_is_allowed(engine: Rig, origin: str, good: bool) -> None:
    url = await opened(engine, origins=("https://home.test",)) + "/mqtt"
    if good:
        async with dial(url, origin=origin):
            return
    with pytest.raises(InvalidStatus) as caught:
        await dial(url, additional_headers={"Origin": origin})
    assert caught.value.response.status_code == 403


async def test_a_page_of_our_own_host_may_connect(engine: Rig) -> None:
    url = await opened(engine)
    async with dial(url + "/mqtt", origin=url.replace("ws", "http")):
        pass


@pytest.mark.parametrize(("host", "good"), [("localhost", True), ("rebound.example.org", False)])
async def test_on_loopback_a_foreign_host_is_refused(engine: Rig, host: str, good: bool) -> None:
    """A page whose name was rebound to this machine has that name in its Host, and the same in its Origin."""
    url = await opened(engine, hosts=lambda name: name.partition(":")[0] == "localhost") + "/mqtt"
    port = url.split(":")[2].split("/")[0]
    headers = {"Host": f"{host}:{port}", "Origin": f"http://{host}:{port}"}
    asked = f"GET /mqtt HTTP/1.1\r\n{''.join(f'{name}: {value}{CRLF}' for name, value in headers.items())}{UPGRADE}"
    reader, writer = await asyncio.open_connection("127.0.0.1", int(port))
    writer.write(asked.encode())
    assert (await reader.readline()).split()[1] == (b"101" if good else b"403")
    writer.close()


@pytest.mark.parametrize("offered", [None, ["amqp"]])
async def test_without_the_subprotocol_nobody_comes_in(engine: Rig, offered: list[str] | None) -> None:
    """MQTT-6.0.0-3."""
    with pytest.raises(InvalidStatus) as caught:
        await dial(await opened(engine) + "/mqtt", subprotocols=offered)
    assert caught.value.response.status_code == 400


async def test_what_is_no_websocket_is_told_so(engine: Rig) -> None:
    url = await opened(engine)
    peer = await dial_raw(int(url.rsplit(":", 1)[1]))
    peer.writer.write(b"GET /mqtt HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (await peer.reader.read(100)).startswith(b"HTTP/1.1 426")
    await peer.close()
    peer = await dial_raw(int(url.rsplit(":", 1)[1]))
    peer.writer.write(LOGIN + b"\r\n\r\n")
    await peer.reader.read()
    await peer.close()
    await engine.until(lambda: not engine.engine.stats()["sockets"])


@pytest.mark.limit("mqtt.connect_s")
async def test_a_handshake_that_does_not_come_is_not_waited_for(tmp_path: Path) -> None:
    async with rig(tmp_path, connect_s=1) as made:
        peer = await dial_raw(int((await opened(made)).rsplit(":", 1)[1]))
        peer.writer.write(b"GET /mqtt HTTP/1.1\r\n")
        await made.until(lambda: made.engine.stats()["sockets"] == 1)
        await made.until(lambda: made.engine.stats()["sockets"] == 0)
        assert made.limits.hits["mqtt.connect_s"] == 1
        await peer.close()


@pytest.mark.limit("mqtt.ws_message_octets")
async def test_a_message_over_the_limit_closes(tmp_path: Path) -> None:
    async with rig(tmp_path, ws_message_octets=1000) as made:
        url = await opened(made) + "/mqtt"
        async with dial(url) as socket:
            await socket.send(LOGIN + codec.encode(PublishPacket("a", b"x" * (1000 - len(LOGIN) - 6)), V311))
            await packets(socket, 1)
            await made.until(lambda: made.heard)
            await socket.send(b"\xc0\x00" * 501)
            with pytest.raises(ConnectionClosed):
                await socket.recv()
            assert socket.close_code == 1009


async def test_stopping_says_goodbye(tmp_path: Path) -> None:
    async with rig(tmp_path) as made:
        async with dial(await opened(made) + "/mqtt") as socket:
            await socket.send(codec.encode(Connect("c", user="lamp", password=b"secret", version=V5), V5))
            await socket.recv()
            closing = asyncio.ensure_future(made.engine.close())
            assert await socket.recv() == bytes.fromhex("e0018b")
            with pytest.raises(ConnectionClosed):
                await socket.recv()
            await closing


@pytest.mark.parametrize(
    "headers",
    [
        f"GET //[ HTTP/1.1{CRLF}Host: localhost{CRLF}",
        f"GET /mqtt HTTP/1.1{CRLF}Host: localhost{CRLF}Origin: http://[{CRLF}",
        f"GET /mqtt HTTP/1.1{CRLF}Host: localhost{CRLF}Host: localhost{CRLF}",
        f"GET /mqtt HTTP/1.1{CRLF}",
    ],
)
async def test_a_handshake_with_what_is_no_url_or_two_hosts_is_answered(engine: Rig, headers: str) -> None:
    """RFC 9112 §3.2: one Host. What cannot be read is refused like anything else, not an error in the log."""
    url = await opened(engine, hosts=lambda name: name.partition(":")[0] == "localhost")
    peer = await dial_raw(int(url.rsplit(":", 1)[1]))
    peer.writer.write((headers + UPGRADE).encode())
    assert (await peer.reader.read(100)).startswith(b"HTTP/1.1 400")
    await peer.close()


@pytest.mark.limit("mqtt.connect_octets")
@pytest.mark.parametrize("shaken", [False, True])
async def test_what_comes_before_a_connect_is_bounded(tmp_path: Path, shaken: bool) -> None:
    """Headers without end, or one great frame that never does: a stranger's bytes are not kept by the megabyte."""
    async with rig(tmp_path, connect_octets=2000) as made:
        peer = await dial_raw(int((await opened(made)).rsplit(":", 1)[1]))
        peer.writer.write(f"GET /mqtt HTTP/1.1{CRLF}Host: localhost{CRLF}".encode())
        if shaken:
            peer.writer.write(UPGRADE.encode())
            assert (await peer.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
            peer.writer.write(bytes((0x82, 0xFF)) + (100_000).to_bytes(8) + bytes(4))
        for _ in range(6):
            peer.writer.write(f"X: {'x' * 793}{CRLF}".encode())
        await made.until(lambda: made.limits.hits)
        await made.until(lambda: not made.engine.stats()["sockets"])
        assert made.limits.hits == {"mqtt.connect_octets": 1}
        peer.writer.transport.abort()


async def test_who_does_not_wait_for_the_answer_to_connect_may_say_more(tmp_path: Path) -> None:
    async with rig(tmp_path, connect_octets=1000) as made, dial(await opened(made) + "/mqtt") as socket:
        await socket.send(LOGIN + codec.encode(PublishPacket("a", b"x" * 3000), V311))
        await made.until(lambda: made.heard)
        assert not made.limits.hits


@pytest.mark.limit("mqtt.write_octets")
async def test_who_pings_and_never_reads_is_read_no_more(tmp_path: Path) -> None:
    """A pong for each ping: what is kept for a client that takes none of them is bounded."""
    async with rig(tmp_path, write_octets=8192) as made:
        peer = await dial_raw(int((await opened(made)).rsplit(":", 1)[1]))
        peer.writer.write(f"GET /mqtt HTTP/1.1{CRLF}Host: localhost{CRLF}{UPGRADE}".encode())
        assert (await peer.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
        peer.writer.write(bytes((0x82, 0x80 | len(LOGIN))) + bytes(4) + LOGIN)
        assert (await peer.reader.readexactly(6))[2:] == b"\x20\x02\0\0"
        await unread(made, peer, (b"\x89\xfd" + bytes(4 + 125)) * 500)
        await peer.reader.readexactly(1000 * 127)  # and then read again
        peer.writer.transport.abort()
