"""The recipients of a V2 envelope under one Merkle root: spec aun-services §5.2, §5.3, G-20."""

from __future__ import annotations

import hashlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.contract.errors import InvalidParams
from edge.protocol import wraps
from edge.protocol.wraps import Row


def row(aid: str = "alice.edge.test", device: str = "a1", role: str = "member", nonce: str = "bm9uY2U=") -> Row:
    return Row(aid, device, role, "group_device_prekey", "fp", "sha256:spk", nonce, "a2V5")


def raw(*found: Row) -> bytes:
    return msgspec.json.encode(found)


def climbed(leaf: bytes, proof: list[dict[str, str]]) -> str:
    """What a reader computes from its own row's hash and the proof (§5.2)."""
    for step in proof:
        beside = bytes.fromhex(step["sibling"])
        pair = beside + leaf if step["position"] == "L" else leaf + beside
        leaf = hashlib.sha256(b"AUN-V2-RCPT-NODE-v1" + pair).digest()
    return leaf.hex()


def test_rows_are_read_as_they_were_written() -> None:
    found = [row(), row(device="a2"), row("bobb.edge.test", "")]
    assert wraps.rows(raw(*found)) == found


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (b"", "empty"),
        (b"[]", "empty"),
        (b"{}", "8 strings"),
        (b'[["alice.edge.test","a1"]]', "8 strings"),
        (b"[[1,2,3,4,5,6,7,8]]", "8 strings"),
        (b"[[", "8 strings"),
        (raw(row("bobb.edge.test"), row()), "sorted"),
        (raw(row(device="b"), row(device="a")), "sorted"),
        (raw(row(role="b"), row(role="a")), "sorted"),
        (raw(row(role="a"), row(role="b")), "twice"),
    ],
)
def test_g_20_recipients_that_are_empty_broken_unsorted_or_named_twice_are_refused(text: bytes, why: str) -> None:
    with pytest.raises(InvalidParams, match=why):
        wraps.rows(text)


def test_the_hash_of_a_row_is_over_its_texts_with_a_zero_byte_each_and_the_raw_nonce_and_key() -> None:
    texts = b"alice.edge.test\0a1\0member\0group_device_prekey\0fp\0sha256:spk\0"
    assert wraps.leaf(row()) == hashlib.sha256(b"AUN-V2-RCPT-LEAF-v1" + texts + b"nonce" + b"key").digest()


@pytest.mark.parametrize("nonce", ["not base64", "bm9uY2U", "ümlaut"])
def test_a_nonce_that_is_not_base64_is_refused(nonce: str) -> None:
    with pytest.raises(InvalidParams, match="base64"):
        wraps.leaf(row(nonce=nonce))


def test_the_root_of_one_row_is_its_hash() -> None:
    leaf = wraps.leaf(row())
    assert (wraps.root([leaf]), wraps.proof([leaf], 0)) == (leaf.hex(), [])


def test_an_odd_node_is_doubled() -> None:
    leaves = [wraps.leaf(row(device=name)) for name in "abc"]
    assert wraps.root(leaves) == wraps.root([*leaves, leaves[-1]])
    assert wraps.proof(leaves, 2)[0] == {"sibling": leaves[2].hex(), "position": "R"}


@given(st.integers(1, 33), st.data())
def test_every_row_has_a_proof_that_leads_to_the_root_and_no_other_row_has_it(count: int, data: st.DataObject) -> None:
    leaves = [wraps.leaf(row(device=str(at))) for at in range(count)]
    at = data.draw(st.integers(0, count - 1))
    proof = wraps.proof(leaves, at)
    assert climbed(leaves[at], proof) == wraps.root(leaves)
    assert climbed(wraps.leaf(row(device="stranger")), proof) != wraps.root(leaves)
    assert wraps.split(b"".join(leaves)) == leaves


def test_a_reader_gets_its_row_by_name() -> None:
    assert wraps.recipient(row()) == {
        "aid": "alice.edge.test",
        "device_id": "a1",
        "role": "member",
        "key_source": "group_device_prekey",
        "fp": "fp",
        "spk_id": "sha256:spk",
        "wrap_nonce": "bm9uY2U=",
        "wrapped_key": "a2V5",
    }
