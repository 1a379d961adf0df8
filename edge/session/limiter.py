"""One limiter for every dialect (settled G15): rates per principal, address and method class, and requests at once.

Flow: `with limiter.enter(who, address, klass): …`. It refuses at once and never waits; a refusal says after how many
milliseconds a retry may pass.
"""

from __future__ import annotations

import ipaddress
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache

from edge.contract.errors import RateLimited
from edge.contract.limit import Limit, Limits, declare
from edge.contract.principal import Kind, Principal
from edge.contract.time import SECOND, Clock

BURST = 2
"""A bucket holds this many seconds of its rate."""

BUSY_MS = 100
"""When to come back to a door at which too much runs already."""
CLOSED_MS = 60_000
"""When to come back for what has a rate of zero."""

TABLE = 4096
"""How many principals and addresses are remembered; beyond it the one longest unseen starts afresh."""

PRINCIPAL = declare("rate.principal", 500, "requests/s", "of one caller, all methods together", RateLimited)
ADDRESS = declare("rate.address", 1000, "requests/s", "of one address (IPv6: one /64), all methods", RateLimited)
AUTH = declare("rate.auth", 50, "requests/s", "logins, registrations and failed tokens of one address", RateLimited)
WRITE = declare("rate.write", 300, "requests/s", "of one caller that change state", RateLimited)
ACT = declare("rate.act", 50, "requests/s", "of one caller that act on the world", RateLimited)
CONCURRENT = declare("rate.concurrent", 128, "requests", "of one caller running at once, all its doors", RateLimited)

CLASSES = {"auth": AUTH, "write": WRITE, "act": ACT}
"""Method classes with a rate of their own; the class of an operation is the verb of its scope."""


class _Bucket:
    """Tokens of one caller for one limit."""

    __slots__ = ("at_us", "tokens")

    def __init__(self, tokens: float, at_us: int) -> None:
        self.tokens = tokens
        self.at_us = at_us


class Limiter:
    """Shared by AUN, HTTP, AI Bridge and relay doors. One per node; used in the loop only."""

    def __init__(self, clock: Clock, limits: Limits) -> None:
        self._clock = clock
        self._limits = limits
        self._buckets: OrderedDict[tuple[str, str], _Bucket] = OrderedDict()
        self._running: dict[str, int] = {}

    @contextmanager
    def enter(self, who: Principal, address: str, klass: str = "") -> Iterator[None]:
        """Count one request in, and out again. Raises `RateLimited` with `data.retry_after_ms`."""
        release = self.begin(who, address, klass)
        try:
            yield
        finally:
            release.release()

    def begin(self, who: Principal, address: str, klass: str = "") -> Ticket:
        """`enter` for requests that do not fit a block: call the ticket's `release` once. Raises `RateLimited`."""
        if "*" in who.scopes:
            return Ticket(self, "")
        caller, place = _caller(who), network(address)
        running = self._running.get(caller, 0) if caller else 0
        if caller and running >= self._limits[CONCURRENT]:
            raise self._limits.refuse(CONCURRENT, again_ms=BUSY_MS)
        if klass == "auth":
            self._take(AUTH, place)
        elif caller and klass in CLASSES:
            self._take(CLASSES[klass], caller)
        if caller:
            self._take(PRINCIPAL, caller)
        self._take(ADDRESS, place)  # last: what a caller is refused for is not the neighbours' loss
        if caller:
            self._running[caller] = running + 1
        return Ticket(self, caller)

    def failed(self, address: str) -> None:
        """Somebody at this address showed a bad credential outside `begin`. Raises `RateLimited` when too often."""
        self._take(AUTH, network(address))

    def end(self, caller: str) -> None:
        """One request of `caller` is over."""
        left = self._running.get(caller, 0) - 1
        if left > 0:
            self._running[caller] = left
        else:
            self._running.pop(caller, None)

    def _take(self, limit: Limit, key: str) -> None:
        if not key:
            return
        now, rate = self._clock.now().mono_us, self._limits[limit]
        bucket = self._buckets.get((limit.name, key))
        if bucket is None:
            bucket = self._buckets[limit.name, key] = _Bucket(rate * BURST, now)
            if len(self._buckets) > TABLE:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end((limit.name, key))
        bucket.tokens = min(rate * BURST, bucket.tokens + (now - bucket.at_us) * rate / SECOND)
        bucket.at_us = now
        if bucket.tokens < 1:
            again_ms = int((1 - bucket.tokens) * 1000 / rate) + 1 if rate else CLOSED_MS
            raise self._limits.refuse(limit, again_ms=again_ms)
        bucket.tokens -= 1


class Ticket:
    """A request that was let in."""

    __slots__ = ("_caller", "_limiter")

    def __init__(self, limiter: Limiter, caller: str) -> None:
        self._limiter = limiter
        self._caller = caller

    def release(self) -> None:
        """The request is over; further calls do nothing."""
        caller, self._caller = self._caller, ""
        if caller:
            self._limiter.end(caller)


@lru_cache(maxsize=1024)
def network(address: str) -> str:
    """What counts as one address: IPv4 whole, IPv6 by its /64 (one household has 2^64 of them)."""
    try:
        ip = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is not None:
            return str(ip.ipv4_mapped)
        if not ip.is_loopback:
            return str(ipaddress.ip_network((ip, 64), strict=False))
    return str(ip)


def _caller(who: Principal) -> str:
    """A guest is nobody in particular: only its address counts."""
    return "" if who.kind is Kind.GUEST else who.aid or f"{who.kind}:{who.via}"
