"""A small certificate authority for tests of TLS."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

BEGIN = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
END = datetime.datetime(2120, 1, 1, tzinfo=datetime.UTC)


class Authority:
    """Issues certificates into a folder."""

    def __init__(self, folder: Path, name: str = "Test CA") -> None:
        self.folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._serial = 1
        own = _name(name)
        builder = _builder(own, own, self._key.public_key(), 1)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        self._cert = builder.sign(self._key, hashes.SHA256())
        self.file = folder / "ca.pem"
        self.file.write_bytes(self._cert.public_bytes(serialization.Encoding.PEM))

    def issue(
        self, name: str, *, dns: str = "", file: str = "", end: datetime.datetime | None = None
    ) -> tuple[Path, Path]:
        """Certificate and key files of a name; `dns` is an alternative name."""
        self._serial += 1
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(_name(name), self._cert.subject, key.public_key(), self._serial, end or END)
        if dns:
            address = x509.IPAddress(ipaddress.ip_address("127.0.0.1"))
            builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName(dns), address]), critical=False)
        cert = self.folder / f"{file or name}.crt"
        secret = self.folder / f"{file or name}.key"
        cert.write_bytes(builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        secret.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
        return cert, secret

    def revoke(self, *certificates: Path) -> None:
        """Put a list of revoked certificates into the authority's file, behind its own certificate."""
        made = x509.CertificateRevocationListBuilder().issuer_name(self._cert.subject)
        made = made.last_update(BEGIN).next_update(END)
        for one in certificates:
            serial = x509.load_pem_x509_certificate(one.read_bytes()).serial_number
            made = made.add_revoked_certificate(
                x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(BEGIN).build()
            )
        pem = serialization.Encoding.PEM
        self.file.write_bytes(self._cert.public_bytes(pem) + made.sign(self._key, hashes.SHA256()).public_bytes(pem))

    def server(self, name: str = "server", *, clients: bool = False) -> ssl.SSLContext:
        """A server's context for `localhost`; `clients`: it asks for client certificates."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*self.issue(name, dns="localhost"))
        if clients:
            context.load_verify_locations(self.file)
            context.verify_mode = ssl.CERT_OPTIONAL
        return context

    def client(self, name: str = "", *, dns: str = "") -> ssl.SSLContext:
        """A client's context; with `name` it shows a certificate."""
        context = ssl.create_default_context(cafile=str(self.file))
        if name:
            context.load_cert_chain(*self.issue(name, dns=dns))
        return context


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, serial: int, end: datetime.datetime = END
) -> x509.CertificateBuilder:
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key)
    return builder.serial_number(serial).not_valid_before(BEGIN).not_valid_after(end)
