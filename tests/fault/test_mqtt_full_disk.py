"""A disk with 256 KB more than the node takes before each filling, filled at random points while devices publish.

The node, its log included, lives on that disk. It never ends by itself, never acks what it does not keep, takes alarms
from its reserve while readings are refused, starts on the full disk, and takes everything again once there is room,
without a restart. The books are those of the kill tests: what was acked was delivered, or is in the loss ledger.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from edge.cli.client import Control
from edge.cli.failure import NotRunning
from edge.contract.wire import dumps
from tests.fault.mqtt_account import Publisher, Subscriber, come_back
from tests.fault.test_mqtt_kill9 import Town
from tests.support.disk import fill, mounted
from tests.support.mqtt_client import CLOSED, PUBACK, SUBACK, V5, V311, Client, Sent
from tests.support.process import NodeProcess

FILLINGS = int(os.environ.get("AUN_EDGE_FILLINGS", "2"))
SEED = int(os.environ.get("AUN_EDGE_SEED", "20261120"))
ROOM, WIDE = 256 << 10, 64 << 20
LIMITS = {"mqtt.queue_messages": 20, "mqtt.inflight": 10}
"""What waits for one client at most: a sleeping one loses some, which is declared, and the room suffices in peace."""
ANSWERS_S = 60.0
FULL_S = 60.0
"""How long the load may go on before the store has found out that the disk is full."""
ALARMS_S = 60.0
WELL_S = 90.0
"""How long readings may take to be acked again once there is room: the store looks every few seconds, clients of 3.1.1
are closed in time to send again."""
CLASSES = {"smoke": "alarm", "door": "state", "level": "telemetry"}


class SmallNode(NodeProcess):
    """A node that may have no room for its ready file: it is there when its control socket answers."""

    def start(self) -> float:
        started = time.monotonic()
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "edge.cli.main", "run", "--state-dir", str(self.state_dir), *self.args],
                stdout=log,
                stderr=log,
            )
        while time.monotonic() - started < ANSWERS_S:
            self.still_runs()
            with suppress(NotRunning, OSError):
                self.ready = self.status()
                if self.ready["pid"] == self.pid:
                    return time.monotonic() - started
            time.sleep(0.05)
        raise AssertionError(f"no answer after {ANSWERS_S} s:\n{self.log[-4000:]}")

    def status(self) -> dict[str, Any]:
        found: dict[str, Any] = Control(self.state_dir).call("status", {})
        return found

    @property
    def full(self) -> bool:
        return bool(self.status()["stores"]["hot"]["read_only"])

    def still_runs(self) -> None:
        """It never ends by itself."""
        assert self.alive, f"the node ended with {self._process and self._process.returncode}:\n{self.log[-4000:]}"

    def trim_log(self, whole: Path) -> None:
        """Put the log aside: on this disk there is no room for all of it."""
        with whole.open("ab") as kept:
            kept.write(self._log_path.read_bytes())
        os.truncate(self._log_path, 0)


class Disk:
    """A file system that can be made small, and filled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"

    def shrink(self) -> None:
        """Leave `ROOM` above what is there."""
        found = os.statvfs(self.folder)
        used = (found.f_blocks - found.f_bfree) * found.f_frsize
        self._resize(used + ROOM)

    def _resize(self, octets: int) -> None:
        subprocess.run(["mount", "-o", f"remount,size={octets}", str(self.folder)], check=True)

    def fill(self) -> int:
        """Take all the room that is left; how much."""
        return fill(self._filler)

    def free(self) -> None:
        """Room again, more than was taken: what was hoarded meanwhile is still there."""
        self._filler.unlink()
        self._resize(WIDE)

    def __str__(self) -> str:
        """What takes the room, for whoever has to find out."""
        left = os.statvfs(self.folder)
        files = sorted(path for path in self.folder.rglob("*") if path.is_file())
        sizes = [f"{path.relative_to(self.folder)} {path.stat().st_blocks * 512}" for path in files]
        return f"{left.f_bavail * left.f_frsize} of {left.f_blocks * left.f_frsize} free: {sizes}"


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    with mounted(tmp_path, WIDE) as folder:
        yield Disk(folder)


