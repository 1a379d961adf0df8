"""The signed index of a group's settings: spec aun-services §1.3, G-18."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest

from edge.contract.errors import InvalidParams
from edge.contract.wire import JsonLimits, canonical
from edge.protocol import group_index

LIMITS = JsonLimits(octets=4096)
RULES, JOIN = {"key": "rules.content", "etag": "r1"}, {"key": "join.mode", "etag": "j1"}


def lines(*objects: object) -> str:
    return "".join(canonical(one).decode() + "\n" for one in objects)


def head(*entries: dict[str, Any], **more: Any) -> dict[str, Any]:
    digest = hashlib.sha256(lines(*sorted(entries, key=lambda one: str(one["key"]))).encode()).hexdigest()
    return {
        "type": "index_meta",
        "schema": group_index.SCHEMA,
        "sig_alg": group_index.ALGORITHM,
        "body_hash": f"sha256:{digest}",
        "etag": f'"sha256:{digest}"',
        "group_aid": "g-c0ffee.edge.test",
        "last_modified": 1_795_150_814,
        "signed_by": "alice.edge.test",
        "cert_fingerprint": "sha256:ab",
        "signature": "c2ln",
        **more,
    }


def test_an_index_says_who_signed_what() -> None:
    index = group_index.parse(lines(head(RULES, JOIN), JOIN, RULES), LIMITS)
    assert index.entries == {"rules.content": "r1", "join.mode": "j1"}
    assert (index.signed_by, index.cert_fingerprint, index.signature) == ("alice.edge.test", "sha256:ab", "c2ln")
    assert index.meta() == {"etag": index.etag, "last_modified": 1_795_150_814, "schema": group_index.SCHEMA}


def test_the_signature_is_over_everything_but_itself_in_the_order_of_the_keys() -> None:
    meta = head(RULES, JOIN)
    index = group_index.parse(lines(meta, RULES, JOIN), LIMITS)
    unsigned = {name: value for name, value in meta.items() if name != "signature"}
    assert index.signed == lines(unsigned, JOIN, RULES).encode()


def test_blank_lines_do_not_count() -> None:
    assert group_index.parse("\n" + lines(head()) + "\n\n", LIMITS).entries == {}


@pytest.mark.parametrize("name", ["type", "schema", "sig_alg", "body_hash", "etag"])
def test_g_18_an_index_that_is_not_what_it_says_is_refused(name: str) -> None:
    with pytest.raises(InvalidParams, match=f"{name} must be"):
        group_index.parse(lines(head(RULES, **{name: "other"}), RULES), LIMITS)


def test_g_18_an_entry_that_was_changed_is_noticed() -> None:
    with pytest.raises(InvalidParams, match="body_hash"):
        group_index.parse(lines(head(RULES), {**RULES, "etag": "r2"}), LIMITS)


@pytest.mark.parametrize("body", ["", "\n \n", "[]", '{"type":"index_meta"}\n7'])
def test_an_index_is_lines_of_objects(body: str) -> None:
    with pytest.raises(InvalidParams, match="one object each"):
        group_index.parse(body, LIMITS)


@pytest.mark.parametrize("body", ["{", '{"a":1,"a":2}', '{"a":"' + "x" * 4096 + '"}'])
def test_a_broken_line_is_refused_as_a_bad_parameter(body: str) -> None:
    with pytest.raises(InvalidParams, match=r"^group\.index: "):
        group_index.parse(body, LIMITS)


def test_members_of_the_wrong_type_count_as_missing() -> None:
    index = group_index.parse(lines(head(last_modified="now", signed_by=7, group_aid=None)), LIMITS)
    assert (index.last_modified, index.signed_by, index.group_aid) == (0, "", "")
