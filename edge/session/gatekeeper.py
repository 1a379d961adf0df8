"""Who may connect by MQTT (`Gatekeeper`): users in memory, one SHA-256 each, nobody anonymous.

A password is a random token of 128 bits and more, so guessing it is hopeless; the limits on failures are there to
keep a broken or hostile client from costing time. They never lock out an address that has made no mistake.
"""

from __future__ import annotations

import hmac
from collections import Counter, OrderedDict
from collections.abc import Iterable

from edge.contract.bus import Admission
from edge.contract.limit import Limit, Limits, declare
from edge.contract.principal import Kind, Principal
from edge.contract.store import Store
from edge.contract.time import SECOND, Clock
from edge.store import credentials
from edge.store.credentials import Credential

FAILURES_ADDRESS = declare(
    "mqtt.failures_per_address", 30, "failed logins a minute", "from one address; it is not heard for a minute", None
)
FAILURES_USER = declare(
    "mqtt.failures_per_user",
    10,
    "failed logins a minute",
    "for one user, from addresses that have failed before; they are not heard for a minute",
    None,
)
PASSWORD_OCTETS = declare("mqtt.password_octets", 1_024, "bytes", "of a password; a longer one is wrong", None)

FIGURES = "$SYS/#"
"""What `--admin` may read besides every topic: the broker's own figures (`#` leaves `$` topics out)."""
WINDOW_US = 60 * SECOND
REMEMBERED = 2_048
"""Addresses and users whose failures are remembered at once."""

_NOBODY = b"\0" * 32


class _Failures:
    """Failures a minute by key, for a bounded number of keys; the longest silent go first."""

    def __init__(self) -> None:
        self._counts: OrderedDict[str, tuple[int, int]] = OrderedDict()

    def count(self, key: str, now_us: int) -> int:
        start, count = self._counts.get(key, (now_us, 0))
        return count if now_us - start < WINDOW_US else 0

    def add(self, key: str, now_us: int) -> None:
        start, count = self._counts.pop(key, (now_us, 0))
        self._counts[key] = (start, count + 1) if now_us - start < WINDOW_US else (now_us, 1)
        if len(self._counts) > REMEMBERED:
            self._counts.popitem(last=False)


class Gatekeeper:
    """`edge.contract.bus.Gatekeeper` over the table of MQTT users. `refused` counts by reason."""

    def __init__(self, store: Store, issuer: str, clock: Clock, limits: Limits) -> None:
        self._store, self._issuer, self._clock, self._limits = store, issuer, clock, limits
        self._users: dict[str, tuple[bytes, Admission]] = {}
        self._addresses, self._names = _Failures(), _Failures()
        self.refused: Counter[str] = Counter()

    async def load(self) -> None:
        """Read every user. Before the engine listens."""
        self.enrol_all(await self._store.read(credentials.all_users))

    def enrol_all(self, users: Iterable[Credential]) -> None:
        """Let these in from now on."""
        for one in users:
            self.enrol(one)

    def enrol(self, one: Credential) -> None:
        """Let a user in from now on; after the commit of its row."""
        who = Principal(kind=Kind.DEVICE, aid=one.aid, via="mqtt", device_id=one.user)
        reads = (*one.subscribe, FIGURES) if one.admin else one.subscribe
        self._users[one.user] = (one.digest, Admission(who, one.user, one.publish, reads))

    def dismiss(self, user: str) -> None:
        """Let a user in no more. Who is connected is the bus's to expel."""
        self._users.pop(user, None)

    def user(self, name: str) -> Admission | None:
        """What a user may do."""
        found = self._users.get(name)
        return None if found is None else found[1]

    def admission(self, who: Principal) -> Admission | None:
        """What the publisher of a message may do: a user's filters; everything for the node and its operator."""
        if who.kind in (Kind.NODE, Kind.OPERATOR):
            return Admission(who, "", ("#",), ("#",))
        return self.user(who.device_id)

    def admit(self, user: str, password: bytes | None, client_id: str, address: str) -> Admission | None:
        """The admission, or None: anonymous, unknown, wrong, or too many failures. Never raises."""
        if not user or not password:
            self._refuse("anonymous", user, address)
            return None
        now_us = self._clock.now().mono_us
        limit = self._exhausted(user, address, now_us)
        if limit is not None:
            self._limits.hit(limit)
            self.refused["limited"] += 1
            return None
        if len(password) > self._limits[PASSWORD_OCTETS]:
            self._limits.hit(PASSWORD_OCTETS)
            self._refuse("wrong", user, address)
            return None
        kept, admission = self._users.get(user, (_NOBODY, None))
        if not hmac.compare_digest(kept, credentials.digest(password)) or admission is None:
            self._refuse("unknown" if admission is None else "wrong", user, address)
            return None
        return admission

    def _exhausted(self, user: str, address: str, now_us: int) -> Limit | None:
        failed = self._addresses.count(address, now_us)
        if failed >= self._limits[FAILURES_ADDRESS]:
            return FAILURES_ADDRESS
        if failed and self._names.count(user, now_us) >= self._limits[FAILURES_USER]:
            return FAILURES_USER
        return None

    def _refuse(self, reason: str, user: str, address: str) -> None:
        now_us = self._clock.now().mono_us
        self.refused[reason] += 1
        self._addresses.add(address, now_us)
        self._names.add(user[:64], now_us)
