from __future__ import annotations

from pathlib import Path

import msgspec

from edge.contract.limit import Limits
from edge.contract.principal import GUEST, NODE, Kind, Principal
from edge.session.gatekeeper import Gatekeeper
from edge.store import credentials
from edge.store.credentials import Credential
from tests.support.clock import FakeClock
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
    admission = gatekeeper().admit("thermo", b"secret", "c1", HOME)
    assert admission is not None
    assert admission.who == Principal(kind=Kind.DEVICE, aid="d-thermo.edge.test", via="mqtt", device_id="thermo")
    assert (admission.user, admission.publish, admission.subscribe) == ("thermo", ("thermo/#",), ("thermo/set",))
    assert not admission.who.scopes


def test_nobody_else_is_let_in_and_the_reason_is_counted() -> None:
    keeper = gatekeeper()
    for user, password in (("", b"secret"), ("thermo", None), ("thermo", b""), ("", None)):
        assert keeper.admit(user, password, "c", HOME) is None
    assert keeper.admit("thermo", b"Secret", "c", HOME) is None
    assert keeper.admit("Thermo", b"secret", "c", HOME) is None
    assert keeper.admit("nobody", b"\0" * 32, "c", HOME) is None
    assert keeper.refused == {"anonymous": 4, "wrong": 1, "unknown": 2}


def test_a_password_of_the_limit_is_checked_and_a_longer_one_is_wrong() -> None:
    limits = Limits({"mqtt.password_octets": 6})
    keeper = gatekeeper(limits=limits)
    assert keeper.admit("thermo", b"secret", "c", HOME) is not None
    assert keeper.admit("thermo", b"secrets", "c", HOME) is None
    assert limits.hits == {"mqtt.password_octets": 1}


def test_an_address_with_too_many_failures_is_not_heard_for_a_minute() -> None:
    clock = FakeClock()
    limits = Limits({"mqtt.failures_per_address": 3, "mqtt.failures_per_user": 100})
    keeper = gatekeeper(clock, limits)
    for _ in range(2):
        keeper.admit("thermo", b"wrong", "c", HOME)
    assert keeper.admit("thermo", b"secret", "c", HOME) is not None
    keeper.admit("thermo", b"wrong", "c", HOME)
    assert keeper.admit("thermo", b"secret", "c", HOME) is None
    assert keeper.admit("thermo", b"secret", "c", ELSEWHERE) is not None
    assert limits.hits == {"mqtt.failures_per_address": 1}
    assert keeper.refused["limited"] == 1
    clock.advance(60_000_000)
    assert keeper.admit("thermo", b"secret", "c", HOME) is not None


def test_a_guessed_user_is_closed_to_who_fails_and_open_to_who_does_not() -> None:
    limits = Limits({"mqtt.failures_per_user": 3})
    keeper = gatekeeper(limits=limits)
    for _ in range(3):
        keeper.admit("thermo", b"wrong", "c", ELSEWHERE)
    assert keeper.admit("thermo", b"secret", "c", ELSEWHERE) is None
    assert limits.hits == {"mqtt.failures_per_user": 1}
    assert keeper.admit("thermo", b"secret", "c", HOME) is not None, "the device itself is not locked out"


def test_failures_are_remembered_for_a_bounded_number_of_addresses() -> None:
    keeper = gatekeeper()
    for number in range(5000):
        keeper.admit(f"user{number}", b"wrong", "c", f"2001:db8::{number:x}")
    assert len(keeper._addresses._counts) == len(keeper._names._counts) == 2048


def test_a_user_that_was_dismissed_is_unknown() -> None:
    keeper = gatekeeper()
    keeper.dismiss("thermo")
    keeper.dismiss("thermo")
    assert keeper.admit("thermo", b"secret", "c", HOME) is None
    assert keeper.user("thermo") is None


def test_the_publisher_of_a_message_has_its_users_filters() -> None:
    keeper = gatekeeper()
    admitted = keeper.admit("thermo", b"secret", "c", HOME)
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
        assert keeper.admit("thermo", b"secret", "c", HOME) is None
        await keeper.load()
        keeper = Gatekeeper(node, "edge.test", FakeClock(), Limits())
        await keeper.load()
        assert keeper.admit("thermo", b"secret", "c", HOME) is not None


def test_an_admin_may_read_the_brokers_figures_and_nobody_else() -> None:
    keeper = gatekeeper()
    keeper.enrol(msgspec.structs.replace(THERMO, user="boss", admin=True, publish=("#",), subscribe=("#",)))
    found = [keeper.user(name) for name in ("boss", "thermo")]
    assert [one is not None and "$SYS/#" in one.subscribe for one in found] == [True, False]
    assert found[0] is not None
    assert found[0].publish == ("#",)
