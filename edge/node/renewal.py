"""Certificates of the TLS listeners, kept fresh without dropping a connection (settled G32)."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import msgspec

from edge.contract.errors import EdgeError
from edge.contract.time import SECOND, Clock
from edge.store.keyring import Identity, TlsFiles

log = logging.getLogger(__name__)

LOOK_US = 30 * SECOND
"""How often the operator's files are looked at, and our own certificates' dates."""


class Renewal:
    """Owns the server contexts. Reloads them when the operator's files change or our own certificate was renewed."""

    def __init__(
        self,
        identity: Identity,
        files: TlsFiles,
        names: Sequence[str],
        clock: Clock,
        entered: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """`entered` runs after certificates were made: the CA must know them before anybody asks for their status."""
        self._identity, self._files, self._names, self._clock = identity, files, list(names), clock
        self._entered = entered
        self._contexts: list[ssl.SSLContext] = []
        self._seen = self._look()
        self._clients = _stamp(Path(files.client_ca)) if files.client_ca else (0, 0)
        self._brought_until = _until(files.cert) if files.cert else 0
        self.reloads = 0

    @property
    def until(self) -> int:
        """When the certificate of the TLS doors ends, s UTC: the operator's, else our own; 0 when it cannot be read."""
        return self._brought_until if self._files.cert else self._identity.tls_until

    def context(self, client_cert: str = "same") -> ssl.SSLContext:
        """A server context that stays fresh; `client_cert` other than `same` stands above `tls.client_cert`.

        Raises `OSError`, `ssl.SSLError` when the files are not good.
        """
        files = self._files
        if client_cert != "same":
            files = msgspec.structs.replace(files, client_cert=client_cert)
        made = self._identity.tls_context(files)
        self._contexts.append(made)
        return made

    async def run(self) -> None:
        """Look, for ever."""
        while True:
            await self._clock.sleep_until(self._clock.now().mono_us + LOOK_US)
            try:
                await self.look()
            except (OSError, EdgeError) as error:
                log.error("certificates that are due cannot be written, the old ones stay: %s", error)

    async def look(self) -> bool:
        """Renew what is due, reload what changed; whether anything was reloaded."""
        now_us, unsure_us = self._clock.wall(self._clock.now())
        made = await _off_loop(lambda: self._identity.renew_leafs(now_us, unsure_us, self._names))
        if made and self._entered is not None:
            await self._entered()
        clients = self._look_at_clients()
        seen = self._look()
        if seen == self._seen and "tls" not in made:
            return clients
        for context in self._contexts:
            try:
                self._identity.reload_tls(context, self._files)
            except (OSError, ssl.SSLError) as error:
                log.error("the new certificate is not taken, the old one stays: %s", error)
                return clients
        self._seen = seen
        self._brought_until = _until(self._files.cert) if self._files.cert else 0
        self.reloads += 1
        log.info("TLS certificate reloaded")
        return True

    def _look_at_clients(self) -> bool:
        """The same for the authorities of clients: new ones and revocations count at once."""
        seen = _stamp(Path(self._files.client_ca)) if self._files.client_ca else (0, 0)
        if seen == self._clients:
            return False
        gone = 0
        for context in self._contexts:
            if context.verify_mode == ssl.CERT_NONE:
                continue
            try:
                gone = max(gone, self._identity.reload_clients(context, self._files))
            except (OSError, ssl.SSLError) as error:
                log.error("the new tls.client_ca is not taken, the old one stays: %s", error)
                return False
        self._clients = seen
        self.reloads += 1
        log.info("tls.client_ca reloaded")
        if gone:
            log.warning("%d authorities that tls.client_ca names no more are trusted until the node restarts", gone)
        return True

    def _look(self) -> tuple[tuple[int, int], ...]:
        """What tells a changed file: inode and time of change."""
        return tuple(_stamp(Path(name)) for name in (self._files.cert, self._files.key) if name)


def _stamp(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_ino, found.st_mtime_ns


def _until(file: str) -> int:
    """The end of the first certificate in a PEM file, s UTC; 0 when there is none to be read."""
    from edge.protocol import pki

    try:
        return int(pki.parse(Path(file).read_bytes())[0].not_valid_after_utc.timestamp())
    except (OSError, ValueError):
        return 0  # the listener that it is for is left off, and says why


async def _off_loop(work: Callable[[], list[str]]) -> list[str]:
    """Key work and file syncs belong to the small pool (design D5)."""
    return await asyncio.get_running_loop().run_in_executor(None, work)