class Device(Publisher):
    """A native device: publishes values of some traffic classes."""

    def __init__(self, client: Client, chance: random.Random, caps: list[str]) -> None:
        super().__init__(client, chance)
        self.caps = caps
        self._counted = 0

    def _one(self) -> None:
        self._number += 1
        cap, qos = self._chance.choice(self.caps), self._chance.choice((1, 2))
        payload = f"{self.client.user}:{self._number}:{qos}:{cap}:".encode()
        payload = payload.ljust(self._chance.choice((24, 60, 200)), b"x")
        self.client.publish(f"aun/v1/{self.client.user}/state/{cap}", payload, qos)

    async def announce(self, host: str, port: int) -> None:
        """What it measures. Kept seldom: on this disk only messages may grow."""
        caps = [
            {"name": cap, "value_type": "text", "traffic": CLASSES[cap], "history": "20"} for cap in sorted(CLASSES)
        ]
        await self.client.connect(host, port)
        self.client.publish(f"aun/v1/{self.client.user}/announce", dumps({"capabilities": caps}), 1)
        await self.client.expect(PUBACK)
        self.client.finished.clear()
        self.client.published.clear()
        self.client.cut()

    def acked(self) -> Counter[str]:
        """By class, what was acked since the last call."""
        news: list[Sent] = self.client.finished[self._counted :]
        self._counted = len(self.client.finished)
        return Counter(CLASSES[sent.topic.rsplit("/", 1)[-1]] for sent in news)


