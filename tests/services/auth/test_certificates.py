from __future__ import annotations

import datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from edge.contract.errors import CertificateInvalid
from edge.contract.time import SECOND, wall_us
from edge.services.auth.certificates import CertificateDesk
from tests.support.node import agent, running


def self_signed(name: str, end_us: int) -> bytes:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)] if name else [])
    end = datetime.datetime.fromtimestamp(end_us / SECOND, datetime.UTC)
    built = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "operator's authority")]))
        .public_key(key.public_key())
        .serial_number(7)
        .not_valid_before(end - datetime.timedelta(days=2))
        .not_valid_after(end)
    )
    return built.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.DER)


async def test_the_operators_certificate_names_an_agent_by_name_or_aid(tmp_path: Path) -> None:
    async with running(tmp_path / "state") as node:
        await agent(node, "alice")
        desk = CertificateDesk(node.house.node, node.house.clock, node.house.identity)
        later = wall_us(node.house.clock) + 86_400 * SECOND
        for name in ("alice", "Alice.edge.test"):
            who = await desk.principal(self_signed(name, later))
            assert who is not None
            assert (who.aid, who.via) == ("alice.edge.test", "certificate")
        for name in ("nobody", ""):
            assert await desk.principal(self_signed(name, later)) is None


async def test_an_expired_certificate_is_nobodys_any_more(tmp_path: Path) -> None:
    async with running(tmp_path / "state") as node:
        desk = CertificateDesk(node.house.node, node.house.clock, node.house.identity)
        with pytest.raises(CertificateInvalid, match="expired"):
            await desk.principal(self_signed("alice", wall_us(node.house.clock) - SECOND))
