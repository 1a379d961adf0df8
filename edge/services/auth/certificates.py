"""A verified TLS client certificate is a principal (settled G02).

TLS has proved the key and the chain; here it is decided whose it is. A certificate of our own issuer must be one we
issued and still stand by; one of the operator's authority (`tls.client_ca`) names an agent in its common name.
"""

from __future__ import annotations

from edge.contract.errors import CertificateInvalid
from edge.contract.principal import Principal
from edge.contract.store import Store, Unit
from edge.contract.time import SECOND, Clock, wall_us
from edge.protocol import keys
from edge.services.auth.tokens import agent
from edge.store import identity as tables
from edge.store.keyring import Identity

VIA = "certificate"


class CertificateDesk:
    """Certificates of callers, as DER. One per node."""

    def __init__(self, store: Store, clock: Clock, identity: Identity) -> None:
        self._store, self._clock, self._identity = store, clock, identity

    async def principal(self, der: bytes) -> Principal | None:
        """Whose certificate it is, None when it names nobody here. Raises `CertificateInvalid` when revoked or over."""
        from cryptography import x509
        from cryptography.x509.oid import NameOID

        found = x509.load_der_x509_certificate(der)
        names = found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        name = str(names[0].value).strip().lower() if names else ""
        if found.not_valid_after_utc.timestamp() * SECOND < wall_us(self._clock):
            raise CertificateInvalid("the client certificate has expired: renew it")
        ours = found.issuer == self._identity.authority.certificate.subject
        aid = name if name.endswith(f".{self._identity.issuer}") else f"{name}.{self._identity.issuer}"
        fingerprint = keys.sha256(der)
        return await self._store.read(lambda unit: self._whose(unit, aid, fingerprint if ours else ""))

    def _whose(self, unit: Unit, aid: str, fingerprint: str) -> Principal | None:
        """`fingerprint` is given for certificates of our own issuer."""
        if fingerprint:
            held = tables.by_fingerprint(unit, aid, fingerprint)
            if held is None or held.state != tables.ACTIVE:
                raise CertificateInvalid("the client certificate is revoked or replaced")
        return agent(aid, VIA) if tables.known(unit, aid) else None
