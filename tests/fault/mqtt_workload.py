"""A broker with its clients in one process, for the power cuts: `python -m tests.fault.mqtt_workload FOLDER EVENTS
SYNCHRONOUS`.

Our engine on hot.db in FOLDER, real sockets on loopback, publishers and listeners of every kind. Whatever a client
learns or does is an event; `ACK n` says on stdout when event n happened. All of them are in the file EVENTS at the end,
so that `replay` can tell what each client knew at any moment.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import random
import sys
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from edge.contract.bus import Admission, Done, Login, Publish, Verdict
from edge.contract.limit import Limits
from edge.contract.principal import Kind, Principal
from edge.store import headroom
from edge.store.database import Database
from edge.store.marks import Marks
from edge.store.migration import statements
from edge.store.schema import MIGRATIONS
from edge.system.clock import SystemClock
from edge.transports.mqtt.builtin import BuiltinEngine
from tests.fault.mqtt_account import Flipper, Publisher, Subscriber, come_back
from tests.support.mqtt_client import SUBACK, V5, V311, Client, Packet, Sent

TABLE = statements("hot", "fault-row", "CREATE TABLE fault_row (n INTEGER PRIMARY KEY, body BLOB NOT NULL) STRICT")
KEEP = "INSERT INTO fault_row (body) VALUES (?)"
KEPT = "SELECT body FROM fault_row"
QUEUE = 25
ROUNDS = 8
PLACE = "127.0.0.1"

Event = tuple[str, str, tuple[Any, ...]]
"""Client, what it did, with what."""


class Gate:
    """Everybody may come and do everything."""

    def admit(self, login: Login, then: Verdict) -> None:
        who = Principal(Kind.DEVICE, f"d-{login.user}.test", via="mqtt")
        then(Admission(who, login.user, ("#",), ("#",)))


class Rig:
    """The engine and its store; messages below `<user>/data/0` and `/1` are kept by a sink, as readings are."""

    def __init__(self, engine: BuiltinEngine, db: Database, port: int) -> None:
        self.engine, self.db, self.port = engine, db, port


@asynccontextmanager
async def rig(folder: Path, boot_id: str, synchronous: str = "FULL") -> AsyncIterator[Rig]:
    """An engine on what is in the folder, in the boot of that name."""
    marks = Marks.load(folder / "incarnation")
    clock = SystemClock(marks.begin_boot(boot_id))
    clock.earlier = dict.fromkeys(range(1, clock.boot), clock.belief)
    loop = asyncio.get_running_loop()
    migrations = [*MIGRATIONS, TABLE]
    path = folder / "hot.db"
    db = Database(path, "hot", clock, loop, marks=marks, migrations=migrations, synchronous=synchronous)
    await db.open()
    limits = Limits({"mqtt.queue_messages": QUEUE})
    engine = BuiltinEngine(clock=clock, gatekeeper=Gate(), hot=db, limits=limits)

    def sink(batch: list[Publish], done: Done) -> Collection[int]:
        kept = [at for at, one in enumerate(batch) if one.topic.endswith(("/data/0", "/data/1"))]
        if kept:
            db.bulk(KEEP, [(batch[at].payload,) for at in kept], done)
        return kept

    engine.attach(sink)
    await engine.load()
    made = Rig(engine, db, await engine.listen(PLACE, 0))
    try:
        yield made
    finally:
        await engine.close()
        await db.close()


class Cast:
    """Everybody, by user name; the same for the run and for each replay."""

    def __init__(self, make: type[Client], seed: int = 1) -> None:
        chance = random.Random(seed)

        def client(user: str, version: int, clean: bool = False) -> Client:
            return make(user, "p", version=version, clean=clean)

        self.publishers = [
            Publisher(client("p-four", V311), chance),
            Publisher(client("p-five", V5), chance),
            Publisher(client("p-clean", V311, clean=True), chance),
        ]
        self.subscribers = [
            Subscriber(client("s-two", V311), 2),
            Subscriber(client("s-five", V5), 2),
            Subscriber(client("s-one", V311), 1),
            Subscriber(client("s-away", V5), 2),
        ]
        self.flippers = [Flipper(client("f-four", V311), chance), Flipper(client("f-five", V5), chance)]
        self.observer = client("observer", V311, clean=True)
        everybody: list[Publisher | Subscriber | Flipper] = [*self.publishers, *self.subscribers, *self.flippers]
        self.clients = {one.client.user: one.client for one in everybody} | {"observer": self.observer}
        self.chance = chance


class Told(Client):
    """A client that tells what it does before it does it."""

    events: list[Event]

    def _tell(self, verb: str, *args: Any) -> None:
        self.events.append((self.user, verb, args))
        os.write(1, b"ACK %d\n" % len(self.events))

    def begin(self, clean: bool) -> None:
        self._tell("begin", clean)
        super().begin(clean)

    def welcome(self, clean: bool) -> None:
        self._tell("welcome", clean)
        super().welcome(clean)

    def resume(self) -> None:
        self._tell("resume")
        super().resume()

    def take(self, packet: Packet) -> None:
        self._tell("take", packet)
        super().take(packet)

    def publish(self, topic: str, payload: bytes, qos: int = 0, *, retain: bool = False) -> Sent:
        self._tell("publish", topic, payload, qos, retain)
        return super().publish(topic, payload, qos, retain=retain)

    def subscribe(self, *filters: str, qos: int = 2) -> int:
        self._tell("subscribe", filters, qos)
        return super().subscribe(*filters, qos=qos)

    def unsubscribe(self, *filters: str) -> int:
        self._tell("unsubscribe", filters)
        return super().unsubscribe(*filters)


def replay(events: list[Event]) -> Cast:
    """Everybody as they were after these events."""
    cast = Cast(Client)
    states = {one.client.user: one for one in cast.flippers}
    for user, verb, args in events:
        client = cast.clients[user]
        match verb:
            case "publish":
                client.publish(args[0], args[1], args[2], retain=args[3])
            case "subscribe":
                client.subscribe(*args[0], qos=args[1])
            case "unsubscribe":
                client.unsubscribe(*args[0])
            case "states":
                states[user].states = args[0]
            case _:
                getattr(client, verb)(*args)
    return cast


async def run(folder: Path, path: Path, synchronous: str) -> None:
    """The whole workload."""
    headroom.CHECKPOINT_OCTETS = 400_000
    Told.events = []
    cast = Cast(Told)
    for one in cast.flippers:
        one.on_change = lambda states, user=one.client.user: _states(user, states)
    async with rig(folder, "the first boot", synchronous) as made:
        place = PLACE, made.port
        for listener in cast.subscribers:
            await listener.client.connect(*place)
            listener.client.subscribe("+/data/#", qos=listener.qos)
            assert (await listener.client.expect(SUBACK)).reason == listener.qos
            listener.client.cut()
        for number in range(ROUNDS):
            await _round(cast, place, awake=number % 5 == 4)
    path.write_bytes(pickle.dumps(Told.events))


def _states(user: str, states: set[Any]) -> None:
    Told.events.append((user, "states", (set(states),)))
    os.write(1, b"ACK %d\n" % len(Told.events))


async def _round(cast: Cast, place: tuple[str, int], *, awake: bool) -> None:
    """Everybody comes, does something and is cut in the middle of it."""
    who = cast.subscribers if awake else cast.subscribers[:-1]
    tasks = []
    for one in who:
        await come_back(one.client, *place)
        tasks.append(asyncio.ensure_future(one.client.run(answer_at_once=False)))
    for publisher in cast.publishers:
        await come_back(publisher.client, *place)
        tasks.append(asyncio.ensure_future(publisher.client.run(answer_at_once=False)))
    flips = [asyncio.ensure_future(one.live(*place)) for one in cast.flippers]
    for _ in range(8):
        for publisher in cast.publishers:
            publisher.burst()
        for _ in range(3):
            for client in cast.clients.values():
                client.answer(cast.chance.randint(0, 8))
            await asyncio.sleep(0.002)
    tasks += flips
    while not all(task.done() for task in tasks):
        for client in cast.clients.values():
            client.cut()
        await asyncio.sleep(0.001)
    for task in tasks:
        task.result()


if __name__ == "__main__":
    asyncio.run(run(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]))
