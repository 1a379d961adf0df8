"""A broker in a box: events in, packets out, time and disk in the test's hands."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from edge.contract.bus import Admission, Done, Publish, Refusal, Verdict
from edge.contract.limit import Limits
from edge.contract.principal import NODE, Kind, Principal
from edge.contract.time import SECOND, Stamp
from edge.protocol.mqtt import codec
from edge.protocol.mqtt.broker import Broker
from edge.protocol.mqtt.codec import V5, V311, AnyPacket, Connect, Frame
from edge.protocol.mqtt.connection import Connection
from edge.protocol.mqtt.journal import Changes
from edge.protocol.mqtt.reasons import Packet

EVERYTHING = Admission(Principal(Kind.DEVICE, "d-lamp.test", via="mqtt"), "lamp", ("#",), ("#", "$SYS/#", "$x/#"))


class Box:
    """One broker. `heard` is what its sinks saw, `disk` the commits not yet finished (none with `instant`)."""

    def __init__(self, *, instant: bool = True, **limits: int) -> None:
        self.now_us = SECOND
        self.limits = Limits({f"mqtt.{name}": value for name, value in limits.items()})
        self.users: dict[str, Admission] = {"lamp": EVERYTHING}
        self.refusal = Refusal.CREDENTIALS
        self.heard: list[Publish] = []
        self.batches: list[list[Publish]] = []
        self.keeps: Callable[[Publish], bool] = lambda publish: False
        self.kept: list[Done] = []
        self.disk: list[tuple[Changes, Done]] = []
        self.instant = instant
        self.written: list[Changes] = []
        self.traffic: Callable[[str], str] = lambda topic: "telemetry"
        self._turns = 0
        self._ids = 0
        self.broker = Broker(
            now=lambda: Stamp(1, self.now_us),
            ask=self._ask,
            bounds=self.limits,
            write=self._write,
            schedule=self._schedule,
            random_id=self._random_id,
            traffic=lambda topic: self.traffic(topic),
        )
        self.broker.attach(self._sink)

    def _ask(self, connection: Connection, packet: Connect, then: Verdict) -> None:
        then(self.users.get(packet.user or "", self.refusal))

    def _random_id(self) -> str:
        self._ids += 1
        return f"{self._ids:04d}"

    def _schedule(self) -> None:
        self._turns += 1

    def _write(self, changes: Changes, done: Done) -> None:
        self.disk.append((changes, done))

    def _sink(self, batch: list[Publish], done: Done) -> Collection[int]:
        self.heard += batch
        self.batches.append(batch)
        kept = [at for at, publish in enumerate(batch) if self.keeps(publish)]
        if kept:
            self.kept.append(done)
        return kept

    def turn(self) -> None:
        """Let the broker turn until it has nothing to do (with `instant`, commits included)."""
        while self._turns or (self.instant and self.disk):
            if self._turns:
                self._turns = 0
                self.broker.turn()
            elif self.disk:
                self.commit()

    def commit(self, error: BaseException | None = None) -> None:
        """Finish the commit that has waited longest."""
        changes, done = self.disk.pop(0)
        if error is None:
            self.written.append(changes)
        done(error)
        self.broker.need_turn()

    def keep(self, error: BaseException | None = None) -> None:
        """The sinks' oldest commit is done."""
        self.kept.pop(0)(error)
        self.turn()

    def host(
        self, topic: str, payload: bytes = b"", qos: int = 0, *, retain: bool = False, done: Done | None = None
    ) -> None:
        """The host publishes."""
        self.broker.publish(Publish(topic, payload, qos, retain, NODE, self.broker.stamp), done)
        self.turn()

    def pass_(self, seconds: float) -> None:
        """Let time pass, appointment by appointment."""
        self.turn()
        end = self.now_us + int(seconds * SECOND)
        while (due := self.broker.deadlines.next()) is not None and due <= end:
            self.now_us = max(self.now_us, due)
            self.broker.tick()
            self.turn()
        self.now_us = end
        self.broker.tick()
        self.turn()

    def wire(self, address: str = "192.0.2.1") -> Client:
        """A new connection, silent so far."""
        return Client(self, address)

    def client(self, client_id: str = "c", *, version: int = V311, user: str = "lamp", **fields: Any) -> Client:
        """A connection that has sent CONNECT and read CONNACK."""
        client = self.wire()
        client.version = version
        client.send(Connect(client_id, user=user, password=b"p", version=version, **fields))
        if client.inbox:
            first = client.inbox.pop(0)
            assert isinstance(first, codec.Connack), first
            client.connack = first
        return client


