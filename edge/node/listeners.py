"""Where the node listens: what is open, what waits for the first device, what is left off and why."""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from edge.config import Config, Listener
from edge.contract.event import Event
from edge.contract.principal import PLAIN_LAN
from edge.node.failure import StartFailed
from edge.node.house import House
from edge.node.plain_lan import PlainLan, Wan
from edge.node.tasks import Tasks
from edge.system.interfaces import addresses
from edge.system.ports import Ports, bind_remembered, bind_unix
from edge.transports.http.listener import Listener as HttpListener
from edge.transports.mqtt.tcp import Entrance

log = logging.getLogger(__name__)

UNIX = "mqtt_unix"
Opening = Callable[[], Awaitable[None]]
NO_DEVICE = "opens once a device exists: aun-edge device add NAME"
ELSEWHERE = "devices connect to the broker of mqtt.external"
WILDCARDS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  read, not bound
"""How this machine reaches a listener that is on every address: what scripts beside the node need."""


class Listeners:
    """The listeners of one run: `open`, then `stop_accepting` and `close`."""

    def __init__(self, config: Config, house: House, tasks: Tasks, changed: Callable[[], None]) -> None:
        """`changed` is called when something opens or shuts after `open`."""
        self._config, self._house, self._tasks, self._changed = config, house, tasks, changed
        self._ports = Ports(config.state_dir / "ports.json")
        self._http: list[HttpListener] = []
        self._unix: Path | None = None
        self._stopping = False
        self._waiting: dict[str, Opening] = {}
        """What opens with the first device, by name."""
        self.endpoints: dict[str, str] = {}
        """URLs, by name."""
        self.left_off: dict[str, str] = {}
        """Listeners that are not open, and why."""
        self.to_network: dict[str, str] = {}
        """Listeners that other machines can reach, and the address each is bound to."""
        self.plain_lan: PlainLan | None = None
        """The doors of `mqtt.plain_lan`, if there are to be any."""

    # Coming.

    async def open(self) -> None:
        """Open what is configured. Raises `StartFailed` when what somebody asked for cannot be had."""
        for listener in self._config.listeners():
            if listener.owned and not self._elsewhere(listener):
                await self._with_a_device(listener.name, partial(self._listen, listener))
            else:
                await self._listen(listener)
        await self._listen_unix()
        await self._prepare_plain_lan()
        self._house.hub.watch("device", None, self._device_event)

    async def _with_a_device(self, name: str, opening: Opening) -> None:
        """Open what is for a house that has a device, at once or once it has (design D16)."""
        if self._house.has_devices:
            await opening()
        else:
            self.left_off[name], self._waiting[name] = NO_DEVICE, opening

    def _device_event(self, event: Event) -> None:
        """The first device opens what waited for it (design D16)."""
        waiting, self._waiting = self._waiting, {}
        if waiting and not self._stopping:
            self._tasks.spawn(self._open_late(waiting.values()))

    async def _open_late(self, waiting: Iterable[Opening]) -> None:
        for opening in waiting:
            await opening()
        self._changed()

    async def _listen(self, listener: Listener) -> None:
        """Open one listener, or leave it off and say why. Raises `StartFailed` when somebody asked for this one."""
        if self._elsewhere(listener):
            self.left_off[listener.name] = ELSEWHERE
            return
        try:
            sock = bind_remembered(self._ports, listener.name, listener.host, listener.port)
        except OSError as error:
            why = f"{listener.host}:{listener.port} cannot be used: {error.strerror or error}"
            self._leave_off(listener, why, "free it, or choose another (port 0 picks a free one)")
            return
        try:
            asked = self._config.mqtt.client_cert if listener.name.startswith("mqtt") else "same"
            tls = self._house.renewal.context(asked) if listener.tls else None
        except OSError as error:  # ssl.SSLError is one
            sock.close()
            why = f"{listener.host}:{listener.port} cannot be used: its certificate: {error}"
            self._leave_off(listener, why, "mend tls.cert, tls.key and tls.client_ca, or unset them")
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

    def _elsewhere(self, listener: Listener) -> bool:
        """Whether it is for devices of a broker that is not ours: no device ever opens it."""
        return listener.name.startswith("mqtt") and not self._house.bus.listens

    def _leave_off(self, listener: Listener, why: str, cure: str = "") -> None:
        self.left_off[listener.name] = why
        if listener.explicit:
            raise StartFailed(f"{listener.key} = {why}" + (f"\n  next: {cure}" if cure else ""))
        log.warning("listener %s is left off: %s", listener.name, why)

    async def _serve_mqtt(self, listener: Listener, sock: socket.socket, tls: ssl.SSLContext | None) -> None:
        entrance = Entrance(origins=tuple(self._config.mqtt.ws_origins), hosts=self._house.hosts.ours)
        await self._house.bus.serve(sock, ssl=tls, entrance=entrance, ws=listener.ws)
        scheme, path = ("ws", entrance.path) if listener.ws else ("mqtt", "")
        self.endpoints[listener.name] = f"{scheme}{'s' if tls else ''}://{_shown(sock)}{path}"
        self._house.listening(listener.name, self.endpoints[listener.name])

    async def _serve_http(self, listener: Listener, sock: socket.socket, tls: ssl.SSLContext | None) -> None:
        made = HttpListener(self._house.app, sock, self._house.terms, tls=tls)
        await made.start()
        self._http.append(made)
        url = f"{'https' if tls else 'http'}://{_shown(sock)}"
        self.endpoints |= _urls(listener.name, url, a2a=self._config.a2a.enabled)
        self._house.listening(listener.name, made.url)

    async def _listen_unix(self) -> None:
        """Open the unix socket, if there is to be one. Raises `StartFailed`: somebody asked for it."""
        if not self._config.mqtt.unix_socket:
            return
        path = self._config.state_dir / self._config.mqtt.unix_socket
        if not self._house.bus.listens:
            self.left_off[UNIX] = ELSEWHERE
            return
        try:
            sock = bind_unix(path)
        except OSError as error:
            why = f"{path} cannot be used: {error.strerror or error}"
            raise StartFailed(f"mqtt.unix_socket = {why}\n  next: choose another path") from None
        self._unix = path
        try:
            await self._house.bus.serve(sock)
        except ValueError as error:
            sock.close()
            raise StartFailed(f"mqtt.unix_socket = {error}\n  next: unset it, or mqtt.engine = builtin") from None
        self.endpoints[UNIX] = str(path)

    # MQTT without TLS.

    async def _prepare_plain_lan(self) -> None:
        """See to `mqtt.plain_lan`, if there is to be one. Raises `StartFailed` for a WAN."""
        config, house = self._config, self._house
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
        self._changed()

    def _show_plain_lan(self, plain_lan: PlainLan) -> None:
        """Tell what is open: to scripts, to `status`, to `doctor`."""
        for place in (self.endpoints, self.left_off, self.to_network):
            place.pop(PLAIN_LAN, None)
        shown = [plain_lan.shown(host) for host in sorted(plain_lan.open)]
        if shown:
            self.endpoints[PLAIN_LAN], self.to_network[PLAIN_LAN] = f"mqtt://{shown[0]}", ", ".join(shown)
        if plain_lan.left_off:
            self.left_off[PLAIN_LAN] = "; ".join(f"{name}: {why}" for name, why in plain_lan.left_off.items())

    # Being asked, and going.

    def facts(self) -> dict[str, Any]:
        """What `status` shows."""
        return {
            "endpoints": dict(self.endpoints),
            "left_off": dict(self.left_off),
            "to_network": dict(self.to_network),
            "waiting": list(self._waiting),
            "plain_lan": self.plain_lan.facts() if self.plain_lan is not None else {},
        }

    def stop_accepting(self) -> None:
        """No new connections; those of the bus end with the bus."""
        self._stopping = True
        for listener in self._http:
            listener.stop_accepting()
        if self._unix is not None:
            self._unix.unlink(missing_ok=True)

    async def close(self) -> None:
        """End what is connected by HTTP."""
        for listener in self._http:
            with contextlib.suppress(OSError):
                await listener.shutdown()


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
