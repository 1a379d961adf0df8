# ruff: noqa: S608  the composed parts are constants of this module
"""Who is known by which key: AIDs, certificates, reserved names, tokens, published cards, and the CT entries of all.

Every function takes a unit of `node.db`. A certificate, the state of its AID and its CT entry are written in one unit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any, cast

import msgspec

from edge.contract.store import Unit
from edge.contract.time import SECOND, Stamp
from edge.contract.wire import canonical
from edge.store.keyring import Issued
from edge.store.migration import statements

ACTIVE, VERIFY_ONLY, INACTIVE, REVOKED = "active_signing", "verify_only", "inactive", "revoked"
"""States of a certificate (spec aun-connect §4.4). `expired` follows from its end and is not stored."""

_TABLES = (
    """CREATE TABLE aid (aid TEXT PRIMARY KEY, kind TEXT NOT NULL, spki BLOB NOT NULL, state TEXT NOT NULL,
        generation INTEGER NOT NULL, boot INTEGER NOT NULL, mono_us INTEGER NOT NULL) STRICT, WITHOUT ROWID""",
    """CREATE TABLE certificate (number INTEGER PRIMARY KEY AUTOINCREMENT, serial TEXT NOT NULL UNIQUE,
        aid TEXT NOT NULL, purpose TEXT NOT NULL, curve TEXT NOT NULL, state TEXT NOT NULL,
        pem TEXT NOT NULL, cert_sha256 TEXT NOT NULL, spki_sha256 TEXT NOT NULL, not_before INTEGER NOT NULL,
        not_after INTEGER NOT NULL, sure INTEGER NOT NULL, revoked_at INTEGER NOT NULL, reason TEXT NOT NULL,
        boot INTEGER NOT NULL, mono_us INTEGER NOT NULL) STRICT""",
    "CREATE INDEX certificate_aid ON certificate (aid, number)",
    "CREATE INDEX certificate_revoked ON certificate (revoked_at) WHERE state = 'revoked'",
    """CREATE TABLE reservation (name TEXT PRIMARY KEY, boot INTEGER NOT NULL, mono_us INTEGER NOT NULL,
        minutes INTEGER NOT NULL) STRICT, WITHOUT ROWID""",
    """CREATE TABLE refresh_token (chain TEXT PRIMARY KEY, aid TEXT NOT NULL, device TEXT NOT NULL, slot TEXT NOT NULL,
        token BLOB NOT NULL UNIQUE, previous BLOB NOT NULL, count INTEGER NOT NULL, boot INTEGER NOT NULL,
        mono_us INTEGER NOT NULL, turned_boot INTEGER NOT NULL, turned_us INTEGER NOT NULL) STRICT""",
    "CREATE INDEX refresh_token_previous ON refresh_token (previous)",
    "CREATE INDEX refresh_token_aid ON refresh_token (aid)",
    """CREATE TABLE node_token (token BLOB PRIMARY KEY, prefix TEXT NOT NULL, name TEXT NOT NULL, aid TEXT NOT NULL,
        scopes TEXT NOT NULL, until_us INTEGER NOT NULL, boot INTEGER NOT NULL, mono_us INTEGER NOT NULL)
        STRICT, WITHOUT ROWID""",
    "CREATE INDEX node_token_aid ON node_token (aid)",
    """CREATE TABLE ct_entry (leaf_index INTEGER PRIMARY KEY, log_id TEXT NOT NULL UNIQUE, serial TEXT NOT NULL,
        entry BLOB NOT NULL, entry_hash BLOB NOT NULL, previous_hash BLOB NOT NULL) STRICT""",
    "CREATE INDEX ct_entry_serial ON ct_entry (serial)",
    """CREATE TABLE agent_md (aid TEXT PRIMARY KEY, body BLOB NOT NULL, etag TEXT NOT NULL, signed INTEGER NOT NULL,
        modified_s INTEGER NOT NULL) STRICT""",
    """CREATE TABLE generated_md (aid TEXT NOT NULL, base TEXT NOT NULL, version INTEGER NOT NULL,
        content TEXT NOT NULL, serial TEXT NOT NULL, body BLOB NOT NULL, etag TEXT NOT NULL,
        modified_s INTEGER NOT NULL, PRIMARY KEY (aid, base)) STRICT""",
)
MIGRATIONS = [statements("node", "identity-001", *_TABLES)]


class Aid(msgspec.Struct, frozen=True):
    """An AID of this node. `kind`: agent, device, service; `state`: active or revoked; `spki`: its current key."""

    aid: str
    kind: str
    spki: bytes
    state: str
    generation: int = 0
    made: Stamp = Stamp(0, 0)


class Certificate(msgspec.Struct, frozen=True, kw_only=True):
    """A certificate that this node issued; `number` grows with each."""

    serial: str
    aid: str
    purpose: str
    curve: str
    state: str
    pem: str
    cert_sha256: str
    spki_sha256: str
    not_before: int
    not_after: int
    sure: int
    revoked_at: int
    reason: str
    number: int

    @property
    def issued(self) -> Issued:
        """As it was when it was made."""
        return Issued(
            serial=self.serial,
            aid=self.aid,
            pem=self.pem,
            cert_sha256=self.cert_sha256,
            spki_sha256=self.spki_sha256,
            curve=self.curve,
            start=self.not_before,
            end=self.not_after,
            sure=bool(self.sure),
        )


class Reservation(msgspec.Struct, frozen=True):
    """A name kept for the first key that asks for it."""

    name: str
    made: Stamp
    minutes: int


class Chain(msgspec.Struct, frozen=True):
    """The refresh tokens of one login, as SHA-256: the good one and the one before it."""

    chain: str
    aid: str
    device: str
    slot: str
    token: bytes
    previous: bytes
    count: int
    made: Stamp
    turned: Stamp


class NodeToken(msgspec.Struct, frozen=True):
    """A token of `agent add`: SHA-256, first characters, name, AID, scopes, end in µs UTC (0: none)."""

    token: bytes
    prefix: str
    name: str
    aid: str
    scopes: str
    until_us: int
    made: Stamp


class CtEntry(msgspec.Struct, frozen=True):
    """One leaf of the transparency log. `entry` is canonical JSON; its hash is RFC 6962's leaf hash of that."""

    leaf_index: int
    log_id: str
    serial: str
    entry: bytes
    entry_hash: bytes
    previous_hash: bytes


