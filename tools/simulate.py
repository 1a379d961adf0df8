"""A small household on a real MQTT client, for demonstrations and tests.

    tools/simulate [--state-dir DIR]                   its own users, made through the node's control socket
    tools/simulate --mqtt URL --user U --password P    everything as one user, who may use every topic
    … --only worker,lock   --count 100 --interval 5   --json

| device | convention | what it does |
|---|---|---|
| sim-thermometer | native | temperature, humidity; a value every interval |
| sim-worker | native | a skill `work` that does what it is told, a writable `level` |
| sim-balcony | Home Assistant, one message a value | temperature, humidity in one JSON state |
| sim-plug | Home Assistant | a switch with availability |
| sim-lock | Home Assistant | a lock (high risk) |
| sim-lamp | Home Assistant, device-based, abbreviated | a JSON light with brightness, a button |
| sim-load-<n> | native | `--count` thermometers on one connection |

The worker reads the first word of the task's text (or `params.do`): `fail [why]`, `reject [why]`, `ask [question]`,
`slow [seconds]`, `stream [chunks]`, `deliver`, `silent`, `accept`, `twice` (every event sent twice); anything else is
echoed, all parts of it. A repeated task id is not done twice: its events are sent again.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import signal
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import aiomqtt

from edge.cli.client import Control
from edge.cli.failure import Failure, NotRunning
from edge.cli.places import default_state_dir, ready

Payload = dict[str, Any]


class Out:
    """What happens, one line each."""

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json

    def say(self, device: str, event: str, **more: Any) -> None:
        if self._as_json:
            print(json.dumps({"at": round(time.time(), 3), "device": device, "event": event, **more}), flush=True)
            return
        words = " ".join(f"{key}={value}" for key, value in more.items())
        print(f"{time.strftime('%H:%M:%S')} {device:16} {event:10} {words}"[:200], flush=True)


class Link:
    """One device's connection: where, as whom, with which will."""

    def __init__(self, client: aiomqtt.Client, name: str, out: Out, seed: int, interval: float) -> None:
        self.client, self.name, self.out, self.interval = client, name, out, interval
        self.random = random.Random(f"{name}{seed}")

    async def publish(self, topic: str, payload: object, *, retain: bool = False, qos: int = 1) -> None:
        text = payload if isinstance(payload, str) else json.dumps(payload, ensure_ascii=False)
        await self.client.publish(topic, text, qos=qos, retain=retain)
        self.out.say(self.name, "published", topic=topic, payload=text)

    def walk(self, start: float, step: float, low: float, high: float) -> Iterator[float]:
        """Values that drift like weather does."""
        value = start
        while True:
            yield round(value, 1)
            value = min(high, max(low, value + self.random.uniform(-step, step)))


class Device:
    """A simulated device. `NAME` is its MQTT user and the first level of its topics."""

    NAME = ""

    def __init__(self, name: str = "") -> None:
        self.name = name or self.NAME

    def will(self) -> aiomqtt.Will | None:
        """What the broker says when the device is gone."""
        return None

    async def start(self, link: Link) -> None:
        """Announce, subscribe."""

    async def tick(self, link: Link) -> None:
        """Called every interval."""

    async def heard(self, link: Link, topic: str, payload: bytes) -> None:
        """A message on a subscribed topic."""


class Native(Device):
    """Base of the devices that know us."""

    def announcement(self) -> Payload:
        raise NotImplementedError

    def topic(self, *levels: str) -> str:
        return "/".join(("aun/v1", self.name, *levels))

    def will(self) -> aiomqtt.Will:
        return aiomqtt.Will(self.topic("online"), "0", qos=1, retain=True)

    async def start(self, link: Link) -> None:
        await link.client.subscribe(self.topic("task"), qos=1)
        await link.client.subscribe(self.topic("task", "+", "cancel"), qos=1)
        await link.client.subscribe(self.topic("task", "+", "input"), qos=1)
        await link.publish(self.topic("announce"), self.announcement(), retain=True)
        await link.publish(self.topic("online"), "1", retain=True)


