"""Who published what to whom, who got it, and what the loss ledger says: the books of the MQTT fault tests."""

from __future__ import annotations

import random
from collections import Counter
from typing import NamedTuple

from tests.support.mqtt_client import Client, Packet, Sent

BURST = 12


class Missing(NamedTuple):
    """Of one subscriber: promised messages that did not come, and copies that came (or may be declared) beyond one."""

    lost: set[bytes]
    repeats: int


class Publisher:
    """Publishes numbered payloads below its own topic, `<user>/data/<n>` with any QoS; `<user>/keep/<qos>` retained."""

    def __init__(self, client: Client, chance: random.Random) -> None:
        self.client, self._chance = client, chance
        self.sent: dict[bytes, int] = {}
        """QoS by payload of everything sent with QoS 1 or 2."""
        self.kept: dict[str, list[Sent]] = {}
        """What was published retained, by topic, in order."""
        self._number = 0
        self._read = 0
        self.promised: dict[bytes, int] = {}
        """QoS by payload of what the node has taken over."""

    def burst(self) -> None:
        """A few messages at once."""
        for _ in range(self._chance.randint(1, BURST)):
            if not self.client.has_room:
                return
            self._one()

    def _one(self) -> None:
        self._number += 1
        qos = self._chance.choice((0, 1, 1, 2, 2))
        payload = f"{self.client.user}:{self._number}:{qos}:".encode()
        payload = payload.ljust(self._chance.choice((24, 60, 700)), b"\xff")
        if qos and self._chance.random() < 0.1:
            self._keep(payload, qos)
            return
        if qos:
            self.sent[payload] = qos
        self.client.publish(f"{self.client.user}/data/{self._chance.randint(0, 5)}", payload, qos)

    def _keep(self, payload: bytes, qos: int) -> None:
        """Retained, or now and then nothing retained any more."""
        topic = f"{self.client.user}/keep/{qos}"
        payload = b"" if self._chance.random() < 0.2 else payload
        self.kept.setdefault(topic, []).append(self.client.publish(topic, payload, qos, retain=True))

    def note(self) -> None:
        """Take up what was promised meanwhile."""
        finished = self.client.finished
        for sent in finished[self._read :]:
            if not sent.retain:
                self.promised[sent.payload] = sent.qos
        self._read = len(finished)

    def possible(self, topic: str) -> set[bytes]:
        """What may be retained now: the last one acked, or one sent after it (b"": nothing)."""
        sent = self.kept.get(topic, [])
        done = set(map(id, self.client.finished))
        acked = [at for at, one in enumerate(sent) if id(one) in done]
        return {one.payload for one in sent[acked[-1] :]} if acked else {b"", *(one.payload for one in sent)}


class Subscriber:
    """Listens to `+/data/#` with one QoS."""

    def __init__(self, client: Client, qos: int) -> None:
        self.client, self.qos = client, qos
        self.count: Counter[bytes] = Counter()
        """Copies of each payload that came with QoS 1 or 2."""
        self.highest: dict[tuple[str, str, int], int] = {}
        self._qos2: set[bytes] = set()
        self._live: set[bytes] = set()
        self._read = 0

    def note(self) -> None:
        """Take up what came meanwhile, and see that it may have come."""
        got = self.client.got
        for packet in got[self._read :]:
            self._one(packet)
        self._read = len(got)

    def _one(self, packet: Packet) -> None:
        assert packet.qos <= self.qos, packet
        assert not packet.retain, packet
        if not packet.qos:
            assert packet.payload not in self._live, f"QoS 0 came twice: {packet}"
            self._live.add(packet.payload)
            return
        if packet.qos == 2:
            assert packet.payload not in self._qos2, f"QoS 2 came twice: {packet}"
            self._qos2.add(packet.payload)
        self.count[packet.payload] += 1
        if self.count[packet.payload] == 1:
            self._in_order(packet)

    def _in_order(self, packet: Packet) -> None:
        """MQTT-4.6.0-6: per topic and published QoS the first copies keep the order of their publisher."""
        user, number, qos, _ = packet.payload.split(b":", 3)
        key = user.decode(), packet.topic, int(qos)
        assert int(number) > self.highest.get(key, 0), f"out of order: {packet}"
        self.highest[key] = int(number)

    def missing(self, publishers: list[Publisher]) -> Missing:
        """What was promised and did not come."""
        lost: set[bytes] = set()
        for one in publishers:
            lost |= one.promised.keys() - self.count.keys()
        return Missing(lost, sum(self.count.values()) - len(self.count))
