from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from edge.contract.store import Unit
from edge.contract.time import SECOND, Stamp
from edge.contract.wire import canonical, loads
from edge.store import identity as tables
from edge.store.keyring import Issued
from tests.support.clock import FakeClock
from tests.support.store import database

ALICE, BOBBY = "alice.edge.test", "bobby.edge.test"


def issued(serial: str, aid: str = ALICE, curve: str = "P-256") -> Issued:
    def digest(what: str) -> str:
        return hashlib.sha256(f"{what}{serial}".encode()).hexdigest()

    return Issued(
        serial=serial,
        aid=aid,
        pem=f"pem {serial}",
        cert_sha256=digest("c"),
        spki_sha256=digest("s"),
        curve=curve,
        start=10,
        end=20,
    )


def give(unit: Unit, serial: str, aid: str = ALICE, *, spki: bytes = b"k", **more: str) -> tables.Certificate:
    operation = more.pop("operation", "agent_cert_issue")
    return tables.issue(unit, issued(serial, aid), kind="agent", spki=spki, operation=operation, **more)  # type: ignore[arg-type]


async def test_there_is_one_active_certificate_per_aid_curve_and_purpose(tmp_path: Path) -> None:
    async with database(tmp_path) as store:
        await store.commit(lambda unit: give(unit, "a1"))
        await store.commit(lambda unit: give(unit, "a2", spki=b"k2", operation="agent_cert_rekey"))
        await store.commit(lambda unit: give(unit, "a3", purpose="extra"))
        await store.commit(lambda unit: give(unit, "b1", BOBBY))
        found = await store.read(lambda unit: tables.certificates(unit, ALICE))
        assert [(one.serial, one.state, one.purpose) for one in found] == [
            ("a3", tables.ACTIVE, "extra"),
            ("a2", tables.ACTIVE, "identity"),
            ("a1", tables.VERIFY_ONLY, "identity"),
        ]
        known = await store.read(lambda unit: tables.aid(unit, ALICE))
        assert known is not None
        assert (known.spki, known.state, known.kind) == (b"k2", "active", "agent")
        current = await store.read(lambda unit: tables.current(unit, ALICE))
        assert current is not None
        assert current.serial == "a2"
        with pytest.raises(ValueError, match="no such column"):
            await store.read(lambda unit: tables.certificates(unit, ALICE, pem="x"))


async def test_certificates_are_found_by_serial_and_fingerprints(tmp_path: Path) -> None:
    async with database(tmp_path) as store:
        kept = await store.commit(lambda unit: give(unit, "a1"))
        for print_ in (kept.cert_sha256, kept.cert_sha256[:16], kept.spki_sha256, kept.spki_sha256[:16]):
            found = await store.read(lambda unit, text=print_: tables.by_fingerprint(unit, ALICE, text))  # type: ignore[misc]
            assert found == kept
        assert await store.read(lambda unit: tables.certificate(unit, "a1")) == kept
        assert await store.read(lambda unit: tables.certificate(unit, "ff")) is None
        assert await store.read(lambda unit: tables.by_fingerprint(unit, BOBBY, kept.cert_sha256)) is None
        assert await store.read(lambda unit: tables.current(unit, BOBBY)) is None


@pytest.mark.seed("S0-086")
async def test_every_step_of_a_certificate_has_a_leaf_in_the_same_unit(tmp_path: Path) -> None:
    async with database(tmp_path, clock=FakeClock(wall_at_zero_us=0)) as store:
        await store.commit(lambda unit: give(unit, "a1"))
        await store.commit(lambda unit: give(unit, "a2", operation="agent_cert_renew"))
        await store.commit(lambda unit: give(unit, "a3", spki=b"k2", operation="agent_cert_rekey"))
        await store.commit(lambda unit: tables.revoke(unit, ALICE, "keyCompromise"))

        def half(unit: Unit) -> None:
            give(unit, "b1", BOBBY)
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            await store.commit(half)
        leaves = await store.read(lambda unit: tables.ct_entries(unit, 0, 100))
        entries = [loads(leaf.entry) for leaf in leaves]
        assert [leaf.leaf_index for leaf in leaves] == list(range(6))
        assert [entry["operation"].removeprefix("agent_cert_") for entry in entries] == [
            "issue",
            "renew",
            "rekey",
            "revoke",
            "revoke",
            "revoke",
        ]
        assert entries[1]["details"]["old_serial"] == "a1"
        assert entries[5]["details"]["reason"] == "keyCompromise"
        assert entries[0]["subject"] == {
            "aid": ALICE,
            "serial": "a1",
            "cert_sha256": issued("a1").cert_sha256,
            "issuer": "edge.test",
        }
        previous = bytes(32)
        for leaf, entry in zip(leaves, entries, strict=True):
            assert leaf.entry == canonical(entry)
            assert leaf.entry_hash == hashlib.sha256(b"\x00" + leaf.entry).digest()
            assert bytes.fromhex(entry["previous_hash"]) == leaf.previous_hash == previous
            assert entry["log_id"] == leaf.log_id
            previous = leaf.entry_hash
        assert len({leaf.log_id for leaf in leaves}) == 6
        assert await store.read(tables.ct_size) == 6
        assert await store.read(lambda unit: tables.certificates(unit, BOBBY)) == []
        assert tables.node_hash(b"a", b"b") == hashlib.sha256(b"\x01ab").digest()


