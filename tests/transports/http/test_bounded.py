"""What both protocols share: the certificate that a client showed, and how many connections an address has."""

from __future__ import annotations

import asyncio
import datetime
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from websockets.asyncio.client import connect

from edge.contract.limit import Limits
from edge.session.doors import certificate_of
from edge.transports.http.bounded import Terms
from tests.support.clock import FakeClock
from tests.support.sessions import House, gateway


async def certificate(request: Request) -> Response:
    return Response(certificate_of(request))


ROUTES: list[BaseRoute] = [Route("/certificate", certificate)]


def test_an_address_has_as_many_connections_as_it_opened_and_did_not_close() -> None:
    terms = Terms(FakeClock(), Limits())
    for address in ("192.0.2.1", "192.0.2.1", "192.0.2.2"):
        terms.join(address)
    assert terms.addresses == {"192.0.2.1": 2, "192.0.2.2": 1}
    for address in ("192.0.2.1", "192.0.2.2"):
        terms.leave(address)
    assert terms.addresses == {"192.0.2.1": 1}


def issue(
    folder: Path, name: str, issuer: tuple[x509.Certificate, ec.EllipticCurvePrivateKey] | None = None
) -> tuple[x509.Certificate, ec.EllipticCurvePrivateKey]:
    """A certificate and its key, self-signed without an issuer; both also as `<name>.crt` and `<name>.key`."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer[0].subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None), critical=True)
        .sign(issuer[1] if issuer else key, hashes.SHA256())
    )
    (folder / f"{name}.crt").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / f"{name}.key").write_bytes(
        key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return made, key


def client_context(folder: Path, name: str = "") -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=folder / "ca.crt")
    if name:
        context.load_cert_chain(folder / f"{name}.crt", folder / f"{name}.key")
    return context


def server_context(folder: Path, client_cert: ssl.VerifyMode = ssl.CERT_NONE) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.crt", folder / "server.key")
    context.load_verify_locations(folder / "ca.crt")
    context.verify_mode = client_cert
    return context


async def fetch(house: House, context: ssl.SSLContext) -> bytes | None:
    """The body, None when TLS ended before any answer (in TLS 1.3 a refusal comes after the client's handshake)."""
    reader, writer = await asyncio.open_connection(*house.listener.address, ssl=context, server_hostname="localhost")
    writer.write(b"GET /certificate HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    try:
        answer = await reader.read()
    except (ssl.SSLError, ConnectionResetError):
        answer = b""
    finally:
        writer.close()
    return answer.partition(b"\r\n\r\n")[2] if answer else None


@pytest.mark.parametrize("http", ["httptools", "h11"])
async def test_a_verified_client_certificate_is_in_the_scope(tmp_path: Path, http: str) -> None:
    ca = issue(tmp_path, "ca")
    issue(tmp_path, "server", ca)
    mine, _ = issue(tmp_path, "client", ca)
    issue(tmp_path, "stranger", issue(tmp_path, "other"))
    async with gateway(routes=ROUTES, tls=server_context(tmp_path, ssl.CERT_OPTIONAL), http=http) as house:
        assert house.listener.url.startswith("https://")
        assert await fetch(house, client_context(tmp_path, "client")) == mine.public_bytes(serialization.Encoding.DER)
        assert await fetch(house, client_context(tmp_path)) == b""
        assert await fetch(house, client_context(tmp_path, "stranger")) is None
    async with gateway(routes=ROUTES, tls=server_context(tmp_path, ssl.CERT_REQUIRED), http=http) as house:
        assert await fetch(house, client_context(tmp_path)) is None


async def test_a_web_socket_carries_the_certificate_and_the_context_reloads(tmp_path: Path) -> None:
    ca = issue(tmp_path, "ca")
    issue(tmp_path, "server", ca)
    context = server_context(tmp_path)
    async with gateway(tls=context) as house:
        url = house.listener.url.replace("https", "wss").replace("127.0.0.1", "localhost") + "/aun"
        async with connect(url, ssl=client_context(tmp_path), proxy=None) as socket:
            assert b"challenge" in (await socket.recv(decode=False))
            renewed, _ = issue(tmp_path, "server", ca)
            context.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
            _, writer = await asyncio.open_connection(
                *house.listener.address, ssl=client_context(tmp_path), server_hostname="localhost"
            )
            seen = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
            assert seen == renewed.public_bytes(serialization.Encoding.DER)
            writer.close()
            await socket.send("{")
            assert b"-32700" in (await socket.recv(decode=False))
