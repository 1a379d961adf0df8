"""`aun-edge doctor`: every check in order, each only after those it needs; the failing cause first."""

from __future__ import annotations

import os
import platform
import shutil
import sys
import urllib.error
import urllib.request
from argparse import Namespace
from collections.abc import Callable
from typing import Any

import msgspec

from edge.cli import show
from edge.cli.ask import ask
from edge.cli.failure import Exit, Failure
from edge.cli.places import ready
from edge.cli.verbs import plain_doors
from edge.contract.errors import EdgeError
from edge.contract.principal import PLAIN_LAN

LITTLE_ROOM = 64 << 20
"""Bytes free below which the store is in danger."""


class Finding(msgspec.Struct, frozen=True):
    """What a check found: `ok`, `failed`, or `skipped` because of what failed before."""

    check: str
    state: str
    text: str
    next: str = ""


class Examination:
    """The checks share what they learn: options, then the node's own words."""

    def __init__(self, options: Namespace) -> None:
        self.options = options
        self.status: dict[str, Any] = {}
        self.ready: dict[str, Any] = {}

    def machine(self) -> str:
        """A 64-bit system with a Python that can run the node."""
        if sys.maxsize < 2**32:
            raise Failure("this is a 32-bit Python, which is not supported", next_step="install a 64-bit system")
        return f"Python {platform.python_version()}, {platform.machine()}, Linux {platform.release()}"

    def configuration(self) -> str:
        """Every file is readable and every setting allowed."""
        import edge.node  # noqa: F401  the limits are declared there
        from edge.config import ConfigError, load_config
        from edge.node.fixed import refuse_another_issuer

        try:
            config = load_config(state_dir=self.options.state_dir)
            refuse_another_issuer(config)
        except ConfigError as refused:
            raise Failure(str(refused), next_step="aun-edge config validate") from None
        return f"{len(config.origins)} settings differ from their defaults"

    def directory(self) -> str:
        """The state directory is there, private and writable."""
        path = self.options.state_dir
        if not path.is_dir():
            raise Failure(f"{path} does not exist", next_step=f"aun-edge run --state-dir {path}")
        if not os.access(path, os.W_OK | os.X_OK):
            raise Failure(f"{path} is not yours to write", next_step="run this as the user of the node")
        if path.stat().st_mode & 0o077:
            raise Failure(f"{path} is open to other users", next_step=f"chmod 700 {path}")
        return str(path)

    def room(self) -> str:
        """The disk has room."""
        free = shutil.disk_usage(self.options.state_dir).free
        if free < LITTLE_ROOM:
            raise Failure(f"only {free >> 20} MiB are free below {self.options.state_dir}", next_step="make room")
        return f"{free >> 20} MiB free"

    def running(self) -> str:
        """A node answers on the control socket."""
        self.status = ask(self.options.state_dir, "status")
        self.ready = ready(self.options.state_dir)
        return f"version {self.status['version']}, pid {self.status['pid']}"

    def store(self) -> str:
        """The databases take writes."""
        closed = {name: one for name, one in self.status["stores"].items() if one["read_only"]}
        if closed:
            said = ", ".join(f"{name} ({one['failure']})" for name, one in closed.items())
            full = all(one["full"] for one in closed.values())
            room = "make room on the disk: the node goes on by itself, and takes alarms from a reserve until then"
            step = room if full else "make room on the disk, or replace the medium, then restart the node"
            raise Failure(f"read-only: {said}", next_step=step)
        return "both databases take writes"

    def listeners(self) -> str:
        """Every wanted listener is open. What waits for a first device is no fault, nor MQTT at another broker."""
        wanted = self.status["left_off"].keys() - {*self.status["waiting"], PLAIN_LAN}
        if self.status["mqtt"]["engine"] == "external":
            wanted = {name for name in wanted if not name.startswith("mqtt")}
        off = {name: why for name, why in self.status["left_off"].items() if name in wanted}
        if off:
            said = "; ".join(f"{name}: {why}" for name, why in off.items())
            raise Failure(f"left off: {said}", next_step=_opened(*next(iter(off.items()))))
        return ", ".join(f"{name} {url}" for name, url in self.ready["endpoints"].items())

    def broker(self) -> str:
        """Where a broker of the owner's is the bus, the node is connected to it."""
        bus = self.status["mqtt"]
        if bus["engine"] != "external":
            return f"the bus is this node's own: {bus['engine']}"
        if bus["state"] != "connected":
            step = "look at that broker, and at mqtt.external.* in aun-edge config list; the node's log has the reason"
            raise Failure(f"the broker at {bus['broker']}: {bus['state']}", next_step=step)
        return f"connected to {bus['broker']}"

    def plain_lan(self) -> str:
        """MQTT without TLS: where, if the owner wanted it; a wanted door that is not open is a fault."""
        lan = self.status["plain_lan"]
        if PLAIN_LAN in self.status["waiting"]:
            return "MQTT without TLS is wanted: it opens once a device exists"
        off = lan.get("left_off", {})
        if off:
            said = "; ".join(f"{name}: {why}" for name, why in off.items())
            step = (
                "mend the address or the port, or aun-edge config set mqtt.plain_lan=SUBNET, then start the node again"
            )
            raise Failure(f"not open: {said}", next_step=step)
        return "; ".join(plain_doors(lan)) or "MQTT without TLS: nowhere but on this machine"

    def owner(self) -> str:
        """Whoever is to be told of alarms has an inbox here."""
        owner = self.status["owner"]
        if not owner:
            return "node.owner is empty: nobody is told of alarms"
        states = {one["aid"]: one["state"] for one in ask(self.options.state_dir, "agent.list")}
        if states.get(owner) != "registered":
            raise Failure(
                f"node.owner = {owner} is no registered agent of this node: what it is told of alarms is lost",
                next_step="aun-edge agent list, then aun-edge agent add NAME, or correct node.owner",
            )
        return f"{owner} is told of alarms"

    def http(self) -> str:
        """The HTTP door answers."""
        base = self.ready["endpoints"].get("http", "")
        if not base:
            return "no plain HTTP door"
        try:
            straight = urllib.request.build_opener(urllib.request.ProxyHandler({}))
            with straight.open(f"{base}/healthz", timeout=5) as answer:
                return f"{base}/healthz says {answer.status}"
        except (urllib.error.URLError, OSError) as error:
            raise Failure(f"{base}/healthz: {error}", next_step="look into the node's log") from None


