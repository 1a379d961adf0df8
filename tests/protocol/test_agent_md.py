from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge.contract.errors import InvalidParams, SignatureInvalid, TooLarge
from edge.contract.limit import Limits
from edge.protocol import agent_md, keys
from edge.protocol.agent_md import Card, parse

KEY = keys.generate("P-256")
SPKI = keys.spki_of(KEY.public_key())
FIELDS = '---\naid: "alice.edge.test"\nname: "Alice"\ntype: "human"\nversion: "1.0.0"\n'
TEXT = (FIELDS + "---\n\n# Alice\n").encode()


def signed(payload: bytes = TEXT, at_s: int = 1_750_000_000) -> bytes:
    return agent_md.sign(payload, KEY, "a" * 64, keys.sha256(SPKI), at_s)


def twice() -> bytes:
    first = signed().replace(b"<!-- AUN-SIGNATURE\n", b"<!-- AUN-SIGNATURE-SELF\n")
    second = agent_md.sign(first + b"\n", KEY, "b" * 64, "c" * 64, 1_750_000_001)
    return second.replace(b"cert_fingerprint: sha256:b", b"signer_aid: Owner.edge.test\ncert_fingerprint: sha256:b")


def test_a_signed_document_comes_apart_and_verifies() -> None:
    document = parse(signed(), Limits())
    assert document.aid == "alice.edge.test"
    assert document.meta["type"] == "human"
    (signature,) = document.signatures
    assert agent_md.signed_part(document, signature) == TEXT
    assert (signature.cert_fingerprint, signature.timestamp, signature.signer_aid) == ("a" * 64, 1_750_000_000, "")
    keys.verify(SPKI, TEXT, signature.signature)
    assert document.body == signed()[: len(TEXT)] + document.body[len(TEXT) :]


def test_a_changed_byte_no_longer_verifies() -> None:
    document = parse(signed().replace(b"# Alice", b"# Alicf"), Limits())
    with pytest.raises(SignatureInvalid):
        keys.verify(SPKI, agent_md.signed_part(document, document.signatures[0]), document.signatures[0].signature)


def test_each_further_signature_covers_those_before_it() -> None:
    body = twice()
    document = parse(body, Limits())
    first, second = document.signatures
    assert (first.tag, second.tag, second.signer_aid) == ("SELF", "", "owner.edge.test")
    assert agent_md.signed_part(document, second) == body[: second.start]
    assert body[first.end - 3 : first.end] == body[second.end - 3 : second.end] == b"-->"


def test_old_clients_see_the_first_signature_only_without_tag() -> None:
    seen = agent_md.projection(twice())
    assert seen == signed()[: len(TEXT)] + seen[len(TEXT) :]
    assert seen.count(b"AUN-SIGNATURE") == 1
    assert b"SELF" not in seen
    assert len(parse(seen, Limits()).signatures) == 1
    once = signed()
    assert agent_md.projection(once) == once
    assert agent_md.projection(TEXT) == TEXT


def test_the_etag_is_the_quoted_hash_of_the_bytes() -> None:
    assert agent_md.etag(b"") == '"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"'


@pytest.mark.parametrize(
    "text",
    [
        "no front matter",
        "---\naid: alice.edge.test\n",
        "---\n\ta: 1\n---\n",
        FIELDS.replace('aid: "alice.edge.test"\n', "") + "---\n",
        FIELDS.replace("alice.edge.test", "no aid") + "---\n",
        FIELDS.replace('"Alice"', "7") + "---\n",
        FIELDS.replace('"human"', '" "') + "---\n",
        FIELDS.replace('"1.0.0"', '"1.0"') + "---\n",
        FIELDS.replace('"1.0.0"', "1.5") + "---\n",
        FIELDS + f"description: {'x' * 101}\n---\n",
        FIELDS + "description: [1]\n---\n",
        FIELDS + f"avatar: {'x' * 257}\n---\n",
        FIELDS + "tags: a\n---\n",
        FIELDS + "tags: [1]\n---\n",
        FIELDS + "visibility: secret\n---\n",
        FIELDS + "---\n-----BEGIN EC PRIVATE KEY-----\n",
    ],
)
def test_a_document_that_breaks_a_rule_is_refused(text: str) -> None:
    with pytest.raises(InvalidParams, match=r"agent\.md|not an AID"):
        parse(text.encode(), Limits())


def test_bytes_that_are_no_utf8_are_refused() -> None:
    with pytest.raises(InvalidParams, match="UTF-8"):
        parse(TEXT + b"\xff", Limits())


