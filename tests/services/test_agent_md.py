from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from edge.contract.errors import (
    InvalidParams,
    NotAuthenticated,
    NotFound,
    NotPermitted,
    PreconditionFailed,
    PreconditionRequired,
    TooLarge,
)
from edge.contract.limit import Limits
from edge.contract.principal import AGENT_SCOPES, Kind, Principal
from edge.contract.time import SECOND
from edge.protocol import agent_md as documents
from edge.protocol import keys
from edge.store import identity as tables
from tests.support.clock import EPOCH_US, FakeClock
from tests.support.identity import ISSUER, OWNER, THERMO, Agent, Desk, desk, new_key

NOW_S = EPOCH_US // SECOND


def text(aid: str, name: str = "Alice") -> bytes:
    return f'---\naid: "{aid}"\nname: "{name}"\ntype: "human"\nversion: "1.0.0"\n---\n\n# {name}\n'.encode()


def signed(agent: Agent, name: str = "Alice", at_s: int = NOW_S, cert: str = "") -> bytes:
    print_ = keys.sha256(keys.der_of(cert or agent.cert))
    return documents.sign(text(agent.aid, name), agent.key, print_, keys.sha256(agent.spki), at_s)


def who(agent: Agent) -> Principal:
    return Principal(Kind.AGENT, agent.aid, AGENT_SCOPES, via="token")


async def put(made: Desk, agent: Agent, body: bytes, **condition: str) -> Any:
    params = {"aid": agent.aid, "content": body.decode(), **condition}
    return await made.result("agent_md.put", params, who(agent), surface="http")


async def get(made: Desk, aid: str, **more: Any) -> Any:
    return await made.result("agent_md.get", {"aid": aid, **more}, surface="http")


async def test_a_signed_card_is_kept_byte_for_byte(tmp_path: Path) -> None:
    clock = FakeClock()
    async with desk(tmp_path, clock) as made:
        alice = await made.register("alice")
        body = signed(alice)
        stored = await put(made, alice, body, if_none_match="*")
        assert (stored.aid, stored.etag) == (alice.aid, f'"{keys.sha256(body)}"')
        assert stored.last_modified.startswith("2025-06-15T")
    async with desk(tmp_path, clock) as made:
        found = await get(made, alice.aid)
        assert (found.content.encode(), found.etag, found.signed) == (body, stored.etag, True)


