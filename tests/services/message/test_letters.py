"""Sealed messages to devices and services: opened, understood, answered sealed (settled G19, spec §5.2)."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from edge.contract.store import Unit
from edge.contract.wire import dumps, loads
from edge.protocol import keys, sealed, wraps
from edge.protocol.sealed import Reader
from edge.store import identity
from tests.services.message.test_automata import LAMP_AID, THERMO, house
from tests.support.messaging import ALICE, PEER, Client, Post, key_of
from tests.support.tasks import LAMP, THERMOMETER, reads

ALICES = keys.generate("P-256")
NOW_MS = 1_790_000_000_000


async def register(post: Post, *aids: str) -> None:
    """The rows that a certificate leaves: of Alice, and of the devices whose key the node holds."""

    def work(unit: Unit) -> None:
        for aid in aids:
            mine = aid.startswith("d-")
            public = (key_of(aid, 2) if mine else ALICES).public_key()
            row = (aid, "device" if mine else "agent", keys.spki_of(public), 2 if mine else 0, 1, 1)
            unit.run(identity._PUT_AID, row)

    await post.node.commit(work)


def to_device(text: str, message_id: str, aid: str = THERMO, **more: Any) -> dict[str, Any]:
    reader = Reader(aid, "", keys.spki_of(key_of(aid, 2).public_key()))
    payload = {"type": "text", "text": text} | more
    return sealed.seal(payload, ALICE, ALICES, [reader], message_id, NOW_MS)


async def publish_prekey(client: Client, *, by: ec.EllipticCurvePrivateKey = ALICES) -> ec.EllipticCurvePrivateKey:
    """message.v2.put_peer_pk of a client's device, signed by the key of its AID."""
    prekey = keys.generate("P-256")
    der = keys.spki_of(prekey.public_key())
    spk_id = "sha256:" + hashlib.sha256(der).hexdigest()[:16]
    r, s = decode_dss_signature(by.sign(der + spk_id.encode() + b"5", ec.ECDSA(hashes.SHA256())))
    await client.call(
        "message.v2.put_peer_pk",
        peer_aid=ALICE,
        key_source="peer_device_prekey",
        spk_id=spk_id,
        spk_pk=base64.b64encode(der).decode(),
        spk_signature=base64.b64encode(r.to_bytes(32, "big") + s.to_bytes(32, "big")).decode(),
        spk_timestamp=5,
    )
    return prekey


async def letters(client: Client) -> list[dict[str, Any]]:
    """The envelopes in a client's inbox."""
    page = await client.call("message.v2.pull")
    return [loads(row["envelope_json"]) for row in page["messages"] if row["version"] == "v2"]


def read(envelope: dict[str, Any], sender: str = THERMO) -> dict[str, Any]:
    """As a device of Alice without a prekey reads it."""
    theirs = keys.spki_of(key_of(sender, 2).public_key())
    return sealed.open_sealed(dumps(envelope), ALICE, ALICES, sender, theirs, envelope["aad"]["message_id"])


@pytest.mark.seed("S0-034")
async def test_a_sealed_question_is_understood_and_answered_sealed(tmp_path: Path) -> None:
    async with house(tmp_path, THERMOMETER) as (post, gate):
        gate.acts["thermo.temperature"] = reads
        await register(post, ALICE, THERMO)
        alice = await post.connect(ALICE, "a1", announced=PEER)
        await alice.send(THERMO, to_device("thermo temperature", "m-1"), message_id="m-1")
        await post.rest()
        [answer] = await letters(alice)
        said = read(answer)
        assert "21.5" in said["text"]
        assert (said["reply_to"], said["auto"], said["status"]) == ("m-1", True, "completed")
        assert b"21.5" not in dumps(answer)


async def test_what_is_not_understood_is_answered_sealed_too_and_a_mark_of_an_automaton_not_at_all(
    tmp_path: Path,
) -> None:
    async with house(tmp_path, LAMP) as (post, gate):
        await register(post, ALICE, LAMP_AID)
        alice = post.offline(ALICE, "a1")
        await alice.send(LAMP_AID, to_device("sing me a song", "m-1", LAMP_AID), message_id="m-1")
        await alice.send(LAMP_AID, to_device("lamp on", "m-2", LAMP_AID, auto=True), message_id="m-2")
        await post.rest()
        [answer] = await letters(alice)
        assert "lamp.power" in read(answer, LAMP_AID)["text"]
        assert gate.orders == []


async def test_every_device_of_the_asker_can_read_the_answer(tmp_path: Path) -> None:
    async with house(tmp_path, LAMP) as (post, _):
        await register(post, ALICE, LAMP_AID)
        one, two = post.offline(ALICE, "a1"), post.offline(ALICE, "a2")
        await publish_prekey(one)
        await publish_prekey(two, by=keys.generate("P-256"))
        await one.send(LAMP_AID, to_device("sing", "m-1", LAMP_AID), message_id="m-1")
        await post.rest()
        for client in (one, two):
            [answer] = await letters(client)
            rows = wraps.rows(dumps(answer["recipients"]))
            found = [(row.device, row.key_source) for row in rows]
            assert found == [("a1", sealed.KEY_SOURCE), ("a2", sealed.NO_PREKEY)], "a2's prekey is not Alice's"


async def test_an_answer_that_is_due_stays_sealed_over_a_restart(tmp_path: Path) -> None:
    async with house(tmp_path, LAMP) as (post, gate):
        await register(post, ALICE, LAMP_AID)
        await post.offline(ALICE, "a1").send(LAMP_AID, to_device("lamp on", "m-1", LAMP_AID), message_id="m-1")
        await post.rest()
        [order] = gate.orders
    async with house(tmp_path, LAMP, gate=gate) as (post, gate):
        gate.tell(order.task_id, "completed", reason="")
        await post.rest()
        [answer] = await letters(post.offline(ALICE, "a1"))
        assert read(answer, LAMP_AID)["status"] == "completed"


@pytest.mark.parametrize("missing", ["device", "sender", "both"])
async def test_what_nobody_here_can_open_is_answered_plain_with_what_to_do(tmp_path: Path, missing: str) -> None:
    async with house(tmp_path, THERMOMETER) as (post, _):
        await register(post, *({"device": [ALICE], "sender": [THERMO], "both": []}[missing]))
        alice = post.offline(ALICE, "a1")
        await alice.send(THERMO, to_device("thermo temperature", "m-1"), message_id="m-1")
        await post.rest()
        page = await alice.call("message.pull")
        [answer] = [row["payload"] for row in page["messages"]]
        assert "--no-encrypt" in answer["text"]


async def test_a_first_generation_message_is_answered_plain_with_what_to_do(tmp_path: Path) -> None:
    async with house(tmp_path, THERMOMETER) as (post, _):
        await register(post, ALICE, THERMO)
        alice = post.offline(ALICE, "a1")
        await alice.send(
            THERMO, {"type": "e2ee.encrypted", "ciphertext": "AAAA"}, type="e2ee.encrypted", encrypted=True
        )
        await post.rest()
        [answer] = [row["payload"] for row in (await alice.call("message.pull"))["messages"]]
        assert "--no-encrypt" in answer["text"]