@pytest.mark.parametrize("text", ["\ufeff" + TEXT.decode(), TEXT.decode().replace("\n", "\r\n"), FIELDS + "x: y\n---"])
def test_other_line_ends_and_a_byte_order_mark_are_fine(text: str) -> None:
    assert parse(text.encode(), Limits()).aid == "alice.edge.test"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"<!-- AUN-SIGNATURE\n", b"<!-- AUN-SIGNATURE-low\n"),
        (b"<!-- AUN", b"x<!-- AUN"),
        (b"\n-->", b"\n--> more"),
        (b"cert_fingerprint: sha256:", b"cert_fingerprint: "),
        (b"timestamp: 1750000000", b"timestamp: 0"),
        (b"timestamp: 1750000000", b"timestamp: soon"),
        (b"signature: M", b"signature: !"),
        (b"signature: M", b"signature: AB==M"),
        (b"signature: M", b"signature:\nother: M"),
        (b"timestamp: ", b"timestamp: 1\ntimestamp: "),
        (b"timestamp: ", b"no colon\ntimestamp: "),
        (b"public_key_fingerprint: sha256:", b"public_key_fingerprint: md5:"),
        (b"timestamp: ", b"signer_aid: not an aid\ntimestamp: "),
    ],
)
def test_a_malformed_block_is_refused(old: bytes, new: bytes) -> None:
    body = signed()
    assert old in body
    with pytest.raises(InvalidParams):
        parse(body.replace(old, new, 1), Limits())


def test_a_block_may_have_empty_lines_and_no_key_fingerprint() -> None:
    lines = [line for line in signed().split(b"\n") if not line.startswith(b"public_key")]
    document = parse(b"\n".join(lines).replace(b"timestamp", b"\ntimestamp"), Limits())
    assert document.signatures[0].public_key_fingerprint == ""


def test_an_empty_signature_is_none() -> None:
    head, _, tail = signed().partition(b"\nsignature: ")
    with pytest.raises(InvalidParams, match="base64"):
        parse(head + b"\nsignature:\n" + tail.partition(b"\n")[2], Limits())


def test_a_second_block_must_say_who_signed() -> None:
    body = agent_md.sign(signed() + b"\n", KEY, "b" * 64, "c" * 64, 1)
    with pytest.raises(InvalidParams, match="signer_aid"):
        parse(body, Limits())


@pytest.mark.limit("agent_md.payload_octets")
def test_the_text_has_a_limit() -> None:
    pad = 4096 - len(TEXT)
    assert parse(signed(TEXT + b"x" * (pad - 1) + b"\n"), Limits()).signatures
    limits = Limits()
    with pytest.raises(TooLarge):
        parse(signed(TEXT + b"x" * pad + b"\n"), limits)
    with pytest.raises(TooLarge):
        parse(TEXT + b"x" * 100_000, limits)
    assert limits.hits == {"agent_md.payload_octets": 2}


@pytest.mark.limit("agent_md.signature_octets")
def test_the_signatures_have_a_limit() -> None:
    block = len(signed()) - len(TEXT)
    assert parse(signed() + b"\n" * (2048 - block), Limits()).signatures
    limits = Limits()
    with pytest.raises(TooLarge):
        parse(signed() + b"\n" * (2049 - block), limits)
    assert limits.hits == {"agent_md.signature_octets": 1}


CARD = Card(
    aid="d-thermo.edge.test",
    name='Thermo "one" <b>',
    type="device",
    description="measures",
    tags=("device",),
    skills=(("thermo.temperature", "Temperature"),),
    service_endpoints={"aun": "wss://gateway.edge.test/aun"},
    provider="Household",
)


def test_a_generated_card_says_everything_and_is_read_back() -> None:
    found = parse(agent_md.render(CARD, 3, "2026-01-01T00:00:00Z", 4096), Limits())
    assert found.meta["name"] == 'Thermo "one" <b>'
    assert found.meta["version"] == "1.0.2"
    assert found.meta["skills"] == [{"id": "thermo.temperature", "name": "Temperature"}]
    assert found.meta["service_endpoints"] == {"aun": "wss://gateway.edge.test/aun"}
    assert found.meta["visibility"] == "public"
    assert "contact" not in found.meta
    assert b"<b>\n" not in found.body.split(b"---\n")[2]


def test_a_device_cannot_name_itself_into_a_signature() -> None:
    name = "x\n<!-- AUN-SIGNATURE\ny"
    card = Card(aid="d-x.edge.test", name=name, type="device", skills=(("x.a", name),), description=name)
    assert parse(agent_md.render(card, 1, "", 4096), Limits()).signatures == ()


def test_a_card_without_skills_endpoints_or_description_is_still_a_document() -> None:
    bare = Card(aid="auth.edge.test", name="", type="service", tags=(), input_modes=(), output_modes=())
    assert parse(agent_md.render(bare, 1, "", 4096), Limits()).meta["name"] == "auth.edge.test"


@given(st.integers(0, 300), st.text(max_size=40))
def test_a_card_fits_however_many_skills_there_are(count: int, title: str) -> None:
    card = Card(aid="d-x.edge.test", name=title, type="device", skills=tuple((f"x.{n}", title) for n in range(count)))
    body = agent_md.render(card, 1, "2026-01-01T00:00:00Z", 4096)
    assert len(body) <= 4096
    shown = parse(body, Limits()).meta.get("skills", [])
    assert len(shown) == count or f"and {count - len(shown)} more".encode() in body


def test_what_a_card_says_does_not_depend_on_where_it_is_read() -> None:
    other = Card(**{**{name: getattr(CARD, name) for name in CARD.__struct_fields__}, "service_endpoints": {}})
    assert agent_md.content(other) == agent_md.content(CARD)
    renamed = Card(**{**{name: getattr(CARD, name) for name in CARD.__struct_fields__}, "name": "Other"})
    assert agent_md.content(renamed) != agent_md.content(CARD)
