"""MQTT without TLS for devices that cannot have it, on the owner's own network only (settled G14, design D16).

Each address of this machine in a network that `mqtt.plain_lan` names gets a listener, for clients of that very network.
An interface with a public address, a modem or a tunnel leads to the internet: never there. Addresses come and go, so
this looks again and again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from ipaddress import ip_network

import msgspec

from edge.config.lan import Network, lan, private
from edge.contract.bus import BusEngine
from edge.contract.principal import PLAIN_LAN
from edge.contract.time import SECOND, Clock
from edge.system.interfaces import Address
from edge.system.ports import Ports, bind_remembered
from edge.transports.mqtt.tcp import Entrance

log = logging.getLogger(__name__)

LOOK_US = 30 * SECOND
"""How often the machine's addresses are looked at."""


class Door(msgspec.Struct, frozen=True):
    """An address to listen on, and the network whose clients may come in."""

    host: str
    interface: str
    network: Network


class Wan(Exception):
    """An entry leads to the internet: which, and why."""


def doors(entries: Sequence[str], found: Sequence[Address]) -> tuple[dict[str, Door], dict[str, str], dict[str, str]]:
    """(doors by address, why nothing is open for an entry, why an entry is refused for good)."""
    made: dict[str, Door] = {}
    missing: dict[str, str] = {}
    refused: dict[str, str] = {}
    for entry in entries:
        mine = _meant(entry, found)
        outside = next(filter(None, (_leads_out(door.interface, found) for door in mine)), "")
        usable = [door for door in mine if private(door.network)]
        if outside:
            refused[entry] = outside
            continue
        if not usable:
            kind = "interface of that name with a private address" if isinstance(lan(entry), str) else "address in it"
            missing[entry] = f"this machine has no {kind} now"
        for door in usable:
            made.setdefault(door.host, door)
    return made, missing, refused


def _meant(entry: str, found: Sequence[Address]) -> list[Door]:
    """The addresses of an interface, each for its own network, or those in a subnet, for that subnet."""
    wanted = lan(entry)
    if isinstance(wanted, str):
        return [_door(one, one.address.network) for one in found if one.interface == wanted]
    return [_door(one, wanted) for one in found if one.address.ip in wanted]


def _door(one: Address, network: Network) -> Door:
    return Door(str(one.address.ip), one.interface, network)


def _leads_out(interface: str, found: Sequence[Address]) -> str:
    """Why an interface is none of the owner's network, "" when it is."""
    for one in found:
        if one.interface != interface:
            continue
        if not one.local:
            return f"{interface} is a modem, a tunnel or the machine itself, not a local network"
        if one.address.version == 4 and not private(ip_network(one.address.ip)):
            return f"{interface} has the public address {one.address.ip}: it leads to the internet"
    return ""


class PlainLan:
    """The listeners of `mqtt.plain_lan`. `look` opens what is new and shuts what is gone or leads out."""

    def __init__(
        self,
        entries: Sequence[str],
        port: int,
        ports: Ports,
        bus: BusEngine,
        clock: Clock,
        addresses: Callable[[], list[Address]],
    ) -> None:
        self._entries, self._port, self._ports = list(entries), port, ports
        self._bus, self._clock, self._addresses = bus, clock, addresses
        self._bound: dict[str, int] = {}
        self.open: dict[str, Door] = {}
        """By address; what is not in here lets nobody in."""
        self.left_off: dict[str, str] = {}
        """Entries and addresses for which nothing is open, and why."""

    def check(self) -> None:
        """Raises `Wan` when an entry leads to the internet, `OSError` when the kernel does not tell."""
        _, _, refused = doors(self._entries, self._addresses())
        for entry, why in refused.items():
            raise Wan(f"mqtt.plain_lan = {entry}: {why}")

    async def look(self) -> bool:
        """Open and shut; whether anything changed."""
        try:
            wanted, missing, refused = doors(self._entries, self._addresses())
        except OSError as error:
            log.error("mqtt.plain_lan: the machine's addresses cannot be read: %s", error)
            return False
        left_off = {**missing, **refused}
        opened: dict[str, Door] = {}
        for host, door in wanted.items():
            why = "" if host in self._bound else await self._listen(door)
            if why:
                left_off[host] = why
            else:
                opened[host] = door
        for host in self.open.keys() - opened.keys():
            log.warning("mqtt.plain_lan: %s is shut: %s", host, left_off.get(host, "the address is gone, or leads out"))
        for host in opened.keys() - self.open.keys():
            log.warning("mqtt.plain_lan: MQTT WITHOUT TLS is open to %s at %s", wanted[host].network, self.shown(host))
        changed = (opened, left_off) != (self.open, self.left_off)
        self.open, self.left_off = opened, left_off
        return changed

    async def _listen(self, door: Door) -> str:
        """Open one address; why not, "" when it is open."""
        try:
            sock = bind_remembered(self._ports, f"{PLAIN_LAN}_{door.host}", door.host, self._port)
        except OSError as error:
            return f"{door.host}:{self._port} cannot be used: {error.strerror or error}"
        entrance = Entrance(networks=(door.network,), via=PLAIN_LAN, is_open=lambda: door.host in self.open)
        self._bound[door.host] = sock.getsockname()[1]
        await self._bus.serve(sock, entrance=entrance)
        return ""

    async def run(self, changed: Callable[[], None]) -> None:
        """Look, for ever; tell when something changed."""
        while True:
            await self._clock.sleep_until(self._clock.now().mono_us + LOOK_US)
            if await self.look():
                changed()

    def shown(self, host: str) -> str:
        """`address:port` of an open door."""
        return f"[{host}]:{self._bound[host]}" if ":" in host else f"{host}:{self._bound[host]}"

    def facts(self) -> dict[str, object]:
        """What `status` shows."""
        return {
            "open": [
                {"address": self.shown(host), "interface": door.interface, "network": str(door.network)}
                for host, door in sorted(self.open.items())
            ],
            "left_off": dict(self.left_off),
        }