def _opened(name: str, why: str) -> str:
    """How a listener that is left off comes back."""
    from edge.config import PORTS

    if "certificate" in why:
        return "mend tls.cert and tls.key, then start the node again"
    port = next(port for port in PORTS if port.name == name)
    free = f"{port.key}={port.usual.rpartition(':')[0]}:0"  # a door to the network stays one
    return f"free the port, or `aun-edge config set {free}` (0 picks a free one), then start the node again"


ORDER: tuple[tuple[str, Callable[[Examination], str], tuple[str, ...]], ...] = (
    ("machine", Examination.machine, ()),
    ("configuration", Examination.configuration, ()),
    ("directory", Examination.directory, ()),
    ("room", Examination.room, ("directory",)),
    ("running", Examination.running, ("directory",)),
    ("store", Examination.store, ("running",)),
    ("listeners", Examination.listeners, ("running",)),
    ("broker", Examination.broker, ("running",)),
    ("plain_lan", Examination.plain_lan, ("running",)),
    ("owner", Examination.owner, ("running",)),
    ("http", Examination.http, ("running",)),
)
"""Each check with those it needs; a check whose need failed is skipped, because its cause is already told."""


def examine(options: Namespace) -> list[Finding]:
    """Run every check, in order."""
    examination = Examination(options)
    found: list[Finding] = []
    for name, check, needs in ORDER:
        missing = [one.check for one in found if one.check in needs and one.state != "ok"]
        if missing:
            found.append(Finding(name, "skipped", f"needs: {', '.join(missing)}"))
            continue
        try:
            found.append(Finding(name, "ok", check(examination)))
        except Failure as failure:
            found.append(Finding(name, "failed", failure.what, failure.next_step))
        except EdgeError as error:
            found.append(Finding(name, "failed", error.message, "look into the node's log"))
    return found


def run(options: Namespace) -> int:
    """Print the findings, the first failing cause on top."""
    found = examine(options)
    failed = [one for one in found if one.state == "failed"]
    if options.json:
        show.as_json(found)
        return Exit.FAILED if failed else Exit.OK
    if failed:
        cause = failed[0]
        print(f"{cause.check}: {cause.text}\n  next: {cause.next}\n")
    for one in found:
        print(f"{one.state.ljust(8)} {one.check.ljust(14)} {show.printable(one.text)}")
    return Exit.FAILED if failed else Exit.OK
