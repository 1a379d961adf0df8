"""A broker of MQTT 5 that refuses what a test wants it to, on a real socket."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager, closing, suppress

from edge.protocol.mqtt.codec import V5, Ack, Connack, Connect, Disconnect, Packet, PublishPacket, Suback, Subscribe
from edge.protocol.mqtt.properties import Prop
from edge.protocol.mqtt.reasons import Reason
from tests.transports.mqtt.raw import Peer

Answers = Callable[[PublishPacket], int | None]


class Picky:
    """`answers` gives the reason code for a message, None for no answer; it lets nobody read the filters in `closed`,
    and sends `greeting` to whoever has subscribed. With `at_once` it answers when so many messages have come, a moment
    later, and hangs up on whoever sends another meanwhile."""

    def __init__(self, answers: Answers, closed: Collection[str], greeting: str, at_once: int) -> None:
        self.answers, self.closed, self.greeting, self.at_once, self.port = answers, closed, greeting, at_once, 0
        self.heard: list[PublishPacket] = []

    @property
    def payloads(self) -> list[bytes]:
        """What came, in order."""
        return [one.payload for one in self.heard]

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, to its end."""
        peer = Peer(reader, writer, V5)
        waiting: list[PublishPacket] = []
        with closing(writer):
            while (packet := await peer.next()) is not None:
                match packet:
                    case Connect():
                        peer.send(Connack(properties={Prop.RECEIVE_MAXIMUM: self.at_once} if self.at_once else {}))
                    case Subscribe():
                        self._subscribe(peer, packet)
                    case PublishPacket():
                        waiting.append(packet)
                        if len(waiting) >= self.at_once:
                            if self.at_once and await _said_more(peer):
                                return
                            self._publish(peer, waiting)
                            waiting = []
                    case Disconnect():
                        return

    def _subscribe(self, peer: Peer, packet: Subscribe) -> None:
        granted = [Reason.NOT_AUTHORIZED if wish.filter in self.closed else wish.qos for wish in packet.wishes]
        peer.send(Suback(packet.packet_id, [int(code) for code in granted]))
        if self.greeting:
            peer.send(PublishPacket(self.greeting, b"hello"))

    def _publish(self, peer: Peer, packets: list[PublishPacket]) -> None:
        self.heard += packets
        for packet in packets:
            answer = self.answers(packet)
            if packet.qos and answer is not None:
                peer.send(Ack(Packet.PUBACK, packet.packet_id, answer))


async def _said_more(peer: Peer) -> bool:
    """Whether a client says something, or leaves, in a moment."""
    with suppress(TimeoutError):
        async with asyncio.timeout(0.1):
            await peer.next()
            return True
    return False


@asynccontextmanager
async def picky(
    answers: Answers = lambda packet: Reason.SUCCESS,
    *,
    closed: Collection[str] = (),
    greeting: str = "",
    at_once: int = 0,
) -> AsyncIterator[Picky]:
    """Such a broker, on a port of its own."""
    made = Picky(answers, closed, greeting, at_once)
    async with await asyncio.start_server(made.accept, "127.0.0.1", 0) as server:
        made.port = server.sockets[0].getsockname()[1]
        yield made