class AgentMd(msgspec.Struct, frozen=True):
    """A published card, byte for byte; `signed` is False for settled G47's."""

    aid: str
    body: bytes
    etag: str
    signed: bool
    modified_s: int


class GeneratedMd(msgspec.Struct, frozen=True):
    """A card that the node made; `content` is a digest of what it says, `serial` names the certificate that signed."""

    aid: str
    base: str
    version: int
    content: str
    serial: str
    body: bytes
    etag: str
    modified_s: int


# -- AIDs and certificates --------------------------------------------------------------------------------------------

_AID = "SELECT aid, kind, spki, state, generation, boot, mono_us FROM aid"
_CERTIFICATE = """SELECT serial, aid, purpose, curve, state, pem, cert_sha256, spki_sha256, not_before, not_after, sure,
    revoked_at, reason, number FROM certificate"""
_ADD_CERTIFICATE = f"""INSERT INTO certificate VALUES
    (NULL, ?, ?, ?, ?, '{ACTIVE}', ?, ?, ?, ?, ?, ?, 0, '', ?, ?)"""
_RETIRE = f"""UPDATE certificate SET state = '{VERIFY_ONLY}'
    WHERE aid = ? AND curve = ? AND purpose = ? AND state = '{ACTIVE}'"""
_REVOKE = f"""UPDATE certificate SET state = '{REVOKED}', revoked_at = ?, reason = ?
    WHERE aid = ? AND state <> '{REVOKED}' RETURNING serial, cert_sha256, spki_sha256, curve"""
_REVOKE_ONE = f"""UPDATE certificate SET state = '{REVOKED}', revoked_at = ?, reason = ?
    WHERE serial = ? AND state <> '{REVOKED}' RETURNING aid, cert_sha256, spki_sha256, curve"""
