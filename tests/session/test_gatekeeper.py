from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from edge.contract.bus import Admission, Refusal
from edge.contract.limit import Limits
from edge.contract.principal import GUEST, NODE, PLAIN_LAN, Kind, Principal
from edge.session.gatekeeper import Gatekeeper
from edge.store import credentials, persons
from edge.store.credentials import Credential
from edge.store.persons import Person, slow_digest
from tests.support.clock import FakeClock
from tests.support.login import ask, let_in
from tests.support.patience import until
from tests.support.store import database

THERMO = Credential(
    user="thermo",
    digest=credentials.digest(b"secret"),
    aid="d-thermo.edge.test",
    publish=("thermo/#",),
    subscribe=("thermo/set",),
)
HOME, ELSEWHERE = "192.0.2.1", "192.0.2.2"


class Store:
    """No table is needed where users are let in by hand."""


def gatekeeper(clock: FakeClock | None = None, limits: Limits | None = None) -> Gatekeeper:
    keeper = Gatekeeper(Store(), "edge.test", clock or FakeClock(), limits or Limits())  # type: ignore[arg-type]
    keeper.enrol(THERMO)
    return keeper


def test_the_right_password_gives_the_devices_own_rights() -> None:
    admission = let_in(gatekeeper(), "thermo", b"secret")
    assert admission is not None
    assert admission.who == Principal(kind=Kind.DEVICE, aid="d-thermo.edge.test", via="mqtt", device_id="thermo")
    assert (admission.user, admission.publish, admission.subscribe) == ("thermo", ("thermo/#",), ("thermo/set",))
    assert not admission.who.scopes


def test_nobody_else_is_let_in_and_the_reason_is_counted() -> None:
    clock = FakeClock()
    keeper = gatekeeper(clock)
    wrong = [
        ("", b"secret"),
        ("thermo", None),
        ("thermo", b""),
        ("", None),
        ("thermo", b"Secret"),
        ("Thermo", b"secret"),
    ]
    said = [ask(keeper, user, password) for user, password in [*wrong, ("nobody", b"\0" * 32)]]
    clock.advance(60_000_000)
    assert said == [[Refusal.CREDENTIALS]] * 7
    assert keeper.refused == {"anonymous": 4, "wrong": 1, "unknown": 2}


@pytest.mark.limit("mqtt.password_octets")
def test_a_password_of_the_limit_is_checked_and_a_longer_one_is_wrong() -> None:
    limits = Limits({"mqtt.password_octets": 6})
    keeper = gatekeeper(limits=limits)
    assert let_in(keeper, "thermo", b"secret") is not None
    assert let_in(keeper, "thermo", b"secrets") is None
    assert limits.hits == {"mqtt.password_octets": 1}


def test_a_right_password_is_let_in_at_once_whatever_failed_before_it() -> None:
    """From the same address, for the same user, while hundreds of refusals are kept back."""
    keeper = gatekeeper()
    for number in range(1000):
        ask(keeper, "thermo" if number % 2 else f"user{number}", b"wrong", HOME)
    assert let_in(keeper, "thermo", b"secret", HOME) is not None
    assert let_in(keeper, "thermo", b"secret", ELSEWHERE) is not None


@pytest.mark.limit("mqtt.refusal_delay_ms")
@pytest.mark.parametrize("same", ["address", "user"])
def test_a_refusal_is_told_later_with_each_failure_of_the_minute(same: str) -> None:
    clock = FakeClock()
    keeper = gatekeeper(clock, Limits({"mqtt.refusal_delay_ms": 500}))
    for number, delay_ms in enumerate((100, 200, 400, 500, 500)):
        user, address = ("thermo", f"192.0.2.{number}") if same == "user" else (f"user{number}", HOME)
        said = ask(keeper, user, b"wrong", address)
        clock.advance(delay_ms * 1000 - 1)
        assert said == []
        clock.advance(1)
        assert said == [Refusal.CREDENTIALS]
    clock.advance(60_000_000)
    said = ask(keeper, "thermo", b"wrong", HOME)
    clock.advance(100_000)
    assert said == [Refusal.CREDENTIALS], "after a minute the count starts anew"


@pytest.mark.limit("mqtt.delayed_refusals")
def test_refusals_that_are_kept_back_are_bounded() -> None:
    clock, limits = FakeClock(), Limits({"mqtt.delayed_refusals": 2})
    keeper = gatekeeper(clock, limits)
    assert [len(ask(keeper, "thermo", b"wrong")) for _ in range(3)] == [0, 0, 1]
    assert limits.hits == {"mqtt.delayed_refusals": 1}
    clock.advance(60_000_000)
    assert ask(keeper, "thermo", b"wrong") == []


def test_failures_are_remembered_for_a_bounded_number_of_addresses() -> None:
    keeper = gatekeeper()
    for number in range(5000):
        ask(keeper, f"user{number}", b"wrong", f"2001:db8::{number:x}")
    assert len(keeper._addresses._counts) == len(keeper._names._counts) == 2048


def test_a_verified_certificate_that_names_a_user_is_that_user() -> None:
    keeper = gatekeeper()
    for user, password in (("", None), ("thermo", b"wrong"), ("somebody", b"else")):
        admission = let_in(keeper, user, password, certificate="thermo")
        assert admission is not None
        assert admission.user == "thermo"


def test_a_certificate_that_names_nobody_leaves_the_password_to_decide() -> None:
    clock = FakeClock()
    keeper = gatekeeper(clock)
    assert let_in(keeper, "thermo", b"secret", certificate="stranger") is not None
    said = [ask(keeper, "", None, certificate="stranger"), ask(keeper, "thermo", b"wrong", certificate="stranger")]
    clock.advance(10_000_000)
    assert said == [[Refusal.NOT_AUTHORIZED], [Refusal.CREDENTIALS]]
    assert keeper.refused == {"unknown certificate": 1, "wrong": 1}
    keeper.dismiss("thermo")
    assert let_in(keeper, "", None, certificate="thermo") is None


