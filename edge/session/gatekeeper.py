"""Who may connect by MQTT (`Gatekeeper`): users in memory, nobody anonymous, failures answered late.

A device's password is a random token of 128 bits and more: one SHA-256 says whether it is right, and guessing it is
hopeless. So a right one is let in at once, whatever failed before it from that address or for that user; only the
answer to a failure waits, longer with each failure of the last minute. A verified TLS client certificate that names a
user is that user; one that names nobody leaves the password to decide, and without a password it is refused.

A password that a person chose is checked by scrypt off the loop (`edge.session.passwords`), and not at all when it came
by `mqtt.plain_lan`: there anybody may have listened (settled G14).
"""

from __future__ import annotations

import hmac
from collections import Counter, OrderedDict
from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

from edge.contract.bus import Admission, Login, Refusal, Verdict
from edge.contract.limit import Limits, declare
from edge.contract.principal import PLAIN_LAN, Kind, Principal
from edge.contract.store import Store
from edge.contract.time import SECOND, Clock
from edge.session.passwords import Passwords
from edge.store import credentials, persons
from edge.store.credentials import Credential
from edge.store.persons import Person

DELAYED = declare(
    "mqtt.delayed_refusals", 256, "connections", "whose refusal is kept back; above, one is told at once", None
)
LONGEST_DELAY_MS = declare(
    "mqtt.refusal_delay_ms", 5_000, "ms", "that a refusal is kept back at most; it begins at 100 and doubles", None
)
PASSWORD_OCTETS = declare("mqtt.password_octets", 1_024, "bytes", "of a password; a longer one is wrong", None)

FIGURES = "$SYS/#"
"""What `--admin` may read besides every topic: the broker's own figures (`#` leaves `$` topics out)."""
FIRST_DELAY_US = SECOND // 10
"""How late the first failure is told; each further one of the same address or user twice as late."""
WINDOW_US = 60 * SECOND
"""How long a failure counts."""
REMEMBERED = 2_048
"""Addresses and users whose failures are remembered at once."""

_NOBODY = b"\0" * 32
"""The digest of no token."""


class _User(NamedTuple):
    """Who may come in: by a token's digest, or as a person."""

    digest: bytes
    admission: Admission | None
    person: Person | None = None


_STRANGER = _User(_NOBODY, None)


class _Failures:
    """Failures of the last minute by key, for a bounded number of keys; the longest silent go first."""

    def __init__(self) -> None:
        self._counts: OrderedDict[str, tuple[int, int]] = OrderedDict()

    def add(self, key: str, now_us: int) -> int:
        """Count one more; how many there are."""
        start, count = self._counts.pop(key, (now_us, 0))
        found = self._counts[key] = (start, count + 1) if now_us - start < WINDOW_US else (now_us, 1)
        if len(self._counts) > REMEMBERED:
            self._counts.popitem(last=False)
        return found[1]

    def lately(self, key: str, now_us: int) -> bool:
        """Whether there is any."""
        return key in self._counts and now_us - self._counts[key][0] < WINDOW_US


