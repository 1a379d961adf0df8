"""Engine `external`: the node's bus over somebody else's broker (design D4): Mosquitto, EMQX, NanoMQ.

What is promised, and what not. What the node publishes is on disk before it leaves and is sent until the broker has
acked it, or declared lost. What devices publish is the broker's until it has sent it to us: it is kept by our
persistent session there as long as the broker keeps it. The client library acks a message when it has read it, so
between that ack and our commit there is a window: what is in it when this process dies is lost, and nobody is told.
`stats` shows how much is in it now, and the most there ever was. Messages of QoS 2 come and go with QoS 1.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
import ssl
from collections import Counter
from collections.abc import Callable, Collection, Iterator

import aiomqtt

from edge.contract.bus import Admission, Done, Publish, Sink, after
from edge.contract.errors import TooLarge, Unavailable
from edge.contract.limit import Limits
from edge.contract.op import Spawn
from edge.contract.principal import Kind, Principal
from edge.contract.store import Store
from edge.contract.time import SECOND, Clock
from edge.protocol.mqtt.prefixes import Prefixes
from edge.protocol.mqtt.repeats import Echoes, Repeats
from edge.protocol.mqtt.topics import valid_topic
from edge.store.losses import Losses
from edge.transports.mqtt.foreign import ForeignBroker, Where
from edge.transports.mqtt.outbox import Outbox

logger = logging.getLogger(__name__)

LAST_WORDS_US = 2 * SECOND
"""How long `close` waits for the connection to end and for commits."""

Traffic = Callable[[str], str]


class _Hold:
    """A batch with messages that the broker has our ack for and our disk has not."""

    __slots__ = ("awaited", "error", "kept", "messages", "open")

    def __init__(self, messages: list[Publish], awaited: list[tuple[int, Done]]) -> None:
        self.messages, self.open = messages, 1
        self.awaited = awaited
        """Messages of the host by their position, and who waits for them."""
        self.kept: set[int] = set()
        self.error: BaseException | None = None


class ExternalEngine:
    """Implements `edge.contract.bus.BusEngine`. `plan` are filters of the conventions, `reads` the topics that
    capabilities read just now; both are for whoever has all the topics that belong to nobody else (`#`)."""

    listens = False
    promise = (
        "what the node publishes is on disk first; what devices publish is the broker's until it is ours, and a crash "
        "of this node loses what it had read and not yet stored"
    )

    def __init__(
        self,
        where: Where,
        prefixes: Prefixes,
        *,
        clock: Clock,
        hot: Store,
        limits: Limits,
        losses: Losses,
        spawn: Spawn,
        plan: Collection[str] = (),
        reads: Callable[[], Collection[str]] = tuple,
        traffic: Traffic = lambda topic: "telemetry",
        spool_us: int = 300 * SECOND,
        draw: Callable[[], float] = random.random,
    ) -> None:
        self._where, self._prefixes, self._clock = where, prefixes, clock
        self._losses, self._spawn, self._plan = losses, spawn, tuple(plan)
        self._reads, self._traffic = reads, traffic
        self._outbox = Outbox(clock, hot, limits, traffic, spool_us)
        self._loop = asyncio.get_running_loop()
        self.broker = ForeignBroker(
            where,
            clock,
            draw,
            take=self._heard,
            plan=self._wanted,
            outgoing=self._outbox,
            begun=self._begun,
            cut=self._cut,
        )
        self._sinks: list[Sink] = []
        self._batch: list[Publish] = []
        self._awaited: list[tuple[int, Done]] = []
        self._turn_over: list[Callable[[], None]] = []
        self._scheduled = False
        self._repeats, self._echoes = Repeats(), Echoes()
        self._uncommitted = self._most_uncommitted = self._longest_us = 0
        self._counters: dict[str, int] = {}
        self._replanning = False

    # The bus.

    def attach(self, sink: Sink) -> None:
        """Add a sink."""
        self._sinks.append(sink)

    def publish(self, message: Publish, done: Done | None = None) -> None:
        """Publish from the host: `edge.contract.bus.Bus.publish`. On disk is what the sinks keep, and the message in
        the spool until the broker has acked it; without QoS and without a connection it is refused."""
        if not valid_topic(message.topic):
            raise ValueError(f"not a topic name: {message.topic!r}")
        told = None if done is None else after(2, done)
        self._take(message, told)
        if not self.broker.no_local:
            self._echoes.sent(message.topic, message.payload, message.at.mono_us)
        if message.qos or message.retain:
            self._outbox.put(message, told)
        elif self.broker.connected:
            self._spawn(self._now_or_never(message, told))
        else:
            self._gone_at_once(message, told)

    def _gone_at_once(self, message: Publish, told: Done | None) -> None:
        self._lost("not_connected", message.topic, "")
        if told is not None:
            told(Unavailable("the broker is not connected, and QoS 0 does not wait for it"))

    def kept(self, wanted: str) -> Iterator[Publish]:
        """Nothing: that broker has them, and sent them when we subscribed."""
        return iter(())

    def expel(self, user: str) -> int:
        """Nothing: who may connect is that broker's business."""
        return 0

    def hang_up(self, user: str) -> int:
        """Nothing: who may connect is that broker's business."""
        return 0

    def topics_changed(self) -> None:
        """Capabilities read other topics now."""
        if not self._replanning:
            self._replanning = True
            self._loop.call_soon(self._replan)

    def _replan(self) -> None:
        self._replanning = False
        self.broker.replan()

    def admission(self, who: Principal) -> Admission | None:
        """What a publisher may do: a prefix's own topics; everything for the node and its operator."""
        if who.kind in (Kind.NODE, Kind.OPERATOR):
            return Admission(who, "", ("#",), ("#",))
        return self._prefixes.admission(who.device_id)

    async def _now_or_never(self, message: Publish, told: Done | None) -> None:
        try:
            await self.broker.send0(message.topic, message.payload)
        except aiomqtt.MqttError:
            self._gone_at_once(message, told)
        except TooLarge as error:
            self._lost("broker_packet_too_large", message.topic, "")
            if told is not None:
                told(error)
        else:
            if told is not None:
                told(None)

    # Life.

    async def load(self) -> None:
        """Take up what the last run could not send, and begin to connect."""
        await self._outbox.load()
        self._spawn(self.broker.run())

    async def serve(
        self, sock: socket.socket, *, ssl: ssl.SSLContext | None = None, entrance: object = None, ws: bool = False
    ) -> int:
        """Never: this engine has no door of its own."""
        raise ValueError("the external engine does not listen")

    def stop_accepting(self) -> None:
        """Nothing: devices connect to the broker."""

    def stop_reading(self) -> None:
        """Leave the broker: what devices publish from now on waits there in our session."""
        self.broker.leave()

    async def close(self) -> None:
        """Wait a little for the end of the connection and for commits; what could not be sent stays in the spool."""
        self.broker.leave()
        end = self._clock.now().mono_us + LAST_WORDS_US
        while not (self.broker.ended.is_set() and self._outbox.quiet and not self._batch and not self._uncommitted):
            if self._clock.now().mono_us > end:
                break
            await self.ping()
            await self._clock.sleep_until(self._clock.now().mono_us + SECOND // 200)
        self._outbox.close()

    async def ping(self) -> None:
        """Return when a turn of the bus is over."""
        over = asyncio.Event()
        self._turn_over.append(over.set)
        self._need_turn()
        await over.wait()

    def stats(self) -> dict[str, int]:
        """How much there is, and how often what happened."""
        causes = {f"failed.{cause.replace(' ', '_')}": count for cause, count in self.broker.backoff.totals.items()}
        return {
            "connections": int(self.broker.connected),
            "connected_times": self.broker.connections,
            "queued": len(self._outbox),
            "queued_octets": self._outbox.octets,
            "uncommitted": self._uncommitted,
            "uncommitted_most": self._most_uncommitted,
            "uncommitted_longest_us": self._longest_us,
            **causes,
            **(Counter(self._counters) + Counter(self._outbox.counters)),
        }

    def facts(self) -> dict[str, object]:
        """What else `status` shows."""
        again_us = self.broker.again_us
        wait_us = 0 if again_us is None else max(0, again_us - self._clock.now().mono_us)
        return {
            "broker": f"{self._where.host}:{self._where.port}",
            "version": self.broker.version,
            "state": self.broker.state + (f", again in {wait_us / SECOND:.0f} s" if again_us is not None else ""),
            "principals": {name: list(one.publish) for name, one in self._prefixes.admissions.items()},
            "not_heard": sorted(self.broker.refused),
        }

    # From the broker.

    def _begun(self) -> None:
        self._repeats.begun(self._clock.now().mono_us)

    def _cut(self) -> None:
        self._repeats.cut()

    def _wanted(self) -> Collection[str]:
        """What to subscribe to: the topics of those with a prefix, the conventions', what capabilities read."""
        named = [one for one in self._prefixes.filters if one != "#"]
        if "#" not in self._prefixes.filters:
            return named
        return [*named, *self._plan, *self._reads()]

    def _heard(self, heard: aiomqtt.Message) -> None:
        """One message, as the library has read it."""
        topic, now = str(heard.topic), self._clock.now()
        payload = heard.payload if isinstance(heard.payload, bytes) else str(heard.payload).encode()
        self._count("received")
        if not self.broker.no_local and not heard.retain and self._echoes.mine(topic, payload, now.mono_us):
            return
        if heard.qos and not heard.retain and self._repeats.heard(heard.mid, topic, payload, now.mono_us):
            self._count("repeats")
            return
        by = self._prefixes.whose(topic)
        if by is None:
            self._lost("of_nobody", topic, "")
            return
        self._take(Publish(topic, payload, heard.qos, heard.retain, by.who, now, live=not heard.retain))

    def _take(self, message: Publish, told: Done | None = None) -> None:
        if told is not None:
            self._awaited.append((len(self._batch), told))
        self._batch.append(message)
        self._need_turn()

    # Turns.

    def _need_turn(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._scheduled = False
        if self._batch:
            batch, self._batch = self._batch, []
            self._hand_over(batch)
        over, self._turn_over = self._turn_over, []
        for call in over:
            call()

    def _hand_over(self, batch: list[Publish]) -> None:
        """Give a batch to every sink; what they keep is at risk until they are done."""
        hold = _Hold(batch, self._awaited)
        self._awaited = []
        for sink in self._sinks:
            hold.open += 1
            try:
                mine = set(sink(batch, lambda error: self._done(hold, error)))
            except Exception as error:
                logger.exception("a sink of the bus raised")
                mine, hold.error = set(range(len(batch))), error
                hold.open -= 1
            else:
                hold.open -= not mine
            hold.kept |= mine
        foreign = sum(batch[at].who.kind is Kind.DEVICE and batch[at].qos > 0 for at in hold.kept)
        self._uncommitted += foreign
        self._most_uncommitted = max(self._most_uncommitted, self._uncommitted)
        self._done(hold, None)

    def _done(self, hold: _Hold, error: BaseException | None) -> None:
        hold.open -= 1
        hold.error = hold.error or error
        if hold.open:
            return
        for at, told in hold.awaited:
            told(hold.error if at in hold.kept else None)
        now_us = self._clock.now().mono_us
        for at in hold.kept:
            message = hold.messages[at]
            if message.who.kind is not Kind.DEVICE:
                continue
            self._uncommitted -= message.qos > 0
            self._longest_us = max(self._longest_us, now_us - message.at.mono_us)
            if hold.error is not None:
                self._lost("unstored", message.topic, message.who.device_id)

    # Figures.

    def _count(self, name: str) -> None:
        self._counters[name] = self._counters.get(name, 0) + 1

    def _lost(self, reason: str, topic: str, who: str) -> None:
        self._count(f"dropped.{reason}")
        self._losses.note(self._traffic(topic), reason, who or "node")
