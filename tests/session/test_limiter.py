from __future__ import annotations

import pytest

from edge.contract.errors import RateLimited
from edge.contract.limit import Limits
from edge.contract.principal import AGENT_SCOPES, GUEST, Kind, Principal
from edge.contract.time import SECOND
from edge.session import limiter as module
from edge.session.limiter import Limiter, network
from tests.support.clock import FakeClock

ALICE = Principal(kind=Kind.AGENT, aid="alice.edge.test", scopes=AGENT_SCOPES)
BOB = Principal(kind=Kind.AGENT, aid="bobb.edge.test", scopes=AGENT_SCOPES)
OWNER = Principal(kind=Kind.OPERATOR, aid="", scopes=frozenset({"*"}))


def made(**limits: int) -> tuple[Limiter, FakeClock, Limits]:
    clock, found = FakeClock(), Limits({name.replace("_", "."): value for name, value in limits.items()})
    return Limiter(clock, found), clock, found


def passes(limiter: Limiter, who: Principal, address: str = "192.0.2.1", klass: str = "") -> bool:
    try:
        with limiter.enter(who, address, klass):
            return True
    except RateLimited:
        return False


@pytest.mark.limit("rate.principal")
def test_a_caller_has_a_rate_with_a_burst_and_gets_it_back_with_time() -> None:
    limiter, clock, limits = made(rate_principal=2)
    assert [passes(limiter, ALICE) for _ in range(5)] == [True] * 4 + [False]
    assert passes(limiter, BOB)
    clock.advance(SECOND // 2)
    assert [passes(limiter, ALICE) for _ in range(2)] == [True, False]
    clock.advance(100 * SECOND)
    assert [passes(limiter, ALICE) for _ in range(5)] == [True] * 4 + [False]
    assert limits.hits == {"rate.principal": 3}


def test_what_a_caller_is_refused_for_is_not_the_neighbours_loss() -> None:
    limiter, _, limits = made(rate_principal=1, rate_address=4)
    assert [passes(limiter, ALICE) for _ in range(50)].count(True) == 2
    assert passes(limiter, BOB)
    assert limits.hits == {"rate.principal": 48}


def test_a_refusal_says_when_a_retry_passes() -> None:
    limiter, clock, _ = made(rate_principal=2)
    while passes(limiter, ALICE):
        pass
    with pytest.raises(RateLimited) as refused, limiter.enter(ALICE, ""):
        pass
    clock.advance(int(str(refused.value.data["retry_after_ms"])) * 1000)
    assert passes(limiter, ALICE)


@pytest.mark.limit("rate.write", "rate.act", "rate.auth")
@pytest.mark.parametrize("klass", ["write", "act"])
def test_a_method_class_has_a_rate_of_its_own(klass: str) -> None:
    limiter, _, limits = made(**{f"rate_{klass}": 1})
    assert [passes(limiter, ALICE, klass=klass) for _ in range(3)] == [True, True, False]
    assert passes(limiter, ALICE, klass="read")
    assert passes(limiter, BOB, klass=klass)
    assert limits.hits == {f"rate.{klass}": 1}


@pytest.mark.limit("rate.auth", "rate.address")
def test_logins_count_by_address_whoever_it_is() -> None:
    limiter, _, _ = made(rate_auth=1)
    assert [passes(limiter, GUEST, klass="auth") for _ in range(3)] == [True, True, False]
    assert not passes(limiter, ALICE, klass="auth")
    assert passes(limiter, GUEST, "192.0.2.2", "auth")
    with pytest.raises(RateLimited):
        limiter.failed("192.0.2.1")


@pytest.mark.limit("rate.concurrent")
def test_a_caller_runs_a_bounded_number_of_requests_over_all_doors() -> None:
    limiter, _, _ = made(rate_concurrent=2)
    one, two = limiter.begin(ALICE, "a"), limiter.begin(ALICE, "b")
    with pytest.raises(RateLimited):
        limiter.begin(ALICE, "c")
    assert passes(limiter, BOB)
    one.release()
    one.release()
    three = limiter.begin(ALICE, "c")
    with pytest.raises(RateLimited):
        limiter.begin(ALICE, "c")
    two.release()
    three.release()
    assert limiter._running == {}


def test_the_owner_is_never_limited() -> None:
    limiter, _, limits = made(rate_principal=0, rate_address=0, rate_write=0, rate_concurrent=0)
    assert all(passes(limiter, OWNER, klass="write") for _ in range(100))
    assert limits.hits == {}


def test_a_rate_of_zero_refuses_everything() -> None:
    limiter, _, _ = made(rate_write=0)
    assert not passes(limiter, ALICE, klass="write")
    assert passes(limiter, ALICE)


@pytest.mark.parametrize(
    ("address", "same"),
    [
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
    ],
)
def test_what_one_household_can_have_many_of_counts_as_one_address(address: str, same: str) -> None:
    assert network(address) == network(same)


def test_different_addresses_stay_different() -> None:
    names = ["192.0.2.1", "192.0.2.2", "2001:db8:1:2::1", "2001:db8:1:3::1", "::1", "not an address", ""]
    assert len({network(name) for name in names}) == len(names)


def test_it_remembers_a_bounded_number_of_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TABLE", 10)
    limiter, _, _ = made()
    for number in range(100):
        assert passes(limiter, GUEST, f"192.0.2.{number}")
    assert len(limiter._buckets) == 10
