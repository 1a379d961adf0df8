"""`aun-edge run` and `aun-edge init`: options to configuration, a loop, signals, an exit code."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path

from edge.config import Config, ConfigError, load_config
from edge.node.failure import StartFailed
from edge.node.fixed import refuse_another_issuer
from edge.node.folders import make_folders
from edge.node.life import Node
from edge.node.names import own_names
from edge.store import swap
from edge.store.keyring import IdentityError, load_identity
from edge.store.marks import Marks, kernel_boot_id
from edge.system.clock import SystemClock
from edge.system.files import DirectoryInUse, StateLock
from edge.system.notify import ServiceManager

log = logging.getLogger(__name__)

OK, FAILED, USAGE = 0, 1, 2

SWITCH_S = 0.0005
"""How long a thread keeps the interpreter when another waits: short, so that commits do not wait for a flood (D5)."""


def main_run(options: Namespace) -> int:
    """Run the node until SIGTERM or SIGINT. The exit code: 0 stopped in order, 1 failed, 2 refused configuration."""
    try:
        config = _config(options)
        if not options.issuer:
            refuse_another_issuer(config)
    except ConfigError as error:
        print(f"the configuration is refused:\n{error}", file=sys.stderr)  # noqa: T201
        print("  next: aun-edge config validate", file=sys.stderr)  # noqa: T201
        return USAGE
    os.umask(0o077)
    sys.setswitchinterval(SWITCH_S)
    try:
        with asyncio.Runner(loop_factory=_loop_factory()) as runner:
            runner.run(_serve(config, options.issuer or config.node.issuer, lambda: _config(options)))
    except (StartFailed, IdentityError, DirectoryInUse) as error:
        print(f"the node does not start: {error}", file=sys.stderr)  # noqa: T201
        if "next: " not in str(error):
            verb = "status" if isinstance(error, DirectoryInUse) else "doctor"
            print(f"  next: aun-edge {verb} --state-dir {config.state_dir}", file=sys.stderr)  # noqa: T201
        return FAILED
    return OK


def main_init(options: Namespace) -> tuple[str, bool]:
    """Make the state directory and the identity; the issuer, and whether it was made now.

    Raises `DirectoryInUse`, `IdentityError`, `ConfigError`.
    """
    config = _config(options)
    if not options.issuer:
        refuse_another_issuer(config)
    make_folders(config.state_dir)
    lock = StateLock(config.state_dir / "run" / "lock")
    try:
        swap.finish(config.state_dir)
        fresh = not (config.state_dir / "identity" / "pki").is_dir()
        marks = Marks.load(config.state_dir / "identity" / "incarnation")
        clock = SystemClock(marks.begin_boot(kernel_boot_id()))
        now_us, unsure_us = clock.wall(clock.now())
        found = load_identity(
            config.state_dir,
            options.issuer or config.node.issuer or None,
            now_us,
            clock.floor_us,
            unsure_us,
            own_names(config, socket.gethostname()),
        )
        return found.issuer, fresh
    finally:
        lock.close()


def _config(options: Namespace) -> Config:
    sets = list(options.set or ())
    if options.insecure_local:
        sets.append("http.insecure_local=true")
    return load_config(
        state_dir=Path(options.state_dir),
        config_file=Path(options.config) if options.config else None,
        profile=options.profile or "",
        sets=sets,
    )


def _loop_factory() -> type[asyncio.AbstractEventLoop] | None:
    """uvloop where there is one."""
    try:
        import uvloop
    except ImportError:
        return None
    found: type[asyncio.AbstractEventLoop] = uvloop.Loop
    return found


async def _serve(config: Config, issuer: str, reread: Callable[[], Config]) -> None:
    node = Node(config, issuer, ServiceManager(os.environ), reread)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, node.stop)
    node.on_ready = _announce
    await node.run()


def say(line: str) -> None:
    """Print a line; where that is a file on a full disk, or nobody reads any more, the node goes on without it.

    What could not be written must not be tried again at the end either: the exit code would say that we failed."""
    try:
        print(line, flush=True)  # noqa: T201
    except OSError as error:
        log.warning("standard output takes nothing: %s", error)
        sys.stdout = open(os.devnull, "w", encoding="utf-8")


def _announce(node: Node) -> None:
    """The one line for people and scripts; from here on what was imported stays out of the collector's way."""
    points = node.endpoints
    say(f"ready {node.issuer} mqtt={points.get('mqtt', '-')} http={points.get('http', '-')}")
    gc.collect()
    gc.freeze()