class Hoarder:
    """Publishes retained messages, each on a topic of its own, until the store takes no more: whatever room there is in
    the files themselves is used up too."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._topics = 0

    async def hoard(self, host: str, port: int) -> None:
        """Raises `TimeoutError` when the store takes everything."""
        client = self.client
        client.refused.clear()
        async with asyncio.timeout(FULL_S):
            while not client.refused:
                with suppress(*CLOSED):
                    await client.connect(host, port)
                    while not client.refused:
                        self._topics += 1
                        client.publish(f"hoarder/{self._topics}", bytes(3000), 1, retain=True)
                        await client.expect(PUBACK)
        client.cut()

    async def give_back(self, host: str, port: int) -> None:
        """Nothing retained any more."""
        client = self.client
        client.refused.clear()
        async with asyncio.timeout(WELL_S):
            await client.connect(host, port)
            for topic in range(1, self._topics + 1):
                taken = len(client.finished)
                while len(client.finished) == taken:
                    client.publish(f"hoarder/{topic}", b"", 1, retain=True)
                    await client.expect(PUBACK)
        client.refused.clear()
        self._topics = 0
        client.cut()


class Shore(Town):
    """A node on a small disk, those who publish and those who listen."""

    node: SmallNode

    def __init__(self, node: SmallNode, chance: random.Random, disk: Disk) -> None:
        super().__init__(node, chance)
        self.disk = disk
        self.devices: list[Device] = []
        self.under_way: list[asyncio.Future[None]] = []
        self.loaded = False
        self.acked: Counter[str] = Counter()
        """While the store said that it was full, by class."""

    def settle_in(self) -> None:
        chance = self.chance
        for user, version, caps in (
            ("alarm-four", V311, ["smoke"]),
            ("alarm-five", V5, ["smoke"]),
            ("mixed-four", V311, ["smoke", "door", "level"]),
            ("mixed-five", V5, ["smoke", "door", "level"]),
            ("level-four", V311, ["level"]),
        ):
            made = Device(self._user(user, version, False), random.Random(chance.random()), caps)
            self.devices.append(made)
            self.publishers.append(made)
        for user, version, qos in (("s-two", V311, 2), ("s-five", V5, 2), ("s-one", V311, 1), ("s-away", V5, 2)):
            self.subscribers.append(Subscriber(self._user(user, version, False), qos))
        self.asleep = {one for one in self.subscribers if one.client.user == "s-away"}
        self.hoarder = Hoarder(self._user("hoarder", V5, True))

    async def subscribe_all(self) -> None:
        for device in self.devices:
            await device.announce(*self.place)
        for one in self.subscribers:
            assert not await one.client.connect(*self.place)
            one.client.subscribe("aun/v1/+/state/#", qos=one.qos)
            assert (await one.client.expect(SUBACK)).reason == one.qos
            one.client.cut()

    # The load: everybody comes back whenever the node hangs up, until told to stop.

    def begin(self) -> None:
        self.loaded = True
        awake = [one.client for one in self.subscribers if one not in self.asleep]
        work = [self._on_and_on(client, lambda: None) for client in awake]
        work += [self._on_and_on(device.client, device.burst) for device in self.devices]
        self.under_way = [asyncio.ensure_future(one) for one in work]

    async def end(self) -> None:
        self.loaded = False
        for client in [one.client for one in self.publishers] + [one.client for one in self.subscribers]:
            client.cut()
        await asyncio.gather(*self.under_way)

    async def _on_and_on(self, client: Client, act: Callable[[], None]) -> None:
        """Its session is there each time (`come_back` looks): nothing that was acked for it is forgotten."""
        while self.loaded:
            with suppress(*CLOSED):
                await come_back(client, *self.place)
                reading = asyncio.ensure_future(client.run())
                try:
                    while client.connected and self.loaded:
                        act()
                        await client.drain()
                        await asyncio.sleep(0.02 + self.chance.random() * 0.05)
                finally:
                    client.cut()
                    await reading
            await asyncio.sleep(0.1)

    async def restart(self, number: signal.Signals) -> None:
        """Whatever is under way: the clients find out."""
        await asyncio.to_thread(self._restart, number)

    def _restart(self, number: signal.Signals) -> None:
        if number is signal.SIGKILL:
            self.node.kill()
        else:
            assert self.node.stop() == 0
        self.disk.fill()
        self.node.start()

    # What must be so.

    async def reached(self, what: Callable[[], bool], within_s: float, why: str) -> None:
        """Wait for something, the load going on."""
        due = time.monotonic() + within_s
        while not await asyncio.to_thread(what):
            self.node.still_runs()
            assert time.monotonic() < due, f"{why}\n{self.disk}\n{self.node.status()}\n{self.node.log[-3000:]}"
            for task in self.under_way:
                if task.done():
                    task.result()
            await asyncio.sleep(0.1)

    def count(self) -> Counter[str]:
        """What was acked since this was asked last."""
        return sum((device.acked() for device in self.devices), Counter())

    async def alarms_while_full(self) -> None:
        """Each alarm device gets acks, although the store has just refused what would make it grow."""
        for device in self.devices:
            device.acked()
        acked: dict[str, Counter[str]] = {device.client.user: Counter() for device in self.devices[:2]}

        def enough() -> bool:
            for device in self.devices:
                found = device.acked()
                self.acked += found
                if device.client.user in acked:
                    acked[device.client.user] += found
            return all(found["alarm"] > 5 for found in acked.values())

        await self.reached(enough, ALARMS_S, f"no alarms are acked on the full disk {acked}")

    async def owner_is_told(self) -> None:
        """What is wrong, what goes on meanwhile, what to do."""

        def told() -> bool:
            status, doctor = self.node.run("status").stdout, self.node.run("doctor").stdout
            return "alarms are taken from a reserve" in status and "MiB are free" in doctor

        await self.reached(told, ALARMS_S, "neither status nor doctor says that the disk is full")

    async def readings_again(self) -> None:
        """Without a restart, from every device."""
        self.count()
        found: dict[str, Counter[str]] = {device.client.user: Counter() for device in self.devices[2:]}

        def enough() -> bool:
            for device in self.devices[2:]:
                found[device.client.user] += device.acked()
            return not self.node.full and all(one["telemetry"] for one in found.values())

        await self.reached(enough, WELL_S, f"there is room, and readings are not acked: {found}")


@pytest.mark.slow
async def test_a_full_disk_refuses_readings_takes_alarms_and_loses_nothing(disk: Disk, tmp_path: Path) -> None:
    chance = random.Random(SEED)
    state = disk.folder / "state"
    node = SmallNode(state, *(word for name, most in LIMITS.items() for word in ("--set", f"limits.{name}={most}")))
    state.mkdir()
    node.start()
    town = Shore(node, chance, disk)
    restarts: Counter[str] = Counter()
    took_s: list[float] = []
    try:
        town.settle_in()
        await town.subscribe_all()
        assert node.stop() == 0
        node.start()
        for _ in range(FILLINGS):
            disk.shrink()
            town.begin()
            await asyncio.sleep(chance.random())
            disk.fill()
            await town.hoarder.hoard(*town.place)
            await town.alarms_while_full()
            for number in (signal.SIGKILL, signal.SIGTERM):
                if chance.random() < 0.4:
                    await town.restart(number)
                    restarts[number.name] += 1
                    await town.hoarder.hoard(*town.place)
                    await town.alarms_while_full()
            if not took_s:
                await town.owner_is_told()
            disk.free()
            freed = time.monotonic()
            await town.readings_again()
            took_s.append(time.monotonic() - freed)
            await town.hoarder.give_back(*town.place)
            await town.end()
            await asyncio.to_thread(node.trim_log, tmp_path / "node.log")
        node.kill()
        node.start()
        await town.finish()
        await town.settle(town.subscribers)
        tell(town, restarts, took_s)
        assert town.acked["alarm"] > 0
        assert node.stop() == 0
    finally:
        if node.alive:
            node.kill()


def tell(town: Shore, restarts: Counter[str], took_s: list[float]) -> None:
    """The figures, for whoever runs it with `-s`."""
    promised = sum(len(one.promised) for one in town.publishers)
    print(f"\n{FILLINGS} fillings, restarts on the full disk: {dict(restarts)}; acked {promised}")
    print(f"acked while full: {dict(town.acked)}; readings again after {[round(one, 1) for one in took_s]} s")
    for one in town.subscribers:
        lost, repeats = one.missing(town.publishers)
        user = one.client.user
        print(f"{user}: {len(lost)} not delivered, {town.declared(user)} declared, {repeats} repeats")
