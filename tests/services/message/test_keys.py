"""Device keys of both generations: rule M-18, spec §5.1 and §5.2."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

import pytest

from edge.contract.errors import InvalidParams, NotPermitted, RateLimited, UnknownAid
from edge.contract.time import SECOND
from tests.services.message.envelopes import publish_key
from tests.support.messaging import ALICE, BOB, CAROL, post_office

DER = b"x" * 91
KEY = {
    "peer_aid": BOB,
    "key_source": "peer_device_prekey",
    "spk_id": "sha256:" + hashlib.sha256(DER).hexdigest()[:16],
    "spk_pk": base64.b64encode(DER).decode(),
    "spk_signature": base64.b64encode(b"s" * 64).decode(),
    "spk_timestamp": 1_760_000_000,
}
PREKEY = {"prekey_id": "p-1", "public_key": "cHVi", "signature": "c2ln", "created_at": 1_760_000_000_000}


async def bootstrap(post: Any, peer: str, me: str = ALICE) -> dict[str, Any]:
    answer = await post.offline(me, "a1").call("message.v2.bootstrap", peer_aid=peer, e2ee_wrap_capabilities={})
    assert isinstance(answer, dict)
    return answer


async def test_bootstrap_lists_the_devices_of_both_ends(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        for device in ("b1", "b2"):
            await publish_key(post.offline(BOB, device))
        await publish_key(post.offline(ALICE, "a1"))
        answer = await bootstrap(post, BOB)
        assert [row["device_id"] for row in answer["peer_devices"]] == ["b1", "b2"]
        assert [row["device_id"] for row in answer["self_devices"]] == ["a1"]
        assert (answer["audit_recipients"], answer["e2ee_wrap_policy"]) == ([], None)
        row = answer["peer_devices"][0]
        assert row["key_source"] == "peer_device_prekey"
        der = base64.b64decode(row["spk_pk"])
        assert row["spk_id"] == "sha256:" + hashlib.sha256(der).hexdigest()[:16]


async def test_the_newest_key_of_a_device_counts_also_after_a_restart(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        await publish_key(post.offline(BOB, "b1"), "old")
        await publish_key(post.offline(BOB, "b1"), "new")
        before = await bootstrap(post, BOB)
        assert len(before["peer_devices"]) == 1
    async with post_office(tmp_path) as post:
        assert await bootstrap(post, BOB) == before


async def test_an_aid_that_never_published_a_key_is_one_row_without_a_device(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        assert (await bootstrap(post, CAROL))["peer_devices"] == [{"aid": CAROL, "device_id": ""}]
        await post.offline(CAROL, "c1").call("message.e2ee.put_prekey", **PREKEY)
        assert (await bootstrap(post, CAROL))["peer_devices"] == []
        with pytest.raises(UnknownAid):
            await bootstrap(post, "nobody.edge.test")


@pytest.mark.parametrize(
    "wrong",
    [
        {"spk_id": "sha256:0000000000000000"},
        {"spk_pk": "not base64!"},
        {"spk_signature": "c2hvcnQ="},
        {"key_source": "group_device_prekey"},
        {"spk_timestamp": "now"},
    ],
)
async def test_a_key_that_cannot_be_right_is_refused(tmp_path: Path, wrong: dict[str, Any]) -> None:
    async with post_office(tmp_path) as post:
        bob = post.offline(BOB, "b1")
        await bob.call("message.v2.put_peer_pk", **KEY)
        with pytest.raises(InvalidParams):
            await bob.call("message.v2.put_peer_pk", **{**KEY, **wrong})


async def test_nobody_publishes_for_another_aid_or_device(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        alice = post.offline(ALICE, "a1")
        with pytest.raises(NotPermitted):
            await alice.call("message.v2.put_peer_pk", **KEY)
        with pytest.raises(NotPermitted):
            await alice.call("message.e2ee.put_prekey", **PREKEY, device_id="a2")


@pytest.mark.limit("message.devices", "message.key_octets", "message.spk_octets")
async def test_the_size_of_a_key_and_the_number_of_devices_are_bounded(tmp_path: Path) -> None:
    limits = {"message.devices": 2, "message.key_octets": 400, "message.spk_octets": 488}
    async with post_office(tmp_path, limits=limits) as post:
        for device in ("b1", "b2", "b1"):
            await publish_key(post.offline(BOB, device))
            await post.offline(BOB, device).call("message.e2ee.put_prekey", **PREKEY)
        third = post.offline(BOB, "b3")
        with pytest.raises(RateLimited):
            await publish_key(third)
        with pytest.raises(RateLimited):
            await third.call("message.e2ee.put_prekey", **PREKEY)
        with pytest.raises(InvalidParams):
            await third.call("message.e2ee.put_prekey", **{**PREKEY, "public_key": "x" * 400})
        for size, refused in ((300, r"spk_id is not"), (301, r"message\.spk_octets")):
            key = {**KEY, "spk_pk": base64.b64encode(b"x" * size).decode(), "spk_signature": "s" * 88}
            with pytest.raises(InvalidParams, match=refused):
                await third.call("message.v2.put_peer_pk", **key)


@pytest.mark.seed("S0-141")
async def test_m18_the_newest_prekey_of_each_device_is_read_as_often_as_one_likes(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        bob = post.offline(BOB, "b1")
        assert await bob.call("message.e2ee.put_prekey", **PREKEY) == {"ok": True}
        await bob.call("message.e2ee.put_prekey", **{**PREKEY, "prekey_id": "p-2"})
        post.clock.advance(SECOND)
        await post.offline(BOB, "b2").call("message.e2ee.put_prekey", **{**PREKEY, "prekey_id": "p-3"})
        for _ in range(2):
            answer = await post.offline().call("message.e2ee.get_prekey", aid=BOB)
            assert answer["found"] is True
            assert [(row["device_id"], row["prekey_id"]) for row in answer["device_prekeys"]] == [
                ("b2", "p-3"),
                ("b1", "p-2"),
            ]
            assert answer["prekey"] == answer["device_prekeys"][0]
            assert answer["prekey"]["public_key"] == "cHVi"


@pytest.mark.seed("S0-141", "S0-142")
async def test_m18_who_has_no_prekey_is_not_found_without_an_error(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        for aid in (CAROL, "nobody.edge.test"):
            answer = await post.offline().call("message.e2ee.get_prekey", aid=aid)
            assert answer == {"found": False, "device_prekeys": []}
        sealed = {"type": "e2ee.encrypted", "encryption_mode": "long_term_key", "ciphertext": "c2VhbGVk"}
        sent = await post.offline().send(CAROL, sealed, type="e2ee.encrypted", encrypted=True)
        assert sent["status"] == "sent"
        [row] = (await post.offline(CAROL).call("message.pull"))["messages"]
        assert (row["payload"], row["encrypted"], row["type"]) == (sealed, True, "e2ee.encrypted")


async def test_m18_prekeys_older_than_30_days_are_not_handed_out(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        await post.offline(BOB, "b1").call("message.e2ee.put_prekey", **PREKEY)
        post.clock.mono_us += 30 * 86_400 * SECOND + SECOND
        assert (await post.offline().call("message.e2ee.get_prekey", aid=BOB))["found"] is False
