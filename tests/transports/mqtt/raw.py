"""A client on a real socket that speaks in packets."""

from __future__ import annotations

import asyncio
import ssl
from typing import Any

from edge.protocol.mqtt import codec
from edge.protocol.mqtt.codec import V311, AnyPacket, Connect, Frame
from tests.support.patience import PATIENCE_S

_OPEN: list[asyncio.StreamWriter] = []


class Peer:
    """Reads and writes packets; `closed` once the other side has hung up."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, version: int) -> None:
        self.reader, self.writer, self.version = reader, writer, version
        _OPEN.append(writer)
        self.connack = codec.Connack()
        self._bytes = b""

    def send(self, *packets: AnyPacket) -> None:
        self.writer.write(b"".join(codec.encode(packet, self.version) for packet in packets))

    async def next(self) -> AnyPacket | None:
        """The next packet; None when the connection is over."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                found = codec.split(self._bytes) if self._bytes else 2
                if isinstance(found, Frame):
                    packet = codec.decode(found.first, self._bytes, found.start, found.end, self.version)
                    self._bytes = self._bytes[found.end :]
                    return packet
                try:
                    data = await self.reader.read(65_536)
                except ConnectionError:
                    return None
                if not data:
                    return None
                self._bytes += data

    async def take(self, kind: type[Any]) -> Any:
        """The next packet, which must be of this type."""
        packet = await self.next()
        assert isinstance(packet, kind), packet
        return packet

    async def subscribe(self, wanted: str, qos: int = 0) -> None:
        self.send(codec.Subscribe(1, [codec.Wish(wanted, qos)]))
        assert (await self.take(codec.Suback)).reasons == [qos]

    async def close(self) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except (ConnectionError, ssl.SSLError):
            return


def hang_up() -> None:
    """End the connections that are still there: a test that fails does not come to closing them."""
    for writer in _OPEN:
        if not writer.is_closing():
            writer.transport.abort()
    _OPEN.clear()


async def dial(
    port: int,
    client_id: str = "c",
    *,
    user: str = "lamp",
    version: int = V311,
    tls: ssl.SSLContext | None = None,
    **fields: Any,
) -> Peer:
    """Connect and log in."""
    peer = await dial_raw(port, version, tls)
    peer.send(Connect(client_id, user=user, password=b"secret", version=version, **fields))
    peer.connack = await peer.take(codec.Connack)
    return peer


async def dial_raw(port: int, version: int = V311, tls: ssl.SSLContext | None = None) -> Peer:
    """Connect and say nothing."""
    name = "localhost" if tls is not None else None
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname=name)
    return Peer(reader, writer, version)


async def unread(made: Any, peer: Peer, questions: bytes) -> None:
    """Ask and read no answer, until the engine takes no more questions; it keeps a bounded number of answers."""
    transport: Any = peer.writer.transport
    transport.pause_reading()
    [stream] = made.engine._streams
    left, still = 0, 0
    while still < 50:
        if not transport.get_write_buffer_size():
            peer.writer.write(questions)
        await asyncio.sleep(0.005)
        before, left = left, transport.get_write_buffer_size()
        still = still + 1 if left == before and left else 0
        kept = stream.buffered()
        assert kept < 1_000_000, f"{kept} bytes wait for a client that takes nothing"
    transport.resume_reading()