async def test_revoking_ends_everything_of_an_aid_and_nothing_of_others(tmp_path: Path) -> None:
    async with database(tmp_path, clock=FakeClock(wall_at_zero_us=0, mono_us=5 * SECOND)) as store:
        await store.commit(lambda unit: (give(unit, "a1"), give(unit, "b1", BOBBY)))
        await store.commit(lambda unit: tables.start_chain(unit, "c1", ALICE, b"t1"))
        await store.commit(lambda unit: tables.start_chain(unit, "c2", BOBBY, b"t2"))
        await store.commit(lambda unit: tables.revoke(unit, ALICE, "superseded"))
        assert await store.commit(lambda unit: tables.revoke(unit, ALICE, "again")) == 0
        assert await store.read(tables.revoked) == [("a1", 5, "superseded")]
        assert await store.read(lambda unit: tables.chain(unit, b"t1")) is None
        assert await store.read(lambda unit: tables.chain(unit, b"t2")) is not None
        assert [await store.read(lambda unit, aid=aid: tables.known(unit, aid)) for aid in (ALICE, BOBBY, "x.y")] == [  # type: ignore[misc]
            False,
            True,
            False,
        ]
        await store.commit(lambda unit: give(unit, "a2", spki=b"new"))
        assert await store.read(lambda unit: tables.known(unit, ALICE))


async def test_an_aid_with_nothing_but_a_token_is_known(tmp_path: Path) -> None:
    async with database(tmp_path) as store:
        token = tables.NodeToken(b"d", "aet_x", "alice", ALICE, "message:read", 0, Stamp(0, 0))
        await store.commit(lambda unit: tables.add_token(unit, token))
        assert await store.read(lambda unit: tables.known(unit, ALICE))
        found = await store.read(lambda unit: tables.node_token(unit, b"d"))
        assert found is not None
        assert (found.aid, found.made.boot) == (ALICE, 1)
        assert await store.read(lambda unit: tables.node_token(unit, b"e")) is None
        assert await store.commit(lambda unit: tables.drop_tokens(unit, ALICE)) == 1
        assert await store.read(tables.node_tokens) == []


async def test_a_chain_knows_its_token_and_the_one_before(tmp_path: Path) -> None:
    async with database(tmp_path) as store:
        await store.commit(lambda unit: tables.start_chain(unit, "c", ALICE, b"1"))
        await store.commit(lambda unit: tables.turn_chain(unit, "c", b"1", b"2", "dev", "slot"))
        for token, there in ((b"1", True), (b"2", True), (b"3", False), (b"", False)):
            found = await store.read(lambda unit, token=token: tables.chain(unit, token))  # type: ignore[misc]
            assert (found is not None) is there
        assert found is None
        found = await store.read(lambda unit: tables.chain(unit, b"2"))
        assert found is not None
        assert (found.device, found.slot, found.count) == ("dev", "slot", 1)
        await store.commit(lambda unit: tables.turn_chain(unit, "c", b"2", b"3", "", ""))
        assert await store.read(lambda unit: tables.chain(unit, b"1")) is None
        await store.commit(lambda unit: tables.drop_chain(unit, "c"))
        assert await store.read(lambda unit: tables.chain(unit, b"3")) is None


async def test_a_fresh_chain_has_no_token_before(tmp_path: Path) -> None:
    async with database(tmp_path) as store:
        await store.commit(lambda unit: tables.start_chain(unit, "c", ALICE, b"1"))
        assert await store.read(lambda unit: tables.chain(unit, b"")) is None
        assert await store.commit(lambda unit: tables.drop_chains(unit, ALICE)) == 1


async def test_reservations_are_kept_renewed_and_released(tmp_path: Path) -> None:
    clock = FakeClock()
    async with database(tmp_path, clock=clock) as store:
        await store.commit(lambda unit: tables.reserve(unit, "alice", 60))
        clock.advance(7)
        await store.commit(lambda unit: tables.reserve(unit, "alice", 30))
        (kept,) = await store.read(tables.reservations)
        assert kept == tables.Reservation("alice", clock.now(), 30)
        assert await store.commit(lambda unit: tables.release(unit, "alice"))
        assert not await store.commit(lambda unit: tables.release(unit, "alice"))