def test_a_user_that_was_dismissed_is_unknown() -> None:
    keeper = gatekeeper()
    keeper.dismiss("thermo")
    keeper.dismiss("thermo")
    assert let_in(keeper, "thermo", b"secret") is None
    assert keeper.user("thermo") is None


def test_the_publisher_of_a_message_has_its_users_filters() -> None:
    keeper = gatekeeper()
    admitted = let_in(keeper, "thermo", b"secret")
    assert admitted is not None
    assert keeper.admission(admitted.who) == admitted
    operator = Principal(kind=Kind.OPERATOR, aid="", via="control")
    for who in (NODE, operator):
        rights = keeper.admission(who)
        assert rights is not None
        assert (rights.publish, rights.subscribe) == (("#",), ("#",))
    assert keeper.admission(GUEST) is None


async def test_users_are_loaded_at_the_start(tmp_path: Path) -> None:
    async with database(tmp_path) as node:
        assert await node.commit(lambda unit: credentials.add(unit, THERMO))
        keeper = Gatekeeper(node, "edge.test", FakeClock(), Limits())
        assert let_in(keeper, "thermo", b"secret") is None
        await keeper.load()
        keeper = Gatekeeper(node, "edge.test", FakeClock(), Limits())
        await keeper.load()
        assert let_in(keeper, "thermo", b"secret") is not None


def test_an_admin_may_read_the_brokers_figures_and_nobody_else() -> None:
    keeper = gatekeeper()
    keeper.enrol(msgspec.structs.replace(THERMO, user="boss", admin=True, publish=("#",), subscribe=("#",)))
    found = [keeper.user(name) for name in ("boss", "thermo")]
    assert [one is not None and "$SYS/#" in one.subscribe for one in found] == [True, False]
    assert found[0] is not None
    assert found[0].publish == ("#",)


# People.

BOB = Person(
    user="bob", digest=slow_digest(b"correct horse", b"salt", 4), salt=b"salt", cost=4, publish=("b/#",), subscribe=()
)


async def test_a_persons_password_is_checked_and_a_wrong_one_does_not_lock_the_right_one_out() -> None:
    clock = FakeClock()
    keeper = gatekeeper(clock)
    keeper.enrol_person(BOB)
    right = ask(keeper, "bob", b"correct horse")
    await until(lambda: right)
    assert isinstance(right[0], Admission)
    assert right[0].publish == ("b/#",)
    wrong = [ask(keeper, "bob", b"wrong") for _ in range(4)]
    busy = ask(keeper, "bob", b"wrong")
    assert busy == [Refusal.BUSY]
    assert let_in(keeper, "bob", b"correct horse") is not None, "known again, without a check"
    await until(lambda: keeper.refused["wrong"] == 4)
    assert wrong == [[]] * 4
    clock.advance(10_000_000)
    assert wrong == [[Refusal.CREDENTIALS]] * 4
    assert keeper.refused == {"wrong": 4, "busy": 1}


async def test_addresses_that_failed_within_a_minute_do_not_keep_a_person_out_who_comes_for_the_first_time() -> None:
    """They fill every place again and again; hers is not among those that wait for nothing."""
    clock = FakeClock()
    keeper = gatekeeper(clock, Limits({"mqtt.password_checks": 2}))
    keeper.enrol_person(BOB)
    guessing = [f"192.0.2.{number}" for number in range(10, 13)]
    for address in guessing:
        ask(keeper, "bob", b"wrong", address=address)
    await until(lambda: keeper.refused["wrong"] == 3)
    clock.advance(10_000_000)
    for address in guessing:
        ask(keeper, "bob", b"wrong", address=address)
    bob = ask(keeper, "bob", b"correct horse", address=HOME)
    await until(lambda: bob)
    assert isinstance(bob[0], Admission)
    assert keeper.refused["busy"] == 1
    await until(lambda: keeper.refused["wrong"] == 5)


async def test_a_person_never_comes_in_without_tls_from_the_network() -> None:
    """Settled G14: not even with the right password; it is not looked at."""
    clock = FakeClock()
    keeper = gatekeeper(clock)
    keeper.enrol_person(BOB)
    said = ask(keeper, "bob", b"correct horse", via=PLAIN_LAN)
    clock.advance(10_000_000)
    assert said == [Refusal.NOT_AUTHORIZED]
    assert keeper.refused == {"person without TLS": 1}
    assert let_in(keeper, "thermo", b"secret", via=PLAIN_LAN) is not None, "a device does"


async def test_who_goes_while_the_password_is_checked_is_not_let_in() -> None:
    clock = FakeClock()
    keeper = gatekeeper(clock)
    keeper.enrol_person(BOB)
    said = ask(keeper, "bob", b"correct horse")
    keeper.dismiss("bob")
    await until(lambda: keeper.refused["wrong"])
    clock.advance(10_000_000)
    assert said == [Refusal.CREDENTIALS]


async def test_people_are_loaded_at_the_start(tmp_path: Path) -> None:
    async with database(tmp_path) as node:
        await node.commit(lambda unit: persons.add(unit, msgspec.structs.replace(BOB, admin=True)))
        keeper = Gatekeeper(node, "edge.test", FakeClock(), Limits())
        await keeper.load()
        rights = keeper.user("bob")
        assert rights is not None
        assert rights.subscribe == ("$SYS/#",)
