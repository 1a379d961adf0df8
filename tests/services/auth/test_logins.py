from __future__ import annotations

import pytest

from edge.contract.errors import NonceInvalid, RateLimited
from edge.contract.limit import Limits
from edge.contract.time import SECOND
from edge.services.auth.logins import Attempts, Logins
from edge.store.keyring import Issued
from tests.support.clock import FakeClock


def shown(serial: str) -> Issued:
    """A certificate with this serial."""
    return Issued(serial=serial, aid="", pem="", cert_sha256="", spki_sha256="", curve="P-256", start=0, end=0)


@pytest.mark.limit("auth.pending_logins")
def test_logins_under_way_are_limited_and_old_ones_make_room() -> None:
    clock, limits = FakeClock(), Limits({"auth.pending_logins": 2})
    logins = Logins(clock, limits)
    logins.begin("a.x", shown("1"), b"")
    clock.advance(30 * SECOND)
    second = logins.begin("b.x", shown("2"), b"")
    with pytest.raises(RateLimited):
        logins.begin("c.x", shown("3"), b"")
    clock.advance(30 * SECOND)
    logins.begin("c.x", shown("3"), b"")
    assert len(logins) == 2
    assert limits.hits == {"auth.pending_logins": 1}
    assert logins.take("b.x", *second).shown.serial == "2"


def test_a_wrong_nonce_or_name_uses_the_login_up() -> None:
    logins = Logins(FakeClock(), Limits())
    for aid, nonce in (("a.x", "wrong"), ("b.x", "")):
        request_id, good = logins.begin("a.x", shown("1"), b"")
        with pytest.raises(NonceInvalid):
            logins.take(aid, request_id, nonce or good)
        with pytest.raises(NonceInvalid):
            logins.take("a.x", request_id, good)
    assert len(logins) == 0


@pytest.mark.limit("auth.attempts_per_minute")
def test_calls_of_an_address_refill_over_a_minute() -> None:
    clock, limits = FakeClock(), Limits({"auth.attempts_per_minute": 3})
    attempts = Attempts(clock, limits)
    for _ in range(3):
        attempts.ask("192.0.2.1")
    with pytest.raises(RateLimited):
        attempts.ask("192.0.2.1")
    attempts.ask("192.0.2.2")
    clock.advance(20 * SECOND)
    attempts.ask("192.0.2.1")
    with pytest.raises(RateLimited):
        attempts.ask("192.0.2.1")
    assert limits.hits == {"auth.attempts_per_minute": 2}


@pytest.mark.limit("auth.failures_per_minute")
def test_an_address_that_fails_too_often_waits() -> None:
    clock, limits = FakeClock(), Limits({"auth.failures_per_minute": 2})
    attempts = Attempts(clock, limits)
    attempts.failed("192.0.2.1")
    attempts.ask("192.0.2.1")
    attempts.failed("192.0.2.1")
    with pytest.raises(RateLimited):
        attempts.ask("192.0.2.1")
    clock.advance(30 * SECOND)
    attempts.ask("192.0.2.1")
    assert limits.hits == {"auth.failures_per_minute": 1}


@pytest.mark.limit("auth.tracked_addresses")
def test_only_so_many_addresses_are_counted() -> None:
    limits = Limits({"auth.tracked_addresses": 2, "auth.attempts_per_minute": 1})
    attempts = Attempts(FakeClock(), limits)
    for last in (1, 2, 3):
        attempts.ask(f"192.0.2.{last}")
    attempts.ask("192.0.2.1")
    with pytest.raises(RateLimited):
        attempts.ask("192.0.2.3")
    assert limits.hits["auth.tracked_addresses"] == 2
