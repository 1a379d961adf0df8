"""What the service manager wants to hear (sd_notify(3)), by the standard library alone."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Mapping

_log = logging.getLogger(__name__)


class ServiceManager:
    """Tells whoever started us how we are; without `NOTIFY_SOCKET` every call does nothing."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._address = environ.get("NOTIFY_SOCKET", "")
        if self._address.startswith("@"):
            self._address = "\0" + self._address[1:]
        self.watchdog_us = _watchdog_us(environ)
        """Within how many µs each `alive` must follow the last; 0: nobody watches."""

    def ready(self, status: str) -> None:
        """Everything answers."""
        self._tell("READY=1", f"STATUS={status}", f"MAINPID={os.getpid()}")

    def alive(self) -> None:
        """Feed the watchdog. Only who has just heard from loop, writers and bus may call this."""
        if self.watchdog_us:
            self._tell("WATCHDOG=1")

    def status(self, text: str) -> None:
        """One line for `systemctl status`."""
        self._tell(f"STATUS={text}")

    def stopping(self) -> None:
        """The orderly end has begun."""
        self._tell("STOPPING=1")

    def _tell(self, *lines: str) -> None:
        if not self._address:
            return
        text = "\n".join(line.replace("\n", " ") for line in lines)
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as door:
                door.setblocking(False)
                door.connect(self._address)
                door.send(text.encode())
        except OSError as error:
            _log.warning("the service manager does not hear us: %s", error)


def _watchdog_us(environ: Mapping[str, str]) -> int:
    """`WATCHDOG_USEC`, unless `WATCHDOG_PID` names another process."""
    if environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return 0
    text = environ.get("WATCHDOG_USEC", "0")
    return int(text) if text.isascii() and text.isdigit() else 0
