"""From an empty process to a node that answers, and back in the order of design D2a."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import structs

from edge.config import Config, ConfigError, Listener, declared
from edge.contract.errors import InvalidParams
from edge.contract.event import Event
from edge.contract.principal import PLAIN_LAN
from edge.contract.time import SECOND, later
from edge.contract.wire import dumps
from edge.node.bus import EngineMissing
from edge.node.folders import make_folders, sweep
from edge.node.house import House
from edge.node.plain_lan import PlainLan, Wan
from edge.node.tasks import Tasks
from edge.node.watchdog import Watchdog
from edge.services.admin import Reloaded
from edge.store import swap
from edge.store.migrate import Unusable
from edge.store.opening import UNUSABLE, damaged
from edge.system.files import StateLock, write_atomic
from edge.system.interfaces import addresses
from edge.system.lag import LoopLag
from edge.system.logs import LogPlan, Logs
from edge.system.notify import ServiceManager
from edge.system.ports import Ports, bind_remembered, bind_unix
from edge.transports.http.listener import Listener as HttpListener
from edge.transports.mqtt.tcp import Entrance

log = logging.getLogger(__name__)

READY_VERSION = 1
READY_AGAIN_US = 5 * SECOND
UNIX = "mqtt_unix"
Opening = Callable[[], Awaitable[None]]
NO_DEVICE = "opens once a device exists: aun-edge device add NAME"
ELSEWHERE = "devices connect to the broker of mqtt.external"
DRAIN_US = 2 * SECOND
"""How long what runs at SIGTERM may take to finish (design D2a)."""


class StartFailed(Exception):
    """The node cannot start as it was told to: what, and why."""


class Node:
    """One node: `run` until `stop` is called. `started` is set when everything answers."""

    def __init__(
        self, config: Config, issuer: str, manager: ServiceManager, reread: Callable[[], Config] | None = None
    ) -> None:
        """`reread` reads the configuration again, from the same places as at the start."""
        self.config = config
        self._reread = reread or (lambda: config)
        self._issuer, self._manager = issuer, manager
        self._stopped = asyncio.Event()
        self._ports: Ports
        self._http: list[HttpListener] = []
        self._waiting: dict[str, Opening] = {}
        """What opens with the first device, by name."""
        self._tasks: Tasks
        self.started = asyncio.Event()
        self.on_ready: Callable[[Node], None] = lambda node: None
        self.endpoints: dict[str, str] = {}
        self.left_off: dict[str, str] = {}
        """Listeners that are not open, and why."""
        self.to_network: dict[str, str] = {}
        """Listeners that other machines can reach, and the address each is bound to."""
        self.plain_lan: PlainLan | None = None
        """The doors of `mqtt.plain_lan`, if there are to be any."""
        self._unix: Path | None = None
        self.house: House

    @property
    def issuer(self) -> str:
        """The domain behind every AID of this node."""
        return self.house.identity.issuer

    def stop(self) -> None:
        """Ask the node to leave in order. In the loop; idempotent."""
        self._stopped.set()

    async def run(self) -> None:
        """Start, serve, leave. Raises `StartFailed`, `DirectoryInUse`, `IdentityError`."""
        try:
            await self._run_alone()
        except Unusable as error:
            raise StartFailed(str(error)) from None
        except UNUSABLE as error:
            if self.started.is_set():
                raise
            raise StartFailed(f"{self.config.state_dir} cannot be used: {error}") from error

    async def _run_alone(self) -> None:
        """Hold the directory meanwhile."""
        make_folders(self.config.state_dir)
        lock = StateLock(self.config.state_dir / "run" / "lock")
        try:
            self._ready_path.unlink(missing_ok=True)  # of a node that was killed
            sweep(self.config.state_dir)
            self._finish_restore()
            try:
                await self._run()
            except Exception as error:
                if self.started.is_set() or not damaged(error):
                    raise
                log.error("a file turned out to be damaged during the start (%s): starting again", error)
                await self._run()  # the file is marked, so that it is read whole and put aside
        finally:
            lock.close()

    def _finish_restore(self) -> None:
        """Go on with a restore that was cut off. Raises `StartFailed`: half of two states is none."""
        try:
            aside = swap.finish(self.config.state_dir)
        except OSError as error:
            raise StartFailed(f"a restore that was cut off cannot go on: {error}") from None
        if aside is not None:
            log.warning("a restore was finished; the state before it is in %s", aside)

    async def _run(self) -> None:
        self._ports = Ports(self.config.state_dir / "ports.json")
        self._http, self._waiting, self.endpoints, self.to_network, self.left_off = [], {}, {}, {}, {}
        self.plain_lan = self._unix = None
        failure: BaseException | None = None
        async with asyncio.TaskGroup() as group:
            self._tasks = Tasks(group)
            self.house = House(self.config, self._issuer, self._tasks)
            self._logs = Logs(self.house.clock)
            self._logs.apply(_plan(self.config))
            try:
                await self._start()
                await self._stopped.wait()
            except Exception as error:
                failure = error
            finally:
                await self._leave()
                self._logs.close()
        if failure is not None:
            raise failure

    # Coming.

    async def _start(self) -> None:
        house = self.house
        self._lag = LoopLag(house.clock)
        house.lag_us = lambda: self._lag.last_us
        try:
            await house.open(self)
        except EngineMissing as error:
            raise StartFailed(str(error)) from None
        if self.config.http.insecure_local:
            log.warning("--insecure-local: whoever runs a program on this machine is let in, without a token")
        for listener in self.config.listeners():
            if listener.owned:
                await self._with_a_device(listener.name, partial(self._listen, listener))
            else:
                await self._listen(listener)
        await self._listen_unix()
        await self._prepare_plain_lan()
        house.hub.watch("device", None, self._device_event)
        await house.ctl.start()
        self._lag.start()
        self.watchdog = Watchdog(house.clock, self._manager, house.pings())
        self._tasks.spawn(self.watchdog.run())
        self._tasks.spawn(house.renewal.run())
        self._write_ready()
        self._manager.ready(f"{self.issuer} is ready")
        self.started.set()
        self.on_ready(self)

    async def _with_a_device(self, name: str, opening: Opening) -> None:
        """Open what is for a house that has a device, at once or once it has (design D16)."""
        if self.house.has_devices:
            await opening()
        else:
            self.left_off[name], self._waiting[name] = NO_DEVICE, opening

    async def _listen(self, listener: Listener) -> None:
        """Open one listener, or leave it off and say why. Raises `StartFailed` when somebody asked for this one."""
        if listener.name.startswith("mqtt") and not self.house.bus.listens:
            self.left_off[listener.name] = ELSEWHERE
            return
        try:
            sock = bind_remembered(self._ports, listener.name, listener.host, listener.port)
        except OSError as error:
            why = f"{listener.host}:{listener.port} cannot be used: {error.strerror or error}"
            self._leave_off(listener, why, "free it, or choose another (port 0 picks a free one)")
            return
        try:
            asked = self.config.mqtt.client_cert if listener.name.startswith("mqtt") else "same"
            tls = self.house.renewal.context(asked) if listener.tls else None
        except OSError as error:  # ssl.SSLError is one
            sock.close()
            self._leave_off(listener, f"its certificate cannot be used: {error}")
            return
        try:
            if listener.name.startswith("mqtt"):
                await self._serve_mqtt(listener, sock, tls)
            else:
                await self._serve_http(listener, sock, tls)
        except ValueError as error:
            sock.close()
            self._leave_off(listener, str(error), f"set {listener.key} = off, or mqtt.engine = builtin")
            return
        self.left_off.pop(listener.name, None)
        if not listener.loopback:
            self.to_network[listener.name] = f"{listener.host}:{sock.getsockname()[1]}"
            log.info("listener %s is open to other machines at %s", listener.name, self.to_network[listener.name])

    async def _listen_unix(self) -> None:
        """Open the unix socket, if there is to be one. Raises `StartFailed`: somebody asked for it."""
        if not self.config.mqtt.unix_socket:
            return
        path = self.config.state_dir / self.config.mqtt.unix_socket
        if not self.house.bus.listens:
            self.left_off[UNIX] = ELSEWHERE
            return
        try:
            sock = bind_unix(path)
        except OSError as error:
            why = f"{path} cannot be used: {error.strerror or error}"
            raise StartFailed(f"mqtt.unix_socket = {why}\n  next: choose another path") from None
        self._unix = path
        try:
            await self.house.bus.serve(sock)
        except ValueError as error:
            sock.close()
            raise StartFailed(f"mqtt.unix_socket = {error}\n  next: unset it, or mqtt.engine = builtin") from None
        self.endpoints[UNIX] = str(path)

    def _leave_off(self, listener: Listener, why: str, cure: str = "") -> None:
        self.left_off[listener.name] = why
        if listener.explicit:
            raise StartFailed(f"{listener.key} = {why}" + (f"\n  next: {cure}" if cure else ""))
        log.warning("listener %s is left off: %s", listener.name, why)

    async def _serve_mqtt(self, listener: Listener, sock: socket.socket, tls: ssl.SSLContext | None) -> None:
        entrance = Entrance(origins=tuple(self.config.mqtt.ws_origins), hosts=self.house.hosts.ours)
        await self.house.bus.serve(sock, ssl=tls, entrance=entrance, ws=listener.ws)
        scheme, path = ("ws", entrance.path) if listener.ws else ("mqtt", "")
        self.endpoints[listener.name] = f"{scheme}{'s' if tls else ''}://{_shown(sock)}{path}"
        self.house.listening(listener.name, self.endpoints[listener.name])

    async def _serve_http(self, listener: Listener, sock: socket.socket, tls: ssl.SSLContext | None) -> None:
        made = HttpListener(self.house.app, sock, self.house.terms, tls=tls)
        await made.start()
        self._http.append(made)
        url = f"{'https' if tls else 'http'}://{_shown(sock)}"
        self.endpoints |= _urls(listener.name, url, a2a=self.config.a2a.enabled)
        self.house.listening(listener.name, made.url)

    async def _prepare_plain_lan(self) -> None:
        """See to `mqtt.plain_lan`, if there is to be one. Raises `StartFailed` for a WAN."""
        config, house = self.config, self.house
        if not config.mqtt.plain_lan:
            return
        if not house.bus.listens:
            self.left_off[PLAIN_LAN] = ELSEWHERE
            return
        self.plain_lan = PlainLan(
            config.mqtt.plain_lan, config.mqtt.plain_lan_port, self._ports, house.bus, house.clock, addresses
        )
        try:
            self.plain_lan.check()
        except (Wan, OSError) as error:
            raise StartFailed(f"{error}\n  next: name a local network, or unset mqtt.plain_lan") from None
        await self._with_a_device(PLAIN_LAN, partial(self._open_plain_lan, self.plain_lan))

    async def _open_plain_lan(self, plain_lan: PlainLan) -> None:
        await plain_lan.look()
        self._show_plain_lan(plain_lan)
        self._tasks.spawn(plain_lan.run(partial(self._plain_lan_changed, plain_lan)))

    def _plain_lan_changed(self, plain_lan: PlainLan) -> None:
        self._show_plain_lan(plain_lan)
        if not self._stopped.is_set():
            self._write_ready()

    def _show_plain_lan(self, plain_lan: PlainLan) -> None:
        """Tell what is open: to scripts, to `status`, to `doctor`."""
        for place in (self.endpoints, self.left_off, self.to_network):
            place.pop(PLAIN_LAN, None)
        shown = [plain_lan.shown(host) for host in sorted(plain_lan.open)]
        if shown:
            self.endpoints[PLAIN_LAN], self.to_network[PLAIN_LAN] = f"mqtt://{shown[0]}", ", ".join(shown)
        if plain_lan.left_off:
            self.left_off[PLAIN_LAN] = "; ".join(f"{name}: {why}" for name, why in plain_lan.left_off.items())

    def _device_event(self, event: Event) -> None:
        """The first device opens what waited for it (design D16)."""
        waiting, self._waiting = self._waiting, {}
        if waiting and not self._stopped.is_set():
            self._tasks.spawn(self._open_late(waiting.values()))

    async def _open_late(self, waiting: Iterable[Opening]) -> None:
        for opening in waiting:
            await opening()
        if not self._stopped.is_set():
            self._write_ready()

    def _write_ready(self) -> None:
        """What installers and scripts read; there only while the node answers."""
        identity = self.house.identity
        facts: dict[str, Any] = {
            "version": READY_VERSION,
            "pid": os.getpid(),
            "boot": self.house.clock.boot,
            "issuer": identity.issuer,
            "state_dir": str(self.config.state_dir),
            "tls_ca": str(identity.tls_ca),
            "aun_root": str(identity.aun_root),
            "endpoints": self.endpoints,
        }
        try:
            write_atomic(self._ready_path, dumps(facts) + b"\n")
        except OSError as error:
            log.error("the ready file cannot be written yet: %s", error)
            later(self.house.clock, READY_AGAIN_US, lambda: None if self._stopped.is_set() else self._write_ready())

    @property
    def _ready_path(self) -> Path:
        return self.config.state_dir / "run" / "ready.json"

    # Going (design D2a).

    async def _leave(self) -> None:
        self._manager.stopping()
        house = self.house
        self._ready_path.unlink(missing_ok=True)
        for listener in self._http:
            listener.stop_accepting()
        house.stop_accepting()
        if self._unix is not None:
            self._unix.unlink(missing_ok=True)
        house.stop_reading()
        await house.drain(house.clock.now().mono_us + DRAIN_US)
        for listener in self._http:
            with contextlib.suppress(OSError):
                await listener.shutdown()
        self._lag.stop()
        self._tasks.cancel()
        await house.close()

    # Being asked.

    def reload(self) -> Reloaded:
        """Read the configuration again; log settings change now. Raises `InvalidParams`."""
        try:
            fresh = self._reread()
        except ConfigError as error:
            raise InvalidParams(f"the configuration is refused: {error}") from None
        changed = [key for key in declared.keys() if fresh.value(key) != self.config.value(key)]
        now = [key for key in changed if key.startswith("log.")]
        if now:
            self._logs.apply(_plan(fresh))
            self.config = structs.replace(self.config, log=fresh.log)
        return Reloaded(now, [key for key in changed if key not in now])

    def facts(self) -> dict[str, Any]:
        """What `status` shows."""
        return {
            **self.house.facts(),
            "state": "well" if all(self.well().values()) else "degraded",
            "pid": os.getpid(),
            "state_dir": str(self.config.state_dir),
            "endpoints": dict(self.endpoints),
            "left_off": dict(self.left_off),
            "to_network": dict(self.to_network),
            "waiting": list(self._waiting),
            "plain_lan": self.plain_lan.facts() if self.plain_lan is not None else {},
            "insecure_local": self.config.http.insecure_local,
            "loop_lag_us": {"last": self._lag.last_us, "worst_minute": self._lag.worst_us},
            "background_tasks": {"running": len(self._tasks), "failed": self._tasks.failed},
        }

    def well(self) -> dict[str, bool]:
        """Each part that must answer, and whether it did when it was asked last; a database must take writes too."""
        if not self.started.is_set():
            return {"started": False}
        writes = {f"{db.name}.db": not db.read_only for db in (self.house.node, self.house.hot)}
        return {"started": True} | {
            name: answered and writes.get(name, True) for name, answered in self.watchdog.answers.items()
        }


def _plan(config: Config) -> LogPlan:
    """The log as configured."""
    asked = config.log
    return LogPlan(
        level=asked.level,
        levels=dict(asked.levels),
        format=asked.format,
        target=asked.target,
        file=config.state_dir / (asked.file or "run/aun-edge.log"),
        octets=asked.file_kib << 10,
        count=asked.file_count,
        rate=asked.rate,
    )


WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  read, not bound
"""How this machine reaches a listener that is on every address: what scripts beside the node need."""


def _shown(sock: socket.socket) -> str:
    host, port = sock.getsockname()[:2]
    host = WILDCARDS.get(host, host)
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _urls(name: str, url: str, *, a2a: bool) -> dict[str, str]:
    """The endpoints that one HTTP listener gives."""
    web = url.replace("http", "ws", 1)
    found = {name: url}
    if name == "http":
        found["aun"] = f"{web}/aun"
        if a2a:
            found["a2a"] = f"{url}/a2a"
    return found