_PUT_AID = """INSERT INTO aid VALUES (?, ?, ?, 'active', ?, ?, ?)
    ON CONFLICT DO UPDATE SET spki = excluded.spki, state = 'active', generation = excluded.generation"""


def aid(unit: Unit, name: str) -> Aid | None:
    """One AID of this node."""
    found = unit.run(_AID + " WHERE aid = ?", (name,))
    return _to_aid(found[0]) if found else None


def aids(unit: Unit, kind: str) -> list[Aid]:
    """Every AID of a kind, by name."""
    return [_to_aid(row) for row in unit.run(_AID + " WHERE kind = ? ORDER BY aid", (kind,))]


def known(unit: Unit, name: str) -> bool:
    """Whether an AID can be spoken to: registered and not revoked, or let in by a token. A group is not one."""
    found = aid(unit, name)
    if found is not None:
        return found.state == "active" and found.kind != "group"
    return bool(unit.run("SELECT 1 FROM node_token WHERE aid = ? LIMIT 1", (name,)))


def issue(
    unit: Unit, made: Issued, *, kind: str, spki: bytes, operation: str, purpose: str = "identity", generation: int = 0
) -> Certificate:
    """Keep a new certificate as the active one of its AID, curve and purpose; the one before verifies only.

    `operation` is the CT word: `agent_cert_issue`, `agent_cert_renew` or `agent_cert_rekey`. The AID's key becomes
    `spki`.
    """
    before = certificates(unit, made.aid, state=ACTIVE, purpose=purpose, curve=made.curve)
    at = unit.at
    unit.run(_RETIRE, (made.aid, made.curve, purpose))
    if purpose == "identity":
        unit.run(_PUT_AID, (made.aid, kind, spki, generation, at.boot, at.mono_us))
    dates = (made.start, made.end, int(made.sure), at.boot, at.mono_us)
    names = (made.serial, made.aid, purpose, made.curve, made.pem, made.cert_sha256, made.spki_sha256)
    unit.run(_ADD_CERTIFICATE, (*names, *dates))
    details: dict[str, Any] = {"curve": made.curve, "public_key_sha256": made.spki_sha256}
    if before:
        details["old_serial"] = before[0].serial
    _log(unit, operation, made.aid, made.serial, made.cert_sha256, details)
    return certificates(unit, made.aid, serial=made.serial)[0]


def hold(unit: Unit, name: str, kind: str) -> None:
    """Take a name that has no key yet, so that nobody else gets it."""
    unit.run(_PUT_AID, (name, kind, b"", 0, unit.at.boot, unit.at.mono_us))


def certificates(unit: Unit, name: str, **where: str) -> list[Certificate]:
    """Certificates of an AID, newest first; `where` narrows by column: state, purpose, curve, serial."""
    known = {"state", "purpose", "curve", "serial"}
    if not where.keys() <= known:
        raise ValueError(f"no such column: {sorted(where.keys() - known)}")
    clause = "".join(f" AND {column} = ?" for column in where)
    sql = f"{_CERTIFICATE} WHERE aid = ?{clause} ORDER BY number DESC"
    return [_to_certificate(row) for row in unit.run(sql, (name, *where.values()))]


def certificate(unit: Unit, serial: str) -> Certificate | None:
    """A certificate by serial number (lower-case hex, no leading zeros)."""
    found = unit.run(_CERTIFICATE + " WHERE serial = ?", (serial,))
    return _to_certificate(found[0]) if found else None


def by_fingerprint(unit: Unit, name: str, fingerprint: str) -> Certificate | None:
    """The newest certificate of an AID whose DER or key has this SHA-256, whole or its first 16 digits."""
    for found in certificates(unit, name):
        if found.cert_sha256.startswith(fingerprint) or found.spki_sha256.startswith(fingerprint):
            return found
    return None


def fingerprint_known(unit: Unit, fingerprint: str) -> bool:
    """Whether any certificate here, of whomever, has this SHA-256, whole or its first 16 digits."""
    sql = "SELECT 1 FROM certificate WHERE substr(cert_sha256, 1, ?) = ? LIMIT 1"
    return bool(unit.run(sql, (len(fingerprint), fingerprint)))


