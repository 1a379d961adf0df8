"""People's passwords: one check at a time, addresses take turns, what is in hand is bounded."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from edge.contract.limit import Limits
from edge.session.passwords import Passwords
from edge.store.persons import Person, slow_digest

BOB = Person(user="bob", digest=slow_digest(b"right", b"salt", 4), salt=b"salt", cost=4)
HOME, ELSEWHERE = "192.0.2.1", "192.0.2.2"


async def settled(passwords: Passwords) -> None:
    async with asyncio.timeout(20):
        while passwords._busy or passwords._waiting:
            await asyncio.sleep(0.001)


async def test_a_password_is_right_or_wrong() -> None:
    passwords = Passwords(Limits())
    said: list[bool | None] = []
    for password in (b"right", b"wrong", b""):
        passwords.check(HOME, BOB, password, said.append)
    assert said == [], "nothing is checked in the loop"
    await settled(passwords)
    assert said == [True, False, False]


async def test_who_was_in_is_known_again_at_once_until_the_password_changes() -> None:
    passwords = Passwords(Limits({"mqtt.password_checks_per_address": 1}))
    said: list[bool | None] = []
    passwords.check(HOME, BOB, b"right", said.append)
    await settled(passwords)
    passwords.check(HOME, BOB, b"right", said.append)
    assert said == [True, True], "though the address has its share in hand"
    changed = msgspec.structs.replace(BOB, digest=slow_digest(b"other", b"salt", 4))
    passwords.release(HOME)
    passwords.release(HOME)
    passwords.check(HOME, changed, b"right", said.append)
    await settled(passwords)
    passwords.forget("bob")
    passwords.check(ELSEWHERE, BOB, b"right", said.append)
    assert said == [True, True, False]
    await settled(passwords)
    assert said == [True, True, False, True]


@pytest.mark.limit("mqtt.password_checks_per_address")
async def test_an_address_has_a_share_until_its_answers_are_told() -> None:
    limits = Limits({"mqtt.password_checks_per_address": 3})
    passwords = Passwords(limits)
    said: list[bool | None] = []
    for _ in range(4):
        passwords.check(HOME, BOB, b"wrong", said.append)
    assert said == [None]
    assert limits.hits == {"mqtt.password_checks_per_address": 1}
    passwords.check(ELSEWHERE, BOB, b"right", said.append)
    await settled(passwords)
    assert said == [None, False, False, True, False], "addresses take turns"
    passwords.check(HOME, BOB, b"wrong", said.append)
    passwords.release(HOME)
    passwords.check(HOME, BOB, b"wrong", said.append)
    await settled(passwords)
    assert said[5:] == [None, False]


@pytest.mark.limit("mqtt.password_checks")
async def test_all_addresses_together_have_a_bound() -> None:
    limits = Limits({"mqtt.password_checks": 2})
    passwords = Passwords(limits)
    said: list[bool | None] = []
    for number in range(4):
        passwords.check(f"192.0.2.{number}", BOB, b"wrong", said.append)
    assert said == [None], "one is being looked at, two wait"
    assert limits.hits == {"mqtt.password_checks": 1}
    await settled(passwords)


async def test_who_has_nothing_in_hand_takes_the_place_of_who_has_several() -> None:
    """A few addresses that guess all the time do not keep everybody else out."""
    passwords = Passwords(Limits({"mqtt.password_checks": 4}))
    said: dict[str, list[bool | None]] = {HOME: [], "192.0.2.7": [], "192.0.2.8": []}
    for address in ("192.0.2.7", "192.0.2.8"):
        for _ in range(4):
            passwords.check(address, BOB, b"wrong", said[address].append)
    assert said == {HOME: [], "192.0.2.7": [], "192.0.2.8": [None, None, None]}
    passwords.check(HOME, BOB, b"right", said[HOME].append)
    assert said["192.0.2.7"] == [None]
    await settled(passwords)
    assert said == {HOME: [True], "192.0.2.7": [None, False, False, False], "192.0.2.8": [None, None, None, False]}


async def test_who_has_not_failed_lately_takes_the_place_of_who_has() -> None:
    """As many addresses as may wait, each with one guess in hand again and again, do not keep a newcomer out."""
    failed = {f"192.0.2.{number}" for number in range(4)}
    passwords = Passwords(Limits({"mqtt.password_checks": 3}), failed.__contains__)
    said: dict[str, list[bool | None]] = {one: [] for one in sorted(failed)}
    for address, mine in said.items():
        passwords.check(address, BOB, b"wrong", mine.append)
    newcomer: list[bool | None] = []
    passwords.check("192.0.2.77", BOB, b"right", newcomer.append)
    late: list[bool | None] = []
    failed.add("192.0.2.78")
    passwords.check("192.0.2.78", BOB, b"right", late.append)
    assert late == [None], "who failed too is no better than those who wait"
    await settled(passwords)
    assert newcomer == [True]
    assert sorted(said.values(), key=str) == [[False], [False], [False], [None]]
    assert not passwords._waiting


async def test_nobody_gives_way_where_nobody_has_failed() -> None:
    passwords = Passwords(Limits({"mqtt.password_checks": 2}), lambda address: False)
    said: list[bool | None] = []
    for number in range(4):
        passwords.check(f"192.0.2.{number}", BOB, b"right", said.append)
    assert said == [None]
    await settled(passwords)
    assert said == [None, True, True, True]


async def test_late_refusals_take_no_place_of_those_who_wait() -> None:
    passwords = Passwords(Limits({"mqtt.password_checks": 2}))
    said: list[bool | None] = []
    for number in (1, 2, 3):
        passwords.check(f"192.0.2.{number}", BOB, b"wrong", said.append)
    await settled(passwords)
    passwords.check("192.0.2.9", BOB, b"right", said.append)
    await settled(passwords)
    assert said == [False, False, False, True], "none of the first three was released"


async def test_a_check_that_fails_is_no_yes_and_the_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    passwords = Passwords(Limits())
    said: list[bool | None] = []
    passwords.check(HOME, msgspec.structs.replace(BOB, cost=60), b"right", said.append)
    passwords.check(HOME, BOB, b"right", said.append)
    await settled(passwords)
    assert said == [False, True]
    assert "the password of the MQTT user bob cannot be checked" in caplog.text
