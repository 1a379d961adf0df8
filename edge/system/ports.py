"""Port 0 picks once and is remembered: clients cache URLs for ever."""

from __future__ import annotations

import contextlib
import errno
import logging
import socket
import stat
from pathlib import Path

import msgspec

from edge.contract.errors import EdgeError
from edge.contract.wire import dumps, loads
from edge.system.files import write_atomic

log = logging.getLogger(__name__)


class Ports:
    """The ports that this state directory has chosen, by listener name."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._chosen: dict[str, int] = {}
        try:
            self._chosen = msgspec.convert(loads(path.read_bytes()), dict[str, int])
        except FileNotFoundError:
            pass
        except (OSError, EdgeError, msgspec.ValidationError) as error:
            log.warning("%s cannot be read, ports are picked anew: %s", path, error)

    def remembered(self, name: str) -> int:
        """The port chosen earlier, or 0."""
        return self._chosen.get(name, 0)

    def remember(self, name: str, port: int) -> None:
        """Keep a choice; written only when it is new."""
        if self._chosen.get(name) != port:
            self._chosen[name] = port
            write_atomic(self._path, dumps(self._chosen))


def bind_tcp(host: str, port: int) -> socket.socket:
    """A bound, not yet listening TCP socket. Raises `OSError`."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family is socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind((host, port))
        made.setblocking(False)
    except OSError:
        made.close()
        raise
    return made


def bind_remembered(ports: Ports, name: str, host: str, port: int) -> socket.socket:
    """Bind a listener; port 0 takes the remembered port if it is still free, else a new one, and remembers it."""
    if port:
        return bind_tcp(host, port)
    kept = ports.remembered(name)
    if kept:
        with contextlib.suppress(OSError):
            return bind_tcp(host, kept)
    made = bind_tcp(host, 0)
    ports.remember(name, made.getsockname()[1])
    return made


SOCKET_MODE = 0o660
"""Owner and group may connect to a unix socket; who gets to its folder is the folder's matter."""


def bind_unix(path: Path) -> socket.socket:
    """A bound, not yet listening unix socket; one that nobody listens on any more is replaced. Raises `OSError`."""
    _make_way(path)
    made = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        made.bind(str(path))
        path.chmod(SOCKET_MODE)
        made.setblocking(False)
    except OSError:
        made.close()
        raise
    return made


def _make_way(path: Path) -> None:
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise OSError(errno.EEXIST, "there is something else of that name")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
        else:
            raise OSError(errno.EADDRINUSE, "somebody listens there")