async def test_a_card_is_replaced_only_by_who_saw_the_last_one(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        alice = await made.register("alice")
        first, second = signed(alice), signed(alice, "Second")
        with pytest.raises(PreconditionFailed):
            await put(made, alice, first, if_match='"x"')
        tag = (await put(made, alice, first, if_none_match="*")).etag
        for condition in ({"if_none_match": "*"}, {"if_match": '"other"'}):
            with pytest.raises(PreconditionFailed) as caught:
                await put(made, alice, second, **condition)
            assert caught.value.data == {"etag": tag}
        with pytest.raises(PreconditionRequired):
            await put(made, alice, second)
        with pytest.raises(InvalidParams):
            await put(made, alice, second, if_none_match='"x"')
        assert (await get(made, alice.aid)).content.encode() == first
        await put(made, alice, second, if_match=f'"x", {tag}')
        await put(made, alice, first, if_match="*")
        assert (await get(made, alice.aid)).content.encode() == first


async def test_only_the_aid_itself_may_publish(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        alice, bobby = await made.register("alice"), await made.register("bobby")
        params = {"aid": alice.aid, "content": signed(alice).decode(), "if_none_match": "*"}
        with pytest.raises(NotPermitted):
            await made.ask("agent_md.put", params, who(bobby), surface="http")
        with pytest.raises(NotAuthenticated):
            await made.ask("agent_md.put", params, surface="http")
        for aid in ("bob.aid.pub", f"auth.{ISSUER}"):
            other = Agent(aid, alice.key)
            with pytest.raises(NotPermitted):
                await put(made, other, text(aid), if_none_match="*")
        with pytest.raises(InvalidParams, match="is about"):
            await put(made, alice, signed(bobby), if_none_match="*")
        with pytest.raises(NotFound):
            await get(made, alice.aid)


async def test_a_signature_must_be_the_publishers_own_and_good(tmp_path: Path) -> None:
    clock = FakeClock()
    async with desk(tmp_path, clock) as made:
        alice, bobby = await made.register("alice"), await made.register("bobby")
        spki = keys.sha256(alice.spki)
        cert = keys.sha256(keys.der_of(alice.cert))
        far = made.identity.auth.end * 2
        bad = [
            signed(alice).replace(b"# Alice", b"# Alicf"),
            documents.sign(text(alice.aid), bobby.key, cert, spki, NOW_S),
            documents.sign(text(alice.aid), alice.key, "0" * 64, spki, NOW_S),
            documents.sign(text(alice.aid), alice.key, spki, spki, NOW_S),
            documents.sign(text(alice.aid), alice.key, cert, "0" * 64, NOW_S),
            documents.sign(text(alice.aid), alice.key, keys.sha256(keys.der_of(bobby.cert)), spki, NOW_S),
            signed(alice, at_s=NOW_S - 4000),
            signed(alice, at_s=NOW_S + 3000),
            signed(alice, at_s=far),
        ]
        for body in bad:
            with pytest.raises(InvalidParams, match="signature"):
                await put(made, alice, body, if_none_match="*")
        named = signed(alice).replace(b"timestamp:", f"signer_aid: {bobby.aid}\ntimestamp:".encode())
        with pytest.raises(InvalidParams, match="first be signed by its own AID"):
            await put(made, alice, named, if_none_match="*")
        clock.uncertainty_us = 10**15
        await put(made, alice, signed(alice, at_s=NOW_S + 3000), if_none_match="*")


async def test_a_replaced_key_no_longer_signs_but_a_renewed_certificate_does(tmp_path: Path) -> None:
    clock = FakeClock()
    async with desk(tmp_path, clock) as made:
        alice = await made.register("alice")
        first = await made.first(alice)
        asked = {"aid": alice.aid, "request_id": first.request_id, "nonce": first.nonce}
        old = alice.cert
        alice.cert = (await made.result("auth.renew_cert", {**asked, "signature": alice.sign(first.nonce)})).cert
        await put(made, alice, signed(alice, cert=old), if_none_match="*")
        first = await made.first(alice)
        fresh = Agent(alice.aid, new_key("fresh"))
        asked = {"aid": alice.aid, "request_id": first.request_id, "nonce": first.nonce}
        proof = {"new_public_key": fresh.public, "signature": alice.sign(first.nonce + fresh.public)}
        fresh.cert = (await made.result("auth.rekey", {**asked, **proof})).cert
        with pytest.raises(InvalidParams, match="may not sign"):
            await put(made, alice, signed(alice, "Two"), if_match="*")
        await put(made, fresh, signed(fresh, "Two"), if_match="*")


async def test_a_further_signature_of_a_neighbour_is_checked_too(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        alice, bobby = await made.register("alice"), await made.register("bobby")
        bobs = keys.sha256(keys.der_of(bobby.cert))
        twice = documents.sign(signed(alice) + b"\n", bobby.key, bobs, keys.sha256(bobby.spki), NOW_S)
        named = twice.replace(f"sha256:{bobs}\n".encode(), f"sha256:{bobs}\nsigner_aid: {bobby.aid}\n".encode())
        await put(made, alice, named, if_none_match="*")
        seen = await get(made, alice.aid, whole=False)
        assert seen.content.count("AUN-SIGNATURE") == 1
        assert seen.etag == documents.etag(seen.content.encode())
        await put(made, alice, signed(alice, "Two"), if_match=seen.etag)
        foreign = named.replace(bobby.aid.encode(), b"bob.aid.pub")
        with pytest.raises(InvalidParams, match="no such certificate"):
            await put(made, alice, foreign, if_match="*")


async def test_an_unsigned_card_is_kept_as_such_and_never_replaces_a_signed_one(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        alice = await made.register("alice")
        await put(made, alice, text(alice.aid))
        assert (await get(made, alice.aid)).signed is False
        await put(made, alice, text(alice.aid, "Two"))
        await put(made, alice, signed(alice), if_match="*")
        for condition in ({}, {"if_match": "*"}):
            with pytest.raises(InvalidParams, match="signature is required"):
                await put(made, alice, text(alice.aid), **condition)
        assert (await get(made, alice.aid)).signed


@pytest.mark.parametrize("content", ["", "no card", "---\naid: &a b\n---\n"])
async def test_a_bad_document_is_refused(tmp_path: Path, content: str) -> None:
    async with desk(tmp_path) as made:
        alice = await made.register("alice")
        with pytest.raises(InvalidParams):
            await put(made, alice, content.encode(), if_none_match="*")
        with pytest.raises(TooLarge):
            await put(made, alice, text(alice.aid) + b"x" * 7000, if_none_match="*")


# -- generated --------------------------------------------------------------------------------------------------------


def verify(made: Desk, found: Any) -> documents.Document:
    document = documents.parse(found.content.encode(), Limits())
    (signature,) = document.signatures
    spki = keys.spki_of(made.identity.key_of(document.aid, 0).public_key())
    keys.verify(spki, documents.signed_part(document, signature), signature.signature)
    assert signature.public_key_fingerprint == keys.sha256(spki)
    return document


async def test_a_device_has_a_signed_card_when_first_asked_for(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        found = await get(made, THERMO)
        document = verify(made, found)
        assert found.etag == documents.etag(found.content.encode())
        assert document.meta["name"] == "Thermometer"
        assert document.meta["type"] == "device"
        assert document.meta["description"] == f"Thermometer, a device of {ISSUER}"
        assert document.meta["version"] == "1.0.0"
        assert document.meta["skills"] == [{"id": "thermo.temperature", "name": "Temperature"}]
        assert document.meta["provider"] == "Household"
        assert document.meta["contact"] == "mailto:doe@example.org"
        assert document.meta["tags"] == ["device", "sensor"]
        assert document.meta["input_modes"] == ["text/plain", "application/json"]
        cert = document.signatures[0].cert_fingerprint
        assert (await made.result("ca.get_cert", {"aid": THERMO, "cert_fingerprint": cert})).state == "active_signing"


async def test_the_same_card_is_answered_again_also_after_a_restart(tmp_path: Path) -> None:
    clock = FakeClock()
    async with desk(tmp_path, clock) as made:
        first = await get(made, THERMO)
        clock.advance(3600 * SECOND)
        assert await get(made, THERMO) == first
    async with desk(tmp_path, clock) as made:
        assert await get(made, THERMO) == first


async def test_the_version_rises_only_when_the_card_says_something_else(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        here = {"base": "http://127.0.0.1:9010", "address": "127.0.0.1"}
        there = {"base": "https://box.lan:9443", "address": "192.168.1.9"}
        one, two = verify(made, await get(made, THERMO, **here)), verify(made, await get(made, THERMO, **there))
        assert one.meta["version"] == two.meta["version"] == "1.0.0"
        assert one.meta["service_endpoints"] == {"aun": "http://127.0.0.1:9010/aun"}
        assert two.meta["service_endpoints"] == {"aun": "https://box.lan:9443/aun"}
        skill = made.gate.list[0]
        renamed = msgspec.structs.replace(skill.cap, title="Warmth")
        made.gate.list[0] = msgspec.structs.replace(skill, cap=renamed)
        assert verify(made, await get(made, THERMO, **here)).meta["version"] == "1.0.1"
        assert verify(made, await get(made, THERMO, **there)).meta["version"] == "1.0.1"
        made.gate.list[0] = skill
        assert verify(made, await get(made, THERMO, **here)).meta["version"] == "1.0.2"


async def test_a_value_that_changes_does_not_change_the_card(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        first = await get(made, THERMO)
        made.gate.list[0] = msgspec.structs.replace(made.gate.list[0], value=21.5, at=1, online=True)
        assert await get(made, THERMO) == first


async def test_only_so_many_variants_of_a_card_are_kept(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        for number in range(12):
            await get(made, THERMO, base=f"http://h{number}.lan", address="127.0.0.1")
        kept = await made.store.read(lambda unit: unit.run("SELECT count(*) FROM generated_md"))
        assert kept == [(8,)]


async def test_a_renewed_certificate_signs_the_card_again(tmp_path: Path) -> None:
    clock = FakeClock()
    async with desk(tmp_path, clock) as made:
        first = verify(made, await get(made, THERMO))
        clock.advance(600 * 86_400 * SECOND)
        later = verify(made, await get(made, THERMO))
        assert later.meta["version"] == first.meta["version"]
        assert later.signatures[0].cert_fingerprint != first.signatures[0].cert_fingerprint


@pytest.mark.parametrize("name", ["auth", "group", "storage", "mail", "stream", "search", "relay"])
async def test_every_service_has_a_signed_card(tmp_path: Path, name: str) -> None:
    async with desk(tmp_path) as made:
        document = verify(made, await get(made, f"{name}.{ISSUER}"))
        assert (document.meta["type"], document.meta["name"]) == ("service", name)


@pytest.mark.parametrize("aid", [f"nobody.{ISSUER}", f"d-other.{ISSUER}", "auth.aid.pub"])
async def test_nobody_has_no_card(tmp_path: Path, aid: str) -> None:
    async with desk(tmp_path) as made:
        with pytest.raises(NotFound):
            await get(made, aid)


async def test_a_revoked_agents_card_stays_readable(tmp_path: Path) -> None:
    async with desk(tmp_path) as made:
        alice = await made.register("alice")
        await put(made, alice, signed(alice), if_none_match="*")
        await made.ask("agent.revoke", {"name": "alice"}, OWNER, surface="edge")
        assert (await get(made, alice.aid)).signed
        assert (await made.store.read(lambda unit: tables.agent_md(unit, alice.aid))) is not None
