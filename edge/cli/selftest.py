"""`aun-edge selftest`: a real node on a scratch directory, published to, killed and started again; every message that
it acked must have been delivered or declared lost (promise P2)."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from edge.cli import show
from edge.cli.ask import ask
from edge.cli.failure import Exit, Failure
from edge.cli.places import ready
from edge.cli.probe import Probe, Refused
from edge.contract.time import SECOND, Clock
from edge.system.clock import SystemClock

QUEUE = 150
"""Messages that the scratch node queues for one client: few, so that some have to be given up."""
SETS = (
    "http.listen=off",
    "http.tls_listen=off",
    "mqtt.listen=127.0.0.1:0",
    f"limits.mqtt.queue_messages={QUEUE}",
)
READY_US = 60 * SECOND
SETTLE_US = 60 * SECOND
"""How long everything may take to be delivered or declared once the last message is acked."""
LIVE_REASONS = frozenset({"no_room"})
"""Losses of messages that nobody acked (QoS 0)."""
SLOW_US = 5_000
"""What the slow client rests after each message."""


class Account(msgspec.Struct):
    """One subscriber: of `acked` messages meant for it, `delivered` came, `declared` are in the loss ledger.

    A device that was cut sends again what was not acked (QoS 1 allows repeats): `repeats` are copies delivered above
    one, `spare` copies declared lost whose message came all the same. `unexplained` has to be 0.
    """

    client: str
    acked: int
    delivered: int
    declared: int
    repeats: int
    spare: int
    unexplained: int


class Report(msgspec.Struct):
    """What the test found. `twice` counts QoS 2 messages handed out twice, `forgotten` sessions that a start lost."""

    acked: int
    delivered: int
    declared: int
    unexplained: int
    twice: int
    forgotten: int
    resent: int
    qos0: dict[str, int]
    kills: int
    seconds: float
    clients: list[Account]

    @property
    def well(self) -> bool:
        """Whether every promise was kept."""
        return not (self.unexplained or self.twice or self.forgotten)


def run(options: Namespace) -> int:
    """The verb."""
    folder = Path(tempfile.mkdtemp(prefix="aun-edge-selftest-", dir=options.dir))
    clock = SystemClock(1)
    bar = _Bar(sys.stderr.isatty() and not options.json)
    node = ScratchNode(folder / "state", clock)
    try:
        report = asyncio.run(Trial(node, clock, options.messages, options.kills, bar.show).run())
    except (Refused, OSError, ExceptionGroup) as error:
        what = f"the test could not be carried out: {_cause(error)}\n{node.log}"
        raise Failure(what, next_step="aun-edge doctor") from None
    finally:
        bar.clear()
        node.end()
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    if options.json:
        show.as_json(report)
    else:
        _tell(report)
    if options.keep:
        sys.stderr.write(f"kept: {folder}\n")
    return Exit.OK if report.well else Exit.FAILED


def _cause(error: Exception) -> Exception:
    """The first thing that went wrong; what is no failure of the test goes on."""
    while isinstance(error, ExceptionGroup):
        error = error.exceptions[0]
    if not isinstance(error, Refused | OSError | Failure):
        raise error
    return error


def _tell(report: Report) -> None:
    columns = ["client", "acked", "delivered", "declared", "repeats", "spare", "unexplained"]
    show.table([msgspec.structs.asdict(one) for one in report.clients], columns, none="")
    live = report.qos0
    print(f"\nQoS 0: {live['sent']} sent, {live['delivered']} delivered, {live['declared']} declared")
    print(f"{report.kills} x kill -9, {report.resent} sent again, {report.seconds:.1f} s")
    print(f"QoS 2 handed out twice: {report.twice}; sessions forgotten: {report.forgotten}")
    print(
        f"acked {report.acked} = delivered {report.delivered} + declared {report.declared},"
        f" unexplained {report.unexplained}"
    )


class _Bar:
    """A line on the terminal that shows how far the test is."""

    def __init__(self, wanted: bool) -> None:
        self._wanted = wanted

    def show(self, share: float, words: str) -> None:
        """Draw it again."""
        if self._wanted:
            done = int(share * 30)
            sys.stderr.write(f"\r[{'#' * done}{'.' * (30 - done)}] {words:<40}")
            sys.stderr.flush()

    def clear(self) -> None:
        """Take it away."""
        if self._wanted:
            sys.stderr.write("\r" + " " * 80 + "\r")


class ScratchNode:
    """`aun-edge run` as a child process on a directory of its own."""

    def __init__(self, state_dir: Path, clock: Clock) -> None:
        self.state_dir, self._clock = state_dir, clock
        self._process: subprocess.Popen[bytes] | None = None
        self.address = ("127.0.0.1", 0)

    async def start(self) -> None:
        """Start and wait until it answers. Raises `Refused`."""
        self.state_dir.mkdir(parents=True, exist_ok=True)
        line = [sys.executable, "-m", "edge.cli.main", "run", "--state-dir", str(self.state_dir)]
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603, ASYNC220 - our own program; a fork is short
                [*line, *(word for one in SETS for word in ("--set", one))],
                stdout=log,
                stderr=log,
                env=_plain_environ(),
            )
        due = self._clock.now().mono_us + READY_US
        while self._clock.now().mono_us < due:
            if self._process.poll() is not None:
                raise Refused(f"the node ended with exit code {self._process.returncode}")
            try:
                found = ready(self.state_dir)
            except Failure:
                found = {}
            if found.get("pid") == self._process.pid:
                host, _, port = found["endpoints"]["mqtt"].rpartition("//")[2].rpartition(":")
                self.address = (host, int(port))
                return
            await self._clock.sleep_until(self._clock.now().mono_us + SECOND // 50)
        raise Refused("the node was not ready in time")

    def kill(self) -> None:
        """`kill -9`."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def end(self) -> None:
        """Leave nothing running."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            try:
                self._process.wait(timeout=15)
            except subprocess.TimeoutExpired:
                self.kill()

    @property
    def _log_path(self) -> Path:
        return self.state_dir.parent / "node.log"

    @property
    def log(self) -> str:
        """The last lines of what it said."""
        if not self._log_path.exists():
            return ""
        return "\n".join(self._log_path.read_text(errors="replace").splitlines()[-10:])

    async def ask(self, operation: str, /, **params: Any) -> Any:
        """A question at the control socket."""
        return await asyncio.get_running_loop().run_in_executor(None, lambda: ask(self.state_dir, operation, **params))


def _plain_environ() -> dict[str, str]:
    """Settings of the real node are not the scratch node's."""
    return {name: value for name, value in os.environ.items() if not name.startswith("AUN_EDGE_")}


