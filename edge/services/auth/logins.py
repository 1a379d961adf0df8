"""What a login remembers between its two calls, and how often an address may try. Loop state, bounded, lost at a stop.

login1 and login2 come on different sockets, so nothing here belongs to one (spec aun-connect §1).
"""

from __future__ import annotations

import secrets
from collections import OrderedDict

import msgspec

from edge.contract.errors import NonceInvalid, RateLimited
from edge.contract.limit import Limit, Limits, declare
from edge.contract.time import SECOND, Clock
from edge.store.keyring import Issued

PENDING = declare("auth.pending_logins", 2048, "logins", "between aid_login1 and what uses its nonce", RateLimited)
ADDRESSES = declare("auth.tracked_addresses", 4096, "addresses", "whose attempts are counted; the quietest go", None)
ATTEMPTS = declare(
    "auth.attempts_per_minute", 600, "calls", "of create_aid, aid_login1 and refresh_token by one address", RateLimited
)
FAILURES = declare("auth.failures_per_minute", 60, "failures", "to prove who one is, by one address", RateLimited)

NONCE_US = 60 * SECOND
MINUTE_US = 60 * SECOND


class Login(msgspec.Struct, frozen=True):
    """A nonce given out: to whom, for which certificate and key, until when (µs of the boot clock)."""

    aid: str
    shown: Issued
    spki: bytes
    nonce: str
    until_us: int


class Logins:
    """The logins under way, node-wide."""

    def __init__(self, clock: Clock, limits: Limits) -> None:
        self._clock, self._limits = clock, limits
        self._open: OrderedDict[str, Login] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def begin(self, aid: str, shown: Issued, spki: bytes) -> tuple[str, str]:
        """A request id and a nonce, good once, for a minute. Raises `RateLimited`."""
        now = self._clock.now().mono_us
        while self._open and next(iter(self._open.values())).until_us <= now:
            self._open.popitem(last=False)
        if len(self._open) >= self._limits[PENDING]:
            raise self._limits.refuse(PENDING)
        request_id, nonce = secrets.token_hex(16), secrets.token_urlsafe(32)
        self._open[request_id] = Login(aid, shown, spki, nonce, now + NONCE_US)
        return request_id, nonce

    def take(self, aid: str, request_id: str, nonce: str) -> Login:
        """The login that this nonce belongs to; it is used up, right or wrong. Raises `NonceInvalid`."""
        login = self._open.pop(request_id, None)
        if login is None or login.until_us <= self._clock.now().mono_us or login.nonce != nonce or login.aid != aid:
            raise NonceInvalid
        return login


class Attempts:
    """Counts what an address asks and fails, in buckets that refill over a minute."""

    def __init__(self, clock: Clock, limits: Limits) -> None:
        self._clock, self._limits = clock, limits
        self._used: OrderedDict[tuple[str, str], tuple[float, int]] = OrderedDict()

    def ask(self, address: str) -> None:
        """One more call. Raises `RateLimited`, also while the address has failed too often."""
        if self._level(FAILURES, address) > self._limits[FAILURES] - 1:
            raise self._limits.refuse(FAILURES)
        if self._level(ATTEMPTS, address) > self._limits[ATTEMPTS] - 1:
            raise self._limits.refuse(ATTEMPTS)
        self._add(ATTEMPTS, address)

    def failed(self, address: str) -> None:
        """One more failure."""
        self._add(FAILURES, address)

    def _level(self, limit: Limit, address: str) -> float:
        level, at = self._used.get((limit.name, address), (0.0, 0))
        return max(0.0, level - (self._clock.now().mono_us - at) * self._limits[limit] / MINUTE_US)

    def _add(self, limit: Limit, address: str) -> None:
        key = (limit.name, address)
        self._used[key] = (self._level(limit, address) + 1, self._clock.now().mono_us)
        self._used.move_to_end(key)
        while len(self._used) > self._limits[ADDRESSES]:
            self._used.popitem(last=False)
            self._limits.hit(ADDRESSES)
