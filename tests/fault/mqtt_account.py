"""Who published what to whom, who got it, and what the loss ledger says: the books of the MQTT fault tests."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import NamedTuple

from tests.support.mqtt_client import CLOSED, PUBACK, SUBACK, UNSUBACK, Client, Packet, Sent

BURST = 12
State = frozenset[str] | None
"""Of one client id: None is no session, else its filters."""


class Missing(NamedTuple):
    """Of one subscriber: promised messages that did not come, and copies that came (or may be declared) beyond one."""

    lost: set[bytes]
    repeats: int


class Publisher:
    """Publishes numbered payloads below its own topic, `<user>/data/<n>` with any QoS; `<user>/keep/<qos>` retained."""

    def __init__(self, client: Client, chance: random.Random) -> None:
        self.client, self._chance = client, chance
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
        self.client.publish(f"{self.client.user}/data/{self._chance.randint(0, 5)}", payload, qos)

    def _keep(self, payload: bytes, qos: int) -> None:
        """Retained, or now and then nothing retained any more."""
        payload = b"" if self._chance.random() < 0.2 else payload
        self.client.publish(f"{self.client.user}/keep/{qos}", payload, qos, retain=True)

    def note(self) -> None:
        """Take up what was promised meanwhile."""
        finished = self.client.finished
        for sent in finished[self._read :]:
            if not sent.retain:
                self.promised[sent.payload] = sent.qos
        self._read = len(finished)

    @property
    def kept(self) -> dict[str, list[Sent]]:
        """What was published retained, by topic, in order."""
        found: dict[str, list[Sent]] = {}
        for sent in self.client.published:
            if sent.retain:
                found.setdefault(sent.topic, []).append(sent)
        return found

    def possible(self, sent: list[Sent]) -> set[bytes]:
        """What may be retained of these now: the last one acked, or one sent after it (b"": nothing)."""
        done = set(map(id, self.client.finished))
        acked = [at for at, one in enumerate(sent) if id(one) in done]
        return {one.payload for one in sent[acked[-1] :]} if acked else {b"", *(one.payload for one in sent)}

    @property
    def spare(self) -> int:
        """How many copies may be declared lost that nobody was promised: of messages sent again, or never acked."""
        client = self.client
        return client.resent + len(client.published) - len(client.finished)

    async def finish(self, host: str, port: int) -> None:
        """Come back and send again what was not finished, until the node has taken all of it."""
        client = self.client
        await come_back(client, host, port)
        while client.unfinished:
            client.take(await client.receive())
            client.answer()
        client.cut()
        self.note()


class Subscriber:
    """Listens to `+/data/#` with one QoS."""

    def __init__(self, client: Client, qos: int) -> None:
        self.client, self.qos = client, qos
        self.count: Counter[bytes] = Counter()
        """Copies of each payload that came with QoS 1 or 2."""
        self.disorder: list[Packet] = []
        """First copies that came after a later message of their publisher, topic and published QoS (MQTT-4.6.0-6).
        There may be some only where copies were given up: a message sent again then comes late."""
        self._highest: dict[tuple[str, str, int], int] = {}
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
        user, number, qos, _ = packet.payload.split(b":", 3)
        key = user.decode(), packet.topic, int(qos)
        if int(number) < self._highest.get(key, 0):
            self.disorder.append(packet)
        self._highest[key] = max(int(number), self._highest.get(key, 0))

    def missing(self, publishers: list[Publisher]) -> Missing:
        """What was promised and did not come."""
        lost: set[bytes] = set()
        for one in publishers:
            lost |= one.promised.keys() - self.count.keys()
        return Missing(lost, sum(self.count.values()) - len(self.count))


class Flipper:
    """A client id that comes with and without a clean session, subscribes and unsubscribes; knows what the node may
    hold of it: None (no session) or the filters. After an ack there is one answer, after a cut several."""

    def __init__(self, client: Client, chance: random.Random) -> None:
        self.client, self._chance = client, chance
        self.filters = [f"{client.user}/{name}" for name in "abc"]
        self.on_change: Callable[[set[State]], None] = lambda states: None
        self._states: set[State] = {None}
        self._clean = True

    @property
    def states(self) -> set[State]:
        """What the node may hold."""
        return self._states

    @states.setter
    def states(self, states: set[State]) -> None:
        self._states = set(states)
        self.on_change(self._states)

    async def live(self, host: str, port: int) -> None:
        """Do one thing after the other until the node is gone."""
        with suppress(*CLOSED):
            await self.connect(host, port, clean=self._chance.random() < 0.5)
            while True:
                if self._chance.random() < 0.25:
                    await self.client.leave()
                    self._ended()
                    await self.connect(host, port, clean=self._chance.random() < 0.5)
                await self._change()
                await asyncio.sleep(0.01)
        self._ended()
        self.client.cut()

    async def connect(self, host: str, port: int, *, clean: bool) -> None:
        """CONNECT; session present is right."""
        before = set(self.states)
        self._clean = False
        opened: set[State] = {None} if clean else {frozenset()} if None in before else set()
        self.states = before | opened
        present = await self.client.connect(host, port, clean=clean)
        self._clean = clean
        if clean:
            assert not present
            self.states = {None}
        else:
            held = {state for state in before if (state is not None) is present}
            assert held, f"session present is {present}, but the node holds one of {before}"
            self.states = held if present else {frozenset()}

    def _ended(self) -> None:
        if self._clean:
            self.states = {None}

    async def _change(self) -> None:
        wanted = self._chance.choice(self.filters)
        with_it = {(state or frozenset()) | {wanted} for state in self.states}
        without = {(state or frozenset()) - {wanted} for state in self.states}
        subscribes = self._chance.random() < 0.6
        after: set[State] = {*(with_it if subscribes else without)}
        if not self._clean:
            self.states = self.states | after
        (self.client.subscribe if subscribes else self.client.unsubscribe)(wanted)
        answer = await self.client.expect(SUBACK if subscribes else UNSUBACK)
        assert answer.reason < 0x80
        if not self._clean:
            self.states = after

    async def check(self, host: str, port: int) -> None:
        """Session and subscriptions are what the node acked, seen by what arrives."""
        client = self.client
        client.got.clear()
        await self.connect(host, port, clean=False)
        for topic in self.filters:
            client.publish(topic, b"x", 1)
        while client.unfinished:
            await client.expect(PUBACK)
        heard = frozenset(packet.topic for packet in client.got)
        assert heard in self.states, f"{client.user} hears {set(heard)}, the node holds one of {self.states}"
        self.states = {heard}
        client.cut()


async def come_back(client: Client, host: str, port: int) -> None:
    """Connect; session present is right."""
    expected = client.known
    present = await client.connect(host, port)
    assert present or not expected, f"{client.user}: the session is gone"
    assert not (present and client.clean), f"{client.user}: a session that nobody wanted"


async def retained(observer: Client, host: str, port: int) -> dict[str, bytes]:
    """What a new subscriber is told of `+/keep/#`."""
    observer.got.clear()
    await observer.connect(host, port)
    observer.subscribe("+/keep/#", qos=0)
    await observer.expect(SUBACK)
    observer.publish("observer/end", b"", 1)
    await observer.expect(PUBACK)
    observer.cut()
    assert all(packet.retain and packet.qos == 0 for packet in observer.got), observer.got
    found = {packet.topic: packet.payload for packet in observer.got}
    assert len(found) == len(observer.got)
    return found


def wrongly_retained(found: dict[str, bytes], publishers: list[Publisher]) -> list[str]:
    """Topics whose retained message is neither what was acked last nor something sent after it."""
    left = dict(found)
    wrong = []
    for one in publishers:
        for topic, sent in one.kept.items():
            if left.pop(topic, b"") not in one.possible(sent):
                wrong.append(topic)
    return wrong + list(left)