class Gatekeeper:
    """`edge.contract.bus.Gatekeeper` over the table of MQTT users. `refused` counts by reason."""

    def __init__(self, store: Store, issuer: str, clock: Clock, limits: Limits) -> None:
        self._store, self._issuer, self._clock, self._limits = store, issuer, clock, limits
        self._users: dict[str, _User] = {}
        self._addresses, self._names = _Failures(), _Failures()
        self._passwords = Passwords(limits, lambda one: self._addresses.lately(one, clock.now().mono_us))
        self._delayed = 0
        self.refused: Counter[str] = Counter()

    async def load(self) -> None:
        """Read every user. Before the engine listens."""
        self.enrol_all(await self._store.read(credentials.all_users))
        for one in await self._store.read(persons.all_users):
            self.enrol_person(one)

    def enrol_all(self, users: Iterable[Credential]) -> None:
        """Let these in from now on."""
        for one in users:
            self.enrol(one)

    def enrol(self, one: Credential) -> None:
        """Let a user in from now on; after the commit of its row."""
        self._users[one.user] = _User(one.digest, _admission(one))

    def enrol_person(self, one: Person) -> None:
        """Let a user in from now on, with this password and no other; after the commit of the row."""
        self._passwords.forget(one.user)
        self._users[one.user] = _User(_NOBODY, _admission(one), one)

    def dismiss(self, user: str) -> None:
        """Let a user in no more. Who is connected is the bus's to expel."""
        self._users.pop(user, None)
        self._passwords.forget(user)

    def user(self, name: str) -> Admission | None:
        """What a user may do."""
        found = self._users.get(name)
        return None if found is None else found.admission

    def admission(self, who: Principal) -> Admission | None:
        """What the publisher of a message may do: a user's filters; everything for the node and its operator."""
        if who.kind in (Kind.NODE, Kind.OPERATOR):
            return Admission(who, "", ("#",), ("#",))
        return self.user(who.device_id)

    def admit(self, login: Login, then: Verdict) -> None:
        """Let in at once, or refuse a little later: anonymous, unknown, wrong, a certificate of nobody here."""
        named = self.user(login.certificate) if login.certificate else None
        if named is not None:
            then(named)
        elif not login.user or not login.password:
            self._refuse("unknown certificate" if login.certificate else "anonymous", login, then)
        elif len(login.password) > self._limits[PASSWORD_OCTETS]:
            self._limits.hit(PASSWORD_OCTETS)
            self._refuse("wrong", login, then)
        else:
            self._by_password(login, login.password, then)

    def _by_password(self, login: Login, password: bytes, then: Verdict) -> None:
        found = self._users.get(login.user, _STRANGER)
        right = hmac.compare_digest(found.digest, credentials.digest(password))
        if found.person is not None:
            self._by_person(login, found, found.person, password, then)
        elif right and found.admission is not None:
            then(found.admission)
        else:
            self._refuse("unknown" if found.admission is None else "wrong", login, then)

    def _by_person(self, login: Login, found: _User, one: Person, password: bytes, then: Verdict) -> None:
        if login.via == PLAIN_LAN:
            self._refuse("person without TLS", login, then, Refusal.NOT_AUTHORIZED)
            return

        def checked(right: bool | None) -> None:
            if right is None:
                self.refused["busy"] += 1
                then(Refusal.BUSY)
            elif right and self._users.get(login.user) is found and found.admission is not None:
                self._passwords.release(login.address)
                then(found.admission)
            else:
                self._refuse("wrong", login, answered)

        def answered(verdict: Admission | Refusal) -> None:
            self._passwords.release(login.address)
            then(verdict)

        self._passwords.check(login.address, one, password, checked)

    def _refuse(self, reason: str, login: Login, then: Verdict, answer: Refusal = Refusal.CREDENTIALS) -> None:
        """Say no, later with each failure of this address or for this user."""
        now_us = self._clock.now().mono_us
        self.refused[reason] += 1
        failures = max(self._addresses.add(login.address, now_us), self._names.add(login.user[:64], now_us))
        if login.certificate and not login.user:
            answer = Refusal.NOT_AUTHORIZED
        if self._delayed >= self._limits[DELAYED]:
            self._limits.hit(DELAYED)
            then(answer)
            return
        delay_us = min(FIRST_DELAY_US << min(failures - 1, 20), self._limits[LONGEST_DELAY_MS] * 1000)
        self._delayed += 1
        self._clock.at(now_us + delay_us, partial(self._tell, answer, then))

    def _tell(self, answer: Refusal, then: Verdict) -> None:
        self._delayed -= 1
        then(answer)


def _admission(one: Credential | Person) -> Admission:
    who = Principal(kind=Kind.DEVICE, aid=one.aid, via="mqtt", device_id=one.user)
    reads = (*one.subscribe, FIGURES) if one.admin else one.subscribe
    return Admission(who, one.user, one.publish, reads)