def present(unit: Unit, name: str) -> Certificate | None:
    """What `/pki/cert/<aid>` answers without a fingerprint: `current`, but for a revoked agent nothing.

    Clients take an answer for "the name is taken", and the next key of a name that was let in again must come in.
    """
    known = aid(unit, name)
    return None if known is not None and known.state == "revoked" and known.kind == "agent" else current(unit, name)


def current(unit: Unit, name: str) -> Certificate | None:
    """The active identity certificate, else the newest there ever was."""
    found = certificates(unit, name)
    active = [one for one in found if one.state == ACTIVE]
    first = [one for one in active if one.purpose == "identity"] or active or found
    return first[0] if first else None


def revoke(unit: Unit, name: str, reason: str) -> int:
    """Revoke every certificate of an AID and the AID itself, drop its tokens; how many certificates that were."""
    second = unit.wall_us // SECOND
    gone = unit.run(_REVOKE, (second, reason, name))
    for serial, cert_sha256, spki_sha256, curve in gone:
        details = {"curve": curve, "public_key_sha256": spki_sha256, "reason": reason}
        _log(unit, "agent_cert_revoke", name, cast(str, serial), cast(str, cert_sha256), details)
    unit.run("UPDATE aid SET state = 'revoked' WHERE aid = ?", (name,))
    drop_tokens(unit, name)
    return len(gone)