class Client:
    """The other end of a connection: `edge.protocol.mqtt.connection.Wire` that decodes what it is sent."""

    def __init__(self, box: Box, address: str) -> None:
        self.box, self.version = box, V311
        self.inbox: list[AnyPacket] = []
        self.open = True
        self.aborted = False
        self.reading = True
        self.stuck = 0
        """Bytes that the kernel does not take."""
        self.full = False
        self.connack = codec.Connack()
        self._bytes = b""
        self.connection = box.broker.open(self, address)

    # What the core calls.

    def write(self, data: bytes) -> None:
        if self.full:
            self.stuck += len(data)
            return
        self._bytes += data
        while self._bytes:
            found = codec.split(self._bytes)
            if not isinstance(found, Frame):
                return
            packet = codec.decode(found.first, self._bytes, found.start, found.end, self.version)
            self._bytes = self._bytes[found.end :]
            self.inbox.append(packet)

    def buffered(self) -> int:
        return self.stuck

    def pause(self) -> None:
        self.reading = False

    def resume(self) -> None:
        self.reading = True

    def close(self) -> None:
        self.open = False

    def abort(self) -> None:
        self.open = False
        self.aborted = True

    # What a test does.

    def send(self, *packets: AnyPacket) -> Client:
        """Send packets in one chunk and let the broker turn."""
        return self.raw(b"".join(codec.encode(packet, self.version) for packet in packets))

    def raw(self, data: bytes) -> Client:
        """Send bytes and let the broker turn."""
        self.connection.receive(data)
        self.box.turn()
        return self

    def drop(self) -> None:
        """The socket is gone."""
        self.open = False
        self.connection.lost()
        self.box.turn()

    def fill(self) -> None:
        """From now on the kernel takes nothing."""
        self.full = True

    def drain(self) -> None:
        """The kernel takes everything again (what was stuck is gone, unread)."""
        self.full, self.stuck = False, 0
        self.connection.unblocked()
        self.box.turn()

    def read(self) -> list[AnyPacket]:
        """Everything received so far."""
        self.box.turn()
        found, self.inbox = self.inbox, []
        return found

    def take(self, kind: type[Any]) -> Any:
        """The one packet received, of this type."""
        found = self.read()
        assert [type(one) for one in found] == [kind], found
        return found[0]

    def publishes(self) -> list[tuple[str, bytes, int]]:
        """Topic, payload and QoS of each PUBLISH received; other packets must not be there."""
        found = self.read()
        assert all(isinstance(one, codec.PublishPacket) for one in found), found
        return [(one.topic, one.payload, one.qos) for one in found if isinstance(one, codec.PublishPacket)]

    def subscribe(self, *filters: str, qos: int = 0, ident: int = 0, **options: Any) -> list[int]:
        """SUBSCRIBE; the reasons. Retained messages stay in the inbox."""
        wishes = [codec.Wish(wanted, qos, **options) for wanted in filters]
        found = {0x0B: ident} if ident else {}
        self.send(codec.Subscribe(77, wishes, found))
        acks = [one for one in self.inbox if isinstance(one, codec.Suback)]
        self.inbox = [one for one in self.inbox if not isinstance(one, codec.Suback)]
        assert len(acks) == 1
        assert acks[0].packet_id == 77
        return acks[0].reasons

    def publish(self, topic: str, payload: bytes = b"", qos: int = 0, packet_id: int = 0, **fields: Any) -> Client:
        """PUBLISH."""
        return self.send(codec.PublishPacket(topic, payload, qos, packet_id=packet_id or (9 if qos else 0), **fields))

    def puback(self, packet_id: int) -> Client:
        """PUBACK."""
        return self.send(codec.Ack(Packet.PUBACK, packet_id))


__all__ = ["EVERYTHING", "V5", "V311", "Box", "Client"]
