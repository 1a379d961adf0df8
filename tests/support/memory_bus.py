"""The second engine: a `Bus` without sockets, with the devices' side in the test's hands. It proves the seam."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator

import msgspec

from edge.contract.bus import Done, Publish, Sink
from edge.contract.principal import Principal
from edge.contract.time import Clock
from edge.protocol.mqtt.topics import matches
from tests.support.clock import FakeClock


class Arrival:
    """What became of one message that a device sent. `acked`: None as long as nothing left."""

    def __init__(self, message: Publish, told: Done | None = None) -> None:
        self.message = message
        self.told = told
        self.acked: bool | None = None
        self.error: BaseException | None = None


class MemoryBus:
    """`edge.contract.bus.Bus`. `heard` is every message in order, `sent` those of the host, `retained` by topic."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or FakeClock()
        self._sinks: list[Sink] = []
        self._batch: list[Arrival] = []
        self.heard: list[Publish] = []
        self.sent: list[Publish] = []
        self.retained: dict[str, Publish] = {}
        self.expelled: list[str] = []
        self.hung_up: list[str] = []

    def publish(self, message: Publish, done: Done | None = None) -> None:
        self.sent.append(message)
        self._take(Arrival(message, done))

    def attach(self, sink: Sink) -> None:
        self._sinks.append(sink)

    def kept(self, wanted: str) -> Iterator[Publish]:
        topics = [topic for topic in self.retained if matches(wanted, topic)]
        return (msgspec.structs.replace(self.retained[topic], live=False) for topic in topics)

    def hang_up(self, user: str) -> int:
        self.hung_up.append(user)
        return 0

    def expel(self, user: str) -> int:
        self.expelled.append(user)
        return 0

    def arrive(
        self, topic: str, payload: bytes | str, who: Principal, *, qos: int = 1, retain: bool = False
    ) -> Arrival:
        """A device publishes; seen by the sinks in the next turn of the loop."""
        raw = payload.encode() if isinstance(payload, str) else payload
        arrival = Arrival(Publish(topic, raw, qos, retain, who, self._clock.now()))
        self._take(arrival)
        return arrival

    def sent_to(self, wanted: str) -> list[Publish]:
        """The host's messages whose topic matches a filter."""
        return [message for message in self.sent if matches(wanted, message.topic)]

    async def turn(self) -> None:
        """Let the sinks see what has arrived, and what they send in answer."""
        while self._batch:
            await asyncio.sleep(0)

    def _take(self, arrival: Arrival) -> None:
        message = arrival.message
        self.heard.append(message)
        if message.retain:
            self.retained[message.topic] = message
            if not message.payload:
                del self.retained[message.topic]
        if not self._batch:
            asyncio.get_running_loop().call_soon(self._hand_over)
        self._batch.append(arrival)

    def _hand_over(self) -> None:
        batch, self._batch = self._batch, []
        waits = _Waits(batch)
        for sink in self._sinks:
            waits.expect(sink)
        waits.settle()


class _Waits:
    """Acks of one batch: kept messages wait for every sink that keeps something, the others do not."""

    def __init__(self, batch: list[Arrival]) -> None:
        self._batch = batch
        self._open = 0
        self._error: BaseException | None = None
        self._kept: set[int] = set()

    def expect(self, sink: Sink) -> None:
        self._open += 1
        kept: Collection[int] = sink([arrival.message for arrival in self._batch], self._done)
        self._kept.update(kept)
        if not kept:
            self._open -= 1

    def settle(self) -> None:
        for at, arrival in enumerate(self._batch):
            if at not in self._kept:
                arrival.acked = True
                if arrival.told is not None:
                    arrival.told(None)
        self._finish()

    def _done(self, error: BaseException | None) -> None:
        self._open -= 1
        self._error = self._error or error
        self._finish()

    def _finish(self) -> None:
        if self._open:
            return
        for at in self._kept:
            self._batch[at].acked = self._error is None
            self._batch[at].error = self._error
            told, self._batch[at].told = self._batch[at].told, None
            if told is not None:
                told(self._error)