def revoke_one(unit: Unit, serial: str, reason: str) -> None:
    """Revoke one certificate; its AID goes on with the others."""
    for name, cert_sha256, spki_sha256, curve in unit.run(_REVOKE_ONE, (unit.wall_us // SECOND, reason, serial)):
        details = {"curve": curve, "public_key_sha256": spki_sha256, "reason": reason}
        _log(unit, "agent_cert_revoke", cast(str, name), serial, cast(str, cert_sha256), details)


def revoked(unit: Unit) -> list[tuple[str, int, str]]:
    """(serial, when s UTC, reason) of every revoked certificate that has not ended, by time."""
    rows = unit.run(
        f"SELECT serial, revoked_at, reason FROM certificate WHERE state = '{REVOKED}' ORDER BY revoked_at, serial"
    )
    return [(cast(str, serial), cast(int, at), cast(str, reason)) for serial, at, reason in rows]


# -- reserved names ---------------------------------------------------------------------------------------------------


def reserve(unit: Unit, name: str, minutes: int) -> None:
    """Keep a name for one key from now on; again starts the time again."""
    at = unit.at
    unit.run("INSERT OR REPLACE INTO reservation VALUES (?, ?, ?, ?)", (name, at.boot, at.mono_us, minutes))


def reservation(unit: Unit, name: str) -> Reservation | None:
    """The reservation of a name, whether its time is over or not."""
    for found, boot, mono_us, minutes in unit.run("SELECT * FROM reservation WHERE name = ?", (name,)):
        return Reservation(cast(str, found), Stamp(cast(int, boot), cast(int, mono_us)), cast(int, minutes))
    return None


def reservations(unit: Unit) -> list[Reservation]:
    """Every reservation, by name."""
    names = unit.run("SELECT name FROM reservation ORDER BY name")
    return [kept for (name,) in names if (kept := reservation(unit, cast(str, name))) is not None]


def release(unit: Unit, name: str) -> bool:
    """End a reservation; whether there was one."""
    return bool(unit.run("DELETE FROM reservation WHERE name = ? RETURNING name", (name,)))


# -- tokens -----------------------------------------------------------------------------------------------------------

_CHAIN = """SELECT chain, aid, device, slot, token, previous, count, boot, mono_us, turned_boot, turned_us
    FROM refresh_token"""


def digest(token: str) -> bytes:
    """How a token is stored: tokens are 256 random bits, so one SHA-256 is enough."""
    return hashlib.sha256(token.encode()).digest()


def start_chain(unit: Unit, chain: str, name: str, token: bytes) -> None:
    """Keep the first refresh token of a login."""
    at = (unit.at.boot, unit.at.mono_us)
    unit.run("INSERT INTO refresh_token VALUES (?, ?, '', '', ?, x'', 0, ?, ?, ?, ?)", (chain, name, token, *at, *at))


def chain(unit: Unit, token: bytes) -> Chain | None:
    """The chain whose present or previous token this is."""
    found = unit.run(_CHAIN + " WHERE token = ? OR (previous = ? AND count > 0)", (token, token))
    return _to_chain(found[0]) if found else None


def turn_chain(unit: Unit, name: str, shown: bytes, fresh: bytes, device: str, slot: str) -> None:
    """Replace the token of a chain: `fresh` is good now, `shown` (what the caller just used) is the previous one."""
    unit.run(
        """UPDATE refresh_token SET token = ?, previous = ?, count = count + 1, device = ?, slot = ?,
        turned_boot = ?, turned_us = ? WHERE chain = ?""",
        (fresh, shown, device, slot, unit.at.boot, unit.at.mono_us, name),
    )


def drop_chain(unit: Unit, name: str) -> None:
    """Forget a chain: its tokens are void."""
    unit.run("DELETE FROM refresh_token WHERE chain = ?", (name,))


def trim_chains(unit: Unit, name: str, keep: int) -> int:
    """Forget the least recently used chains of an AID beyond `keep`; how many."""
    gone = unit.run(
        """DELETE FROM refresh_token WHERE chain IN (SELECT chain FROM refresh_token WHERE aid = ?
        ORDER BY turned_boot DESC, turned_us DESC, rowid DESC LIMIT -1 OFFSET ?) RETURNING chain""",
        (name, keep),
    )
    return len(gone)


def add_token(unit: Unit, token: NodeToken) -> None:
    """Keep a node token."""
    at = unit.at
    unit.run(
        "INSERT INTO node_token VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (token.token, token.prefix, token.name, token.aid, token.scopes, token.until_us, at.boot, at.mono_us),
    )


def node_token(unit: Unit, token: bytes) -> NodeToken | None:
    """A node token by its SHA-256."""
    found = unit.run("SELECT * FROM node_token WHERE token = ?", (token,))
    return _to_token(found[0]) if found else None


def node_tokens(unit: Unit) -> list[NodeToken]:
    """Every node token, by name."""
    return [_to_token(row) for row in unit.run("SELECT * FROM node_token ORDER BY name, prefix")]


def drop_tokens(unit: Unit, name: str) -> int:
    """Forget every refresh and node token of an AID; how many."""
    chains = unit.run("DELETE FROM refresh_token WHERE aid = ? RETURNING chain", (name,))
    return len(chains) + len(unit.run("DELETE FROM node_token WHERE aid = ? RETURNING prefix", (name,)))


def drop_chains(unit: Unit, name: str) -> int:
    """Forget every refresh token of an AID (its key changed); how many."""
    return len(unit.run("DELETE FROM refresh_token WHERE aid = ? RETURNING chain", (name,)))


# -- certificate transparency -----------------------------------------------------------------------------------------


def leaf_hash(entry: bytes) -> bytes:
    """RFC 6962 §2.1: SHA-256 of 0x00 and the leaf."""
    return hashlib.sha256(b"\x00" + entry).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """RFC 6962 §2.1: SHA-256 of 0x01 and both children."""
    return hashlib.sha256(b"\x01" + left + right).digest()


def ct_entries(unit: Unit, start: int, limit: int) -> list[CtEntry]:
    """Leaves from `start` on, in order, at most `limit`."""
    rows = unit.run("SELECT * FROM ct_entry WHERE leaf_index >= ? ORDER BY leaf_index LIMIT ?", (start, limit))
    return [msgspec.convert(row, CtEntry, strict=False) for row in map(_ct_fields, rows)]


def ct_size(unit: Unit) -> int:
    """How many leaves there are."""
    return cast(int, unit.run("SELECT coalesce(max(leaf_index), -1) + 1 FROM ct_entry")[0][0])


def _ct_fields(row: Sequence[object]) -> dict[str, object]:
    return dict(zip(CtEntry.__struct_fields__, row, strict=True))


def _log(unit: Unit, operation: str, name: str, serial: str, cert_sha256: str, details: dict[str, Any]) -> None:
    """Append a leaf: its index is dense, its hash covers the hash before it."""
    last = unit.run("SELECT leaf_index, entry_hash FROM ct_entry ORDER BY leaf_index DESC LIMIT 1")
    index = cast(int, last[0][0]) + 1 if last else 0
    previous = cast(bytes, last[0][1]) if last else bytes(32)
    issuer = name.partition(".")[2]
    log_id = hashlib.sha256(f"{index}|{operation}|{serial}|".encode() + previous).hexdigest()[:32]
    entry = canonical(
        {
            "log_id": log_id,
            "timestamp": unit.wall_us // 1000,
            "operation": operation,
            "subject": {"aid": name, "serial": serial, "cert_sha256": cert_sha256, "issuer": issuer},
            "details": details,
            "previous_hash": previous.hex(),
        }
    )
    unit.run(
        "INSERT INTO ct_entry VALUES (?, ?, ?, ?, ?, ?)", (index, log_id, serial, entry, leaf_hash(entry), previous)
    )


# -- published and generated cards ------------------------------------------------------------------------------------


def agent_md(unit: Unit, name: str) -> AgentMd | None:
    """The card somebody published for an AID."""
    for found, body, etag, signed, modified_s in unit.run("SELECT * FROM agent_md WHERE aid = ?", (name,)):
        return AgentMd(cast(str, found), cast(bytes, body), cast(str, etag), bool(signed), cast(int, modified_s))
    return None


def put_agent_md(unit: Unit, card: AgentMd) -> None:
    """Replace the card of an AID."""
    unit.run(
        "INSERT OR REPLACE INTO agent_md VALUES (?, ?, ?, ?, ?)",
        (card.aid, card.body, card.etag, int(card.signed), card.modified_s),
    )


def generated_md(unit: Unit, name: str, base: str) -> GeneratedMd | None:
    """The card the node made for an AID as seen under `base`."""
    for row in unit.run("SELECT * FROM generated_md WHERE aid = ? AND base = ?", (name, base)):
        return GeneratedMd(*cast("tuple[Any, ...]", row))
    return None


def generated_version(unit: Unit, name: str) -> tuple[int, str]:
    """The newest version of an AID's generated cards and the digest of what it says; (0, "") before the first."""
    rows = unit.run("SELECT version, content FROM generated_md WHERE aid = ? ORDER BY version DESC LIMIT 1", (name,))
    return (cast(int, rows[0][0]), cast(str, rows[0][1])) if rows else (0, "")


def put_generated_md(unit: Unit, card: GeneratedMd, keep: int) -> None:
    """Replace a generated card; the oldest beyond `keep` of the AID go (they can be made again)."""
    unit.run(
        "INSERT OR REPLACE INTO generated_md VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (card.aid, card.base, card.version, card.content, card.serial, card.body, card.etag, card.modified_s),
    )
    unit.run(
        """DELETE FROM generated_md WHERE aid = ? AND base NOT IN (SELECT base FROM generated_md WHERE aid = ?
        ORDER BY version DESC, rowid DESC LIMIT ?)""",
        (card.aid, card.aid, keep),
    )


# -- rows to records --------------------------------------------------------------------------------------------------


def _to_aid(row: Sequence[object]) -> Aid:
    name, kind, spki, state, generation, boot, mono_us = cast("tuple[str, str, bytes, str, int, int, int]", row)
    return Aid(name, kind, spki, state, generation, Stamp(boot, mono_us))


def _to_certificate(row: Sequence[object]) -> Certificate:
    return Certificate(**cast("dict[str, Any]", dict(zip(Certificate.__struct_fields__, row, strict=True))))


def _to_chain(row: Sequence[object]) -> Chain:
    chain, name, device, slot, token, previous, count, *stamps = cast("tuple[Any, ...]", row)
    made, turned = Stamp(stamps[0], stamps[1]), Stamp(stamps[2], stamps[3])
    return Chain(chain, name, device, slot, token, previous, count, made, turned)


def _to_token(row: Sequence[object]) -> NodeToken:
    token, prefix, name, aid, scopes, until_us, boot, mono_us = cast("tuple[Any, ...]", row)
    return NodeToken(token, prefix, name, aid, scopes, until_us, Stamp(boot, mono_us))