class Trial:
    """Three devices publish with QoS 0, 1 and 2; one client listens, one listens slowly, one is away."""

    def __init__(
        self,
        node: ScratchNode,
        clock: Clock,
        messages: int,
        kills: int,
        progress: Callable[[float, str], None],
        settle_us: int = SETTLE_US,
    ) -> None:
        self._node, self._clock, self._messages, self._kills = node, clock, messages, kills
        self._settle_us = settle_us
        self._progress = progress
        self._devices: list[Probe] = []
        self._listeners: list[Probe] = []
        self._sent0: list[bytes] = []
        self._published = 0
        self._stopped = False

    async def run(self) -> Report:
        """All of it; what came out."""
        started = self._clock.now().mono_us
        self._progress(0, "starting a node")
        await self._node.start()
        for name in ("self-a", "self-b", "self-c"):
            self._devices.append(await self._client(name))
        for name, pace in (("watch", 0), ("slow", SLOW_US), ("asleep", 0)):
            self._listeners.append(await self._client(name, pace=pace, admin=True))
        async with asyncio.TaskGroup() as group:
            await self._listen(group)
            for device in self._devices:
                group.create_task(self._keep(device))
            await self._publish(group)
            await self._drain(group)
            self._stopped = True
            for client in (*self._devices, *self._listeners):
                client.cut()
        return await self._report(self._clock.now().mono_us - started)

    async def _client(self, name: str, *, pace: int = 0, admin: bool = False) -> Probe:
        made = await self._node.ask("device.add", name=name, admin=admin)
        return Probe(self._clock, made["username"], made["password"], pace_us=pace)

    async def _keep(self, client: Probe) -> None:
        """Connect whenever there is no connection."""
        while not self._stopped:
            try:
                await client.connect(*self._node.address)
            except (OSError, EOFError):
                client.cut()
                await self._rest(SECOND // 20)
                continue
            await client.run()

    async def _rest(self, us: int) -> None:
        await self._clock.sleep_until(self._clock.now().mono_us + us)

    async def _until(self, reached: Callable[[], bool], what: str) -> None:
        """Wait for something. Raises `Refused` when it does not come."""
        due = self._clock.now().mono_us + SETTLE_US
        while not reached():
            if self._clock.now().mono_us > due:
                raise Refused(f"waited too long for {what}")
            await self._rest(SECOND // 100)

    async def _listen(self, group: asyncio.TaskGroup) -> None:
        """Everybody subscribes; then one goes to sleep."""
        for client in self._listeners:
            await client.connect(*self._node.address)
            running = group.create_task(client.run())
            for device in self._devices:
                await client.subscribe(f"{device.user}/#", 2)
            if client.user == "asleep":
                client.leave()
                await running
            else:
                group.create_task(self._again(client, running))

    async def _again(self, client: Probe, running: asyncio.Task[None]) -> None:
        await running
        await self._keep(client)

    # Publishing.

    async def _publish(self, group: asyncio.TaskGroup) -> None:
        """Publish everything; `kill -9` and start again in between, in the middle of the traffic."""
        work = [group.create_task(self._device(device)) for device in self._devices]
        for kill in range(self._kills):
            share = self._messages * (kill + 1) // (self._kills + 1)
            await self._until(lambda share=share: self._published >= share, "half of the messages")  # type: ignore[misc]
            self._progress(self._published / self._messages, "kill -9")
            self._node.kill()
            await self._node.start()
        await asyncio.gather(*work)
        await self._until(lambda: not any(device.waiting for device in self._devices), "the last acks")

    async def _device(self, device: Probe) -> None:
        """One device's share, in bursts, every third message with another QoS."""
        for number in range(self._messages // len(self._devices)):
            await self._when_connected(device)
            qos = number % 3
            payload = f"{device.user}:{number}:".encode().ljust(64, b"x")
            if not qos:
                self._sent0.append(payload)
            await device.publish(f"{device.user}/selftest/{number % 7}", payload, qos)
            self._published += 1
            if number % 100 == 99:
                self._progress(self._published / self._messages, f"{self._published} published")
                await self._rest(SECOND // 200)

    async def _when_connected(self, device: Probe) -> None:
        while not device.connected:
            await self._rest(SECOND // 100)

    # Settling.

    async def _drain(self, group: asyncio.TaskGroup) -> None:
        """Who slept wakes up, who was slow hurries; then everything is on its way or declared."""
        for client in self._listeners:
            client.pace_us = 0
            if client.user == "asleep":
                group.create_task(self._keep(client))
        due = self._clock.now().mono_us + self._settle_us
        while self._clock.now().mono_us < due:
            status = (await self._node.ask("status"))["mqtt"]
            self._progress(1, f"{status['queued'] + status['inflight']} on their way")
            accounts = await self._accounts()
            if not (status["queued"] or status["inflight"] or any(one.unexplained for one in accounts)):
                return
            await self._rest(SECOND // 4)

    async def _accounts(self) -> list[Account]:
        return [await self._account(client) for client in self._listeners]

    async def _account(self, client: Probe) -> Account:
        acked = self.acked
        missing = len(acked - client.delivered.keys())
        declared = await self._declared(client.user, live=False)
        resent = sum(device.resent for device in self._devices)
        spare = max(0, declared - missing)
        return Account(
            client.user,
            len(acked),
            len(acked) - missing,
            min(declared, missing),
            sum(client.delivered.values()) - len(client.delivered),
            min(spare, resent),
            max(0, missing - declared) + max(0, spare - resent),
        )

    @property
    def acked(self) -> set[bytes]:
        """Payloads that the node has taken over."""
        return set().union(*(device.acked for device in self._devices))

    async def _declared(self, user: str, *, live: bool) -> int:
        """What the ledger has of a client: of messages with an ack, or of those without."""
        lines = (await self._node.ask("queue.drops", client=user, limit=1000))["lines"]
        return sum(line["count"] for line in lines if (line["reason"] in LIVE_REASONS) is live)

    async def _report(self, took_us: int) -> Report:
        accounts = await self._accounts()
        live = {
            "sent": len(self._sent0) * (len(self._listeners) - 1),
            "delivered": sum(sum(client.delivered0.values()) for client in self._listeners),
            "declared": sum([await self._declared(client.user, live=True) for client in self._listeners]),
        }
        clients = (*self._devices, *self._listeners)
        return Report(
            acked=sum(one.acked for one in accounts),
            delivered=sum(one.delivered for one in accounts),
            declared=sum(one.declared for one in accounts),
            unexplained=sum(one.unexplained for one in accounts),
            twice=sum(client.twice for client in clients),
            forgotten=sum(client.lost_sessions for client in clients),
            resent=sum(client.resent for client in clients),
            qos0=live,
            kills=self._kills,
            seconds=took_us / SECOND,
            clients=accounts,
        )
