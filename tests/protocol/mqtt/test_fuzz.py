"""Whatever bytes come in whatever pieces: nothing is raised, and a client that behaves is served.

`AUN_EDGE_FUZZ_SECONDS` lets it run longer (CI: 20).
"""

from __future__ import annotations

import os
import random
import time

from edge.protocol.mqtt import codec
from edge.protocol.mqtt.codec import V5, V311, Ack, Connect, PublishPacket
from edge.protocol.mqtt.properties import Prop, Properties
from edge.protocol.mqtt.reasons import Packet
from tests.protocol.mqtt.box import Box, Client

SECONDS = float(os.environ.get("AUN_EDGE_FUZZ_SECONDS", "2"))
TOPICS = ("a", "a/b", "a/b/c", "$SYS/x", "ä/€", "")
FILTERS = ("a", "a/#", "+/b", "#", "$share/g/a/#", "$SYS/#", "a/#/b", "$share/g", "")


def word(draw: random.Random, version: int) -> codec.AnyPacket:
    """A packet that a client might send, right or wrong."""
    qos = draw.randrange(3)
    packet_id = draw.choice((1, 2, 3, 0xFFFF))
    found: Properties = {}
    if version == V5 and draw.random() < 0.3:
        found = {Prop.TOPIC_ALIAS: draw.randrange(4)}
    return draw.choice(
        (
            PublishPacket(
                draw.choice(TOPICS),
                draw.randbytes(draw.choice((0, 1, 5, 300))),
                qos,
                draw.random() < 0.3,
                bool(qos) and draw.random() < 0.2,
                packet_id if qos else 0,
                found,
            ),
            Ack(draw.choice((Packet.PUBACK, Packet.PUBREC, Packet.PUBREL, Packet.PUBCOMP)), packet_id),
            codec.Subscribe(packet_id, [codec.Wish(draw.choice(FILTERS), qos) for _ in range(draw.randrange(1, 4))]),
            codec.Unsubscribe(packet_id, [draw.choice(FILTERS)]),
            codec.Ping(),
            codec.Disconnect(),
        )
    )


def login(draw: random.Random, version: int) -> Connect:
    """A CONNECT, mostly a good one."""
    return Connect(
        draw.choice(("x", "y", "")),
        draw.random() < 0.5,
        draw.choice((0, 1, 60)),
        version,
        draw.choice(("lamp", "lamp", "lamp", "stranger")),
        b"p",
        draw.choice((None, codec.Will("a/will", b"w", draw.randrange(3), draw.random() < 0.5))),
        {Prop.SESSION_EXPIRY: draw.choice((0, 1, 1000))} if version == V5 else {},
    )


def stream(draw: random.Random, version: int) -> bytes:
    """What one client says, sometimes damaged."""
    parts = [codec.encode(login(draw, version), version)]
    parts += [codec.encode(word(draw, version), version) for _ in range(draw.randrange(12))]
    raw = bytearray(b"".join(parts))
    for _ in range(draw.choice((0, 0, 0, 1, 3))):
        at = draw.randrange(len(raw))
        damage = draw.randrange(3)
        if damage == 0:
            raw[at] = draw.randrange(256)
        elif damage == 1:
            del raw[at : at + draw.randrange(5)]
        else:
            raw[at:at] = draw.randbytes(draw.randrange(5))
        if not raw:
            break
    return bytes(raw)


def play(seed: int) -> None:
    """Some clients at once, then a good one."""
    draw = random.Random(seed)
    box = Box(instant=draw.random() < 0.5, packet_octets=1000, turn_work=draw.choice((3, 50, 2048)), inflight=2)
    box.keeps = lambda publish: draw.random() < 0.5
    clients: list[tuple[Client, bytes]] = []
    for _ in range(draw.randrange(1, 5)):
        version = draw.choice((V311, V5))
        client = box.wire()
        client.version = version
        client.connection.wire = Deaf(client)
        clients.append((client, stream(draw, version)))
    while clients:
        at = draw.randrange(len(clients))
        client, rest = clients[at]
        size = draw.choice((1, 2, 7, 100, 10_000))
        client.raw(rest[:size])
        happen(draw, box, client)
        if len(rest) > size and client.open:
            clients[at] = client, rest[size:]
        else:
            del clients[at]
    settle(box)
    box.keeps = lambda publish: False
    good = box.client("good", user="lamp")
    settle(box)
    assert good.subscribe("fine", qos=1) == [1]
    good.publish("fine", b"x", 1, 7)
    settle(box)
    found = good.read()
    assert PublishPacket("fine", b"x", 1, packet_id=1) in found
    assert Ack(Packet.PUBACK, 7) in found


class Deaf:
    """A wire whose output nobody decodes: the version may be what the fuzzer made of it."""

    def __init__(self, client: Client) -> None:
        self._client = client

    def write(self, data: bytes) -> None:
        return

    def buffered(self) -> int:
        return 0

    def pause(self) -> None:
        self._client.pause()

    def resume(self) -> None:
        self._client.resume()

    def close(self) -> None:
        self._client.close()

    def abort(self) -> None:
        self._client.abort()


def happen(draw: random.Random, box: Box, client: Client) -> None:
    """Something of the world."""
    chance = draw.random()
    if chance < 0.1:
        client.drop()
    elif chance < 0.2:
        box.pass_(draw.choice((0.5, 2, 100)))
    elif chance < 0.3 and box.disk:
        box.commit(draw.choice((None, None, OSError("disk full"))))
        box.turn()
    elif chance < 0.4 and box.kept:
        box.keep(draw.choice((None, OSError("disk full"))))
    elif chance < 0.5:
        box.host(draw.choice(TOPICS[:3]), b"host", draw.randrange(3), retain=draw.random() < 0.3)


def settle(box: Box) -> None:
    """Let every commit finish."""
    box.turn()
    box.pass_(2)
    while box.disk or box.kept:
        if box.disk:
            box.commit()
        if box.kept:
            box.keep()
        box.turn()


def test_nothing_that_clients_send_stops_the_broker() -> None:
    end = time.monotonic() + SECONDS
    seed = int(os.environ.get("AUN_EDGE_FUZZ_SEED", "1"))
    while time.monotonic() < end:
        try:
            play(seed)
        except Exception as error:
            raise AssertionError(f"seed {seed}") from error
        seed += 1