class Thermometer(Native):
    NAME = "sim-thermometer"

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self.temperature: Iterator[float] | None = None

    def announcement(self) -> Payload:
        return {
            "name": f"Thermometer {self.name.removeprefix('sim-')}",
            "model": "SIM-T1",
            "manufacturer": "aun-edge",
            "hardware_id": f"serial:{self.name}",
            "default_skill": "temperature",
            "capabilities": [
                _measure("temperature", "Temperature", "°C", -40, 85),
                _measure("humidity", "Humidity", "%", 0, 100),
            ],
        }

    async def tick(self, link: Link) -> None:
        self.temperature = self.temperature or link.walk(21.0, 0.4, 15, 28)
        await link.publish(self.topic("state", "temperature"), {"v": next(self.temperature), "t": _now_ms()})
        await link.publish(self.topic("state", "humidity"), str(link.random.randint(35, 60)))


def _measure(name: str, title: str, unit: str, low: float, high: float) -> Payload:
    return {
        "name": name,
        "title": title,
        "kind": "sensor",
        "value_type": "number",
        "unit": unit,
        "device_class": name,
        "min": low,
        "max": high,
    }


def _now_ms() -> int:
    return int(time.time() * 1000)


class Worker(Native):
    """Drives a task through every state, by what the message says."""

    NAME = "sim-worker"

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self.level = 0
        self.sent: dict[str, list[Payload]] = {}
        self.stops: dict[str, asyncio.Event] = {}
        self.inputs: dict[str, asyncio.Queue[list[Payload]]] = {}
        self.jobs: set[asyncio.Task[None]] = set()

    def announcement(self) -> Payload:
        return {
            "name": "Worker",
            "model": "SIM-W1",
            "manufacturer": "aun-edge",
            "hardware_id": f"serial:{self.name}",
            "default_skill": "work",
            "skills": [{"name": "work", "title": "Work", "cancellable": True}],
            "capabilities": [
                {
                    "name": "level",
                    "title": "Level",
                    "kind": "number",
                    "value_type": "number",
                    "min": 0,
                    "max": 100,
                    "step": 1,
                    "unit": "%",
                    "writable": True,
                    "repeat_safe": True,
                }
            ],
        }

    async def start(self, link: Link) -> None:
        await super().start(link)
        await link.publish(self.topic("state", "level"), str(self.level))

    async def heard(self, link: Link, topic: str, payload: bytes) -> None:
        levels = topic.split("/")
        said: Payload = json.loads(payload)
        task_id = said.get("task_id", "")
        link.out.say(self.name, levels[-1], task=task_id, payload=payload.decode())
        match levels[3:]:
            case ["task"]:
                await self._task(link, task_id, said)
            case ["task", _, "cancel"] if task_id in self.stops:
                self.stops[task_id].set()
            case ["task", _, "input"] if task_id in self.inputs:
                self.inputs[task_id].put_nowait(said.get("parts", []))

    async def _task(self, link: Link, task_id: str, said: Payload) -> None:
        if task_id in self.sent:
            for event in self.sent[task_id]:
                await link.publish(self.topic("task", task_id, "event"), event)
            return
        self.sent[task_id] = []
        self.stops[task_id] = asyncio.Event()
        self.inputs[task_id] = asyncio.Queue()
        job = asyncio.create_task(self._work(link, task_id, said))
        self.jobs.add(job)
        job.add_done_callback(self.jobs.discard)

    async def _work(self, link: Link, task_id: str, said: Payload) -> None:
        word, rest = _words(said)
        twice = word == "twice"

        async def tell(state: str, **more: Any) -> None:
            event = {"seq": len(self.sent[task_id]) + 1, "state": state, **more}
            self.sent[task_id].append(event)
            for _ in range(2 if twice else 1):
                await link.publish(self.topic("task", task_id, "event"), event)

        if said.get("cap") == "level":
            await self._set_level(link, said, tell)
            return
        run = _JOBS.get(word, Worker._echo)
        try:
            await run(self, task_id, rest, said, tell)
        except Stopped:
            await tell("canceled", message=_text("stopped as asked"))
        except Exception as error:
            await tell("failed", reason="bad_request", message=_text(str(error)))

    async def _set_level(self, link: Link, said: Payload, tell: Tell) -> None:
        value = said.get("params", {}).get("value")
        if not isinstance(value, int | float) or not 0 <= value <= 100:
            await tell("rejected", reason="out_of_range", message=_text("a number from 0 to 100"))
            return
        self.level = int(value)
        await link.publish(self.topic("state", "level"), str(self.level))
        await tell("completed", artifact=_artifact(_text(f"level is {self.level}"), _data({"level": self.level})))

    async def _pause(self, task_id: str, seconds: float) -> None:
        """Wait, unless the task is canceled."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self.stops[task_id].wait(), seconds)
            raise Stopped

    async def _fail(self, task_id: str, rest: str, said: Payload, tell: Tell) -> None:
        await tell("working")
        await tell("failed", reason="told_to", message=_text(rest or "I was told to fail"))

    async def _reject(self, task_id: str, rest: str, said: Payload, tell: Tell) -> None:
        await tell("rejected", reason="told_to", message=_text(rest or "I was told to reject"))

    async def _ask(self, task_id: str, rest: str, said: Payload, tell: Tell) -> None:
        await tell("accepted")
        await tell("need_input", message=_text(rest or "What colour?"))
        stop, answer = asyncio.create_task(self.stops[task_id].wait()), asyncio.create_task(self.inputs[task_id].get())
        await asyncio.wait({stop, answer}, return_when=asyncio.FIRST_COMPLETED)
        stop.cancel()
        if not answer.done():
            answer.cancel()
            raise Stopped
        await tell("working")
        await tell("completed", artifact=_artifact(_text("thank you"), *[[part] for part in answer.result()]))

    async def _slow(self, task_id: str, rest: str, said: Payload, tell: Tell) -> None:
        seconds = float(rest or 3)
        await tell("accepted")
        steps = max(1, min(10, int(seconds)))
        for step in range(steps):
            await tell("working", message=_text(f"{step * 100 // steps} %"))
            await self._pause(task_id, seconds / steps)
        await tell("completed", artifact=_artifact(_text(f"took {seconds:g} s")))

    async def _stream(self, task_id: str, rest: str, said: Payload, tell: Tell) -> None:
        count = max(1, int(rest or 3))
        await tell("working")
        for chunk in range(count):
            await tell(
                "working",
                artifact={
                    "id": "stream",
                    "name": "stream",
                    "append": chunk > 0,
                    "last": chunk == count - 1,
                    "parts": _text(f"chunk {chunk + 1} of {count}"),
                },
            )
            await self._pause(task_id, 0.05)
        await tell("completed")

    async def _deliver(self, task_id: str, rest: str, said: Payload, tell: Tell) -> None:
        await tell("accepted")
        await tell("working")
        await tell("delivered", artifact=_artifact(_text(rest or "please check")))

    async def _silent(self, task_id: str, rest: str, said: Payload, tell: Tell) -> None:
        await self._pause(task_id, 86_400)

    async def _accept(self, task_id: str, rest: str, said: Payload, tell: Tell) -> None:
        await tell("accepted")
        await self._pause(task_id, 86_400)

    async def _echo(self, task_id: str, rest: str, said: Payload, tell: Tell) -> None:
        heard = {key: said.get(key) for key in ("message_id", "context_id", "metadata", "params")}
        await tell("completed", artifact=_artifact(said.get("parts") or _text("done"), _data(heard)))


Tell = Callable[..., Awaitable[None]]
Job = Callable[[Worker, str, str, Payload, Tell], Awaitable[None]]

_JOBS: dict[str, Job] = {
    "fail": Worker._fail,
    "reject": Worker._reject,
    "ask": Worker._ask,
    "slow": Worker._slow,
    "stream": Worker._stream,
    "deliver": Worker._deliver,
    "silent": Worker._silent,
    "accept": Worker._accept,
}


class Stopped(Exception):
    """The task was canceled."""


def _words(said: Payload) -> tuple[str, str]:
    """The first word of what was asked, and the rest; a name of the device in front of it does not count."""
    params = said.get("params") or {}
    texts = [part.get("text", "") for part in said.get("parts") or [] if isinstance(part, dict)]
    line = str(params.get("do") or " ".join(text for text in texts if isinstance(text, str)))
    words = line.strip().split()
    while words and words[0].lower().strip(":,") in ("sim-worker", "worker", "work", "sim-worker.work"):
        words.pop(0)
    return (words[0].lower(), " ".join(words[1:])) if words else ("", "")


def _text(text: str) -> list[Payload]:
    return [{"kind": "text", "text": text}]


def _data(data: Payload) -> list[Payload]:
    return [{"kind": "data", "data": data}]


def _artifact(*parts: list[Payload]) -> Payload:
    return {"id": "result", "append": False, "last": True, "parts": [one for part in parts for one in part]}


class Balcony(Device):
    """Home Assistant style, one config message for each value, one JSON state for both."""

    NAME = "sim-balcony"

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self.temperature: Iterator[float] | None = None

    async def start(self, link: Link) -> None:
        device = {"identifiers": [self.name], "name": "Balcony", "manufacturer": "aun-edge", "model": "SIM-B1"}
        for key, title, unit in (("temperature", "Temperature", "°C"), ("humidity", "Humidity", "%")):
            config = {
                "name": title,
                "unique_id": f"{self.name}_{key}",
                "state_topic": f"{self.name}/state",
                "value_template": f"{{{{ value_json.{key} }}}}",
                "unit_of_measurement": unit,
                "device_class": key,
                "state_class": "measurement",
                "device": device,
            }
            await link.publish(f"homeassistant/sensor/{self.name}/{key}/config", config, retain=True)

    async def tick(self, link: Link) -> None:
        self.temperature = self.temperature or link.walk(12.0, 0.8, -10, 30)
        state = {"temperature": next(self.temperature), "humidity": link.random.randint(40, 90)}
        await link.publish(f"{self.name}/state", state)


class Commanded(Device):
    """Base of the actuators: one command topic, one retained state, availability by will."""

    STATE = "OFF"

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self.state = self.STATE

    def will(self) -> aiomqtt.Will:
        return aiomqtt.Will(f"{self.name}/online", "offline", qos=1, retain=True)

    def common(self, title: str, model: str) -> Payload:
        return {
            "unique_id": self.name,
            "state_topic": f"{self.name}/state",
            "command_topic": f"{self.name}/set",
            "availability_topic": f"{self.name}/online",
            "device": {"identifiers": [self.name], "name": title, "manufacturer": "aun-edge", "model": model},
        }

    async def start(self, link: Link) -> None:
        await link.client.subscribe(f"{self.name}/set", qos=1)
        await self.announce(link)
        await link.publish(f"{self.name}/online", "online", retain=True)
        await link.publish(f"{self.name}/state", self.state, retain=True)

    async def announce(self, link: Link) -> None:
        raise NotImplementedError

    async def heard(self, link: Link, topic: str, payload: bytes) -> None:
        command = payload.decode(errors="replace")
        link.out.say(self.name, "command", payload=command)
        self.state = self.after(command)
        await link.publish(f"{self.name}/state", self.state, retain=True)

    def after(self, command: str) -> str:
        return command if command in ("ON", "OFF") else self.state


class Plug(Commanded):
    NAME = "sim-plug"

    async def announce(self, link: Link) -> None:
        config = {"name": None, "device_class": "outlet", **self.common("Plug", "SIM-P1")}
        await link.publish(f"homeassistant/switch/{self.name}/config", config, retain=True)


class Lock(Commanded):
    NAME, STATE = "sim-lock", "LOCKED"

    async def announce(self, link: Link) -> None:
        config = {"name": None, **self.common("Front door", "SIM-L1")}
        await link.publish(f"homeassistant/lock/{self.name}/config", config, retain=True)

    def after(self, command: str) -> str:
        return {"LOCK": "LOCKED", "UNLOCK": "UNLOCKED"}.get(command, self.state)


class Lamp(Commanded):
    """Device-based discovery with short keys and a base topic."""

    NAME = "sim-lamp"

    def __init__(self, name: str = "") -> None:
        super().__init__(name)
        self.light: Payload = {"state": "OFF", "brightness": 128}
        self.state = json.dumps(self.light)

    async def announce(self, link: Link) -> None:
        config = {
            "dev": {"ids": [self.name], "name": "Lamp", "mf": "aun-edge", "mdl": "SIM-LL"},
            "o": {"name": "aun-edge simulator"},
            "avty_t": f"{self.name}/online",
            "cmps": {
                "light": {
                    "p": "light",
                    "~": self.name,
                    "name": None,
                    "schema": "json",
                    "brightness": True,
                    "stat_t": "~/state",
                    "cmd_t": "~/set",
                    "uniq_id": f"{self.name}_light",
                },
                "flash": {
                    "p": "button",
                    "name": "Flash",
                    "cmd_t": f"{self.name}/flash",
                    "pl_prs": "FLASH",
                    "uniq_id": f"{self.name}_flash",
                },
            },
        }
        await link.client.subscribe(f"{self.name}/flash", qos=1)
        await link.publish(f"homeassistant/device/{self.name}/config", config, retain=True)

    async def heard(self, link: Link, topic: str, payload: bytes) -> None:
        if topic.endswith("/flash"):
            link.out.say(self.name, "flash")
            return
        await super().heard(link, topic, payload)

    def after(self, command: str) -> str:
        with contextlib.suppress(ValueError):
            self.light.update(json.loads(command))
        return json.dumps(self.light)


class Load(Device):
    """Many native thermometers on one connection."""

    NAME = "sim-load"

    def __init__(self, count: int) -> None:
        super().__init__()
        self.each = [Thermometer(f"sim-load-{number}") for number in range(1, count + 1)]

    async def start(self, link: Link) -> None:
        for one in self.each:
            await link.publish(one.topic("announce"), one.announcement(), retain=True)
            await link.publish(one.topic("online"), "1", retain=True)

    async def tick(self, link: Link) -> None:
        await asyncio.gather(*(one.tick(link) for one in self.each))


HOUSEHOLD: tuple[type[Device], ...] = (Thermometer, Worker, Balcony, Plug, Lock, Lamp)


class Users:
    """Who each device is: the one user that was given, or a user of its own by the control socket."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._kept: dict[str, list[str]] = {}
        self.url = options.mqtt
        if options.state_dir is not None:
            self.url = self.url or ready(options.state_dir)["endpoints"]["mqtt"]
            self._file = options.state_dir / "run" / "simulate.json"
            with contextlib.suppress(OSError, ValueError):
                self._kept = json.loads(self._file.read_bytes())

    def of(self, device: Device) -> tuple[str, str]:
        """User and password of a device; made when the node does not know it."""
        if self._options.state_dir is None:
            return self._options.user, self._options.password
        name = device.name
        with Control(self._options.state_dir) as node:
            known = {row["name"] for row in node.call("device.list") if row["credentials"]}
            if name in known and name in self._kept:
                return self._kept[name][0], self._kept[name][1]
            if name in known:
                node.call("device.forget", {"name": name})
            made = node.call("device.add", {"name": name, "admin": isinstance(device, Load)})
        self._kept[name] = [made["username"], made["password"]]
        descriptor = os.open(self._file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            json.dump(self._kept, file)
        return made["username"], made["password"]


FAREWELL_S = 5.0
"""How long devices have to say that they go, before they are told again."""


async def live(device: Device, users: Users, options: argparse.Namespace, out: Out) -> None:
    """A device's life: connect, announce, publish and obey, and again after a lost connection."""
    url = urlsplit(users.url)
    while True:
        try:
            user, password = users.of(device)
        except NotRunning as error:
            out.say(device.name, "waits", why=error.what)
            await asyncio.sleep(1)
            continue
        client = aiomqtt.Client(
            url.hostname or "127.0.0.1",
            url.port or 1883,
            username=user,
            password=password,
            identifier=device.name,
            will=device.will(),
            clean_session=True,
        )
        try:
            async with client:
                out.say(device.name, "connected")
                link = Link(client, device.name, out, options.seed, options.interval)
                try:
                    await device.start(link)
                    async with asyncio.TaskGroup() as group:
                        group.create_task(_obey(device, link))
                        group.create_task(_tick(device, link))
                except asyncio.CancelledError:
                    await _leave(device, link)
                    raise
        except* aiomqtt.MqttError as error:
            out.say(device.name, "lost", why=str(error.exceptions[0]))
        await asyncio.sleep(1)


async def _leave(device: Device, link: Link) -> None:
    """Who disconnects in order has no will any more, so the device says itself that it goes."""
    will = device.will()
    if will is not None:
        await link.publish(will.topic, will.payload, retain=will.retain, qos=will.qos)


async def _obey(device: Device, link: Link) -> None:
    async for message in link.client.messages:
        await device.heard(link, str(message.topic), bytes(message.payload or b""))


async def _tick(device: Device, link: Link) -> None:
    while True:
        await device.tick(link)
        await asyncio.sleep(link.interval)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="simulate", description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument(
        "--state-dir", type=Path, help="of a running node (its usual one by default); users are made there"
    )
    parser.add_argument("--mqtt", default="", help="mqtt://host:port")
    parser.add_argument("--user", default="", help="one user for everything")
    parser.add_argument("--password", default="")
    parser.add_argument("--only", default="", help="comma list of devices: thermometer,worker,balcony,plug,lock,lamp")
    parser.add_argument("--count", type=int, default=0, help="further thermometers on one connection")
    parser.add_argument("--interval", type=float, default=5.0, help="seconds between values")
    parser.add_argument("--seed", type=int, default=1, help="of the values")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    found = parser.parse_args()
    if found.mqtt and not found.state_dir and not (found.user and found.password):
        parser.error("--mqtt needs --user and --password")
    if not found.mqtt:
        found.state_dir = found.state_dir or default_state_dir(os.environ, os.geteuid())
    return found


async def main() -> None:
    chosen, out = options(), None
    out = Out(chosen.json)
    try:
        users = Users(chosen)
    except Failure as failure:
        sys.stderr.write(f"simulate: {failure.what}\n  next: {failure.next_step}\n")
        sys.exit(failure.code)
    wanted = {name.strip() for name in chosen.only.split(",") if name.strip()}
    household = [kind() for kind in HOUSEHOLD if not wanted or kind.NAME.removeprefix("sim-") in wanted]
    if chosen.count:
        household.append(Load(chosen.count))
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    lives = [asyncio.create_task(live(device, users, chosen, out)) for device in household]
    over = asyncio.create_task(stop.wait())
    done, _ = await asyncio.wait({over, *lives}, return_when=asyncio.FIRST_COMPLETED)
    running = {over, *lives}
    while running:  # before Python 3.12 a wait_for in a library may swallow a cancellation
        for one in running:
            one.cancel()
        _, running = await asyncio.wait(running, timeout=FAREWELL_S)
    for life in done - {over}:
        life.result()


if __name__ == "__main__":
    asyncio.run(main())
