"""`client_signature`: an agent signs the calls that change something; who sends one must send a good one.

Spec aun-connect §7.7: SHA-256 over the canonical JSON of the params without `client_signature` and without top-level
keys that begin with `_`; signed text `method|aid|timestamp|params_hash`. A call without one is accepted.
"""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from edge.contract.errors import SignatureInvalid
from edge.contract.limit import Limits, declare
from edge.contract.principal import Principal
from edge.contract.store import Store, Unit
from edge.contract.time import SECOND, Clock
from edge.contract.wire import JsonLimits, canonical, loads
from edge.protocol import keys
from edge.store import identity as tables
from edge.store.keyring import SURE_US

SKEW = declare("auth.signature_skew_s", 300, "s", "between a client signature and our time", SignatureInvalid)
SIGNERS = declare("auth.cached_signers", 1024, "AIDs", "whose key is remembered; above, all are read again", None)


class Signed(msgspec.Struct, frozen=True):
    """The object that clients add."""

    aid: str
    cert_fingerprint: str
    timestamp: str
    params_hash: str
    signature: str


class Signatures:
    """Checks client signatures. Signers' keys are remembered until `forget`."""

    def __init__(self, store: Store, clock: Clock, limits: Limits) -> None:
        self._store, self._clock, self._limits = store, clock, limits
        self._signers: dict[str, dict[str, bytes]] = {}

    def forget(self) -> None:
        """Read keys again: one was replaced or revoked."""
        self._signers.clear()

    async def check(self, method: str, params: bytes, who: Principal) -> None:
        """Verify the signature in `params` if there is one. Raises `SignatureInvalid`."""
        if b'"client_signature"' not in params:
            return
        fields: dict[str, Any] = loads(params, JsonLimits(octets=len(params), depth=64))
        if "client_signature" not in fields:
            return
        try:
            signed = msgspec.convert(fields.pop("client_signature"), Signed)
        except msgspec.ValidationError as error:
            raise SignatureInvalid(f"client_signature: {error}") from None
        if signed.aid != who.aid:
            raise SignatureInvalid("client_signature is of another AID")
        self._fresh(signed.timestamp)
        digest = hashlib.sha256(canonical({k: v for k, v in fields.items() if not k.startswith("_")})).hexdigest()
        if digest != signed.params_hash:
            raise SignatureInvalid("client_signature is of other params")
        spki = await self._key(who.aid, keys.fingerprint(signed.cert_fingerprint))
        keys.verify(spki, f"{method}|{signed.aid}|{signed.timestamp}|{digest}".encode(), signed.signature)

    def _fresh(self, timestamp: str) -> None:
        if not timestamp.isascii() or not timestamp.isdecimal() or len(timestamp) > 12:
            raise SignatureInvalid("client_signature: timestamp must be whole seconds since 1970")
        now_us, unsure_us = self._clock.wall(self._clock.now())
        if unsure_us <= SURE_US and abs(now_us // SECOND - int(timestamp)) > self._limits[SKEW]:
            raise self._limits.refuse(SKEW, "is the client's clock right?")

    async def _key(self, aid: str, fingerprint: str) -> bytes:
        """The present key of an AID, when the fingerprint is of a certificate of that key, or one nobody here knows.

        A restore forgets what was issued after the backup, and clients go on with it: then the key alone decides.
        """
        kept = self._signers.get(aid, {}).get(fingerprint)
        if kept is not None:
            return kept
        found, known = await self._store.read(lambda unit: _present(unit, aid, fingerprint))
        if known:
            if len(self._signers) >= self._limits[SIGNERS]:
                self._limits.hit(SIGNERS)
                self._signers.clear()
            self._signers.setdefault(aid, {})[fingerprint] = found
        return found


def _present(unit: Unit, aid: str, fingerprint: str) -> tuple[bytes, bool]:
    """The present key of an AID, and whether the fingerprint is of a certificate of its."""
    signer = tables.aid(unit, aid)
    found = tables.by_fingerprint(unit, aid, fingerprint) if fingerprint else None
    if found is None:
        good = bool(fingerprint) and not tables.fingerprint_known(unit, fingerprint)
    else:
        good = found.state != tables.REVOKED
    if signer is None or signer.state != "active" or not good:
        raise SignatureInvalid("client_signature names no certificate of this AID")
    if found is not None and keys.sha256(signer.spki) != found.spki_sha256:
        raise SignatureInvalid("client_signature is by a key that was replaced")
    return signer.spki, found is not None
