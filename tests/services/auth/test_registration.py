from __future__ import annotations

import base64
from pathlib import Path

import pytest

from edge.contract.errors import InvalidParams, NameTaken, NotPermitted, RegistrationClosed
from edge.contract.time import SECOND
from edge.protocol import keys, pki
from edge.store import identity as tables
from tests.support.clock import FakeClock
from tests.support.identity import ISSUER, OWNER, Agent, Desk, desk, new_key

MINUTE = 60 * SECOND


def create(aid: str, key: str = "alice") -> dict[str, str]:
    return {"aid": aid, "public_key": Agent(aid, new_key(key)).public, "curve": "P-256"}


async def reserve(made: Desk, name: str = "alice") -> None:
    await made.result("agent.add", {"name": name}, OWNER, surface="edge")


@pytest.mark.seed("S0-166")
async def test_a_reserved_name_gets_a_certificate_for_the_very_key_sent(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        alice = await made.register("alice")
        (certificate,) = pki.parse(alice.cert)
        assert keys.spki_of(certificate.public_key()) == alice.spki  # type: ignore[arg-type]
        certificate.verify_directly_issued_by(pki.parse(made.identity.issuer_pem)[0])
        assert (await made.result("ca.get_cert", {"aid": alice.aid})).cert == alice.cert


async def test_the_same_key_gets_the_same_certificate_again(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        alice = await made.register("alice")
        again = await made.result("auth.create_aid", create(alice.aid))
        assert again.cert == alice.cert
        assert await made.store.read(tables.ct_size) == 2  # the auth service's own, and one


async def test_a_taken_name_says_that_it_already_exists(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        alice = await made.register("alice")
        with pytest.raises(NameTaken, match="already exists"):
            await made.ask("auth.create_aid", create(alice.aid, "mallory"))


async def test_an_unreserved_name_is_told_what_the_owner_must_do(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        await reserve(made)
        with pytest.raises(RegistrationClosed) as caught:
            await made.ask("auth.create_aid", create(f"bobby.{ISSUER}"))
        assert caught.value.message == "registration is closed: aun-edge agent add bobby"
        assert isinstance(caught.value, NotPermitted)
        assert await made.store.read(lambda unit: tables.aid(unit, f"bobby.{ISSUER}")) is None


async def test_the_first_key_wins_the_name_and_closes_it(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        await reserve(made)
        await made.ask("auth.create_aid", create(f"alice.{ISSUER}"))
        assert await made.store.read(lambda unit: tables.reservation(unit, "alice")) is None
        with pytest.raises(NameTaken):
            await made.ask("auth.create_aid", create(f"alice.{ISSUER}", "mallory"))


async def test_a_reservation_is_over_after_an_hour(tmp_path: Path) -> None:
    clock = FakeClock()
    async with desk(tmp_path, clock) as made:
        await reserve(made)
        await reserve(made, "carol")
        clock.advance(60 * MINUTE)
        await made.ask("auth.create_aid", create(f"alice.{ISSUER}"))
        clock.advance(1)
        with pytest.raises(RegistrationClosed):
            await made.ask("auth.create_aid", create(f"carol.{ISSUER}"))


async def test_a_reservation_survives_a_restart_and_learning_the_time(tmp_path: Path) -> None:
    clock = FakeClock(wall_at_zero_us=0)
    clock.uncertainty_us = 10**15
    async with desk(tmp_path, clock) as made:
        await reserve(made)
    clock.wall_at_zero_us, clock.uncertainty_us = FakeClock().wall_at_zero_us, 0
    clock.advance(30 * MINUTE)
    async with desk(tmp_path, clock) as made:
        await made.ask("auth.create_aid", create(f"alice.{ISSUER}"))


async def test_a_window_lets_any_free_name_in_and_closes_itself(tmp_path: Path) -> None:
    clock = FakeClock()
    async with desk(tmp_path, clock) as made:
        await made.ask("agent.window", {"minutes": 5}, OWNER, surface="edge")
        await made.ask("auth.create_aid", create(f"alice.{ISSUER}"))
        clock.advance(5 * MINUTE)
        with pytest.raises(RegistrationClosed):
            await made.ask("auth.create_aid", create(f"bobby.{ISSUER}"))
        await made.ask("agent.window", {"minutes": 5}, OWNER, surface="edge")
        await made.ask("agent.window", {"minutes": 0}, OWNER, surface="edge")
        with pytest.raises(RegistrationClosed):
            await made.ask("auth.create_aid", create(f"bobby.{ISSUER}"))
        with pytest.raises(InvalidParams):
            await made.ask("agent.window", {"minutes": 61}, OWNER, surface="edge")


async def test_open_registration_is_a_setting(tmp_path: Path) -> None:
    async with desk(tmp_path, registration="open") as made:
        await made.ask("auth.create_aid", create(f"anyone.{ISSUER}"))


@pytest.mark.parametrize(
    "changed",
    [
        {"aid": "alice"},
        {"aid": "alice.foreign.org"},
        {"aid": f"abc.{ISSUER}"},
        {"aid": f"guest1.{ISSUER}"},
        {"aid": f"auth.{ISSUER}"},
        {"aid": f"d-thermo.{ISSUER}"},
        {"aid": "alice.-x"},
        {"curve": "P-384"},
        {"public_key": "!!"},
        {"public_key": base64.b64encode(keys.spki_of(keys.generate("P-384").public_key())).decode()},
        {"public_key": 7},
    ],
)
async def test_a_bad_request_is_refused_and_changes_nothing(tmp_path: Path, changed: dict[str, object]) -> None:
    async with desk(tmp_path, registration="open") as made:
        with pytest.raises(InvalidParams):
            await made.ask("auth.create_aid", {**create(f"alice.{ISSUER}"), **changed})
        assert await made.store.read(tables.ct_size) == 1
        assert await made.store.read(lambda unit: tables.aids(unit, "agent")) == []


async def test_a_name_is_registered_in_lower_case(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        await reserve(made)
        assert (await made.result("auth.create_aid", create(f"Alice.{ISSUER.upper()}"))).aid == f"alice.{ISSUER}"


async def test_a_longest_name_is_registered(tmp_path: Path) -> None:
    async with desk(tmp_path, registration="open") as made:
        aid = f"{'x' * 64}.{ISSUER}"
        assert (await made.result("auth.create_aid", create(aid))).aid == aid


async def test_certificates_and_their_ct_entries_are_one_unit(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        alice = await made.register("alice")
        entries = await made.store.read(lambda unit: tables.ct_entries(unit, 0, 10))
        assert [entry.leaf_index for entry in entries] == [0, 1]
        assert entries[1].previous_hash == entries[0].entry_hash == tables.leaf_hash(entries[0].entry)
        assert (
            f'"operation":"agent_cert_issue","previous_hash":"{entries[0].entry_hash.hex()}"'
            in entries[1].entry.decode()
        )
        assert alice.aid in entries[1].entry.decode()
