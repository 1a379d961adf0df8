from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from cryptography import x509

from edge.contract.time import SECOND
from edge.protocol import keys, pki
from edge.store import keyring
from edge.store.keyring import Identity, IdentityError, TlsFiles, load_identity

NOW_US = 1_750_000_000 * SECOND
FLOOR_US = NOW_US - 400 * 86_400 * SECOND
DAY_US = 86_400 * SECOND
UNSURE = 10**15


def load(folder: Path, issuer: str | None = None, now_us: int = NOW_US, unsure_us: int = 0, **more: object) -> Identity:
    return load_identity(folder, issuer, now_us, FLOOR_US, unsure_us, **more)  # type: ignore[arg-type]


def test_the_first_start_makes_an_identity_and_the_next_finds_it(tmp_path: Path) -> None:
    made, again = load(tmp_path), load(tmp_path)
    assert made.issuer.startswith("n")
    assert made.issuer.endswith(".aun-edge.internal")
    assert len(made.issuer.partition(".")[0]) == 11
    assert (again.issuer, again.seed, again.chain_pem, again.auth) == (
        made.issuer,
        made.seed,
        made.chain_pem,
        made.auth,
    )
    assert keyring.private_issuer(keys.spki_of(made.root.key.public_key())) == made.issuer


def test_a_given_issuer_is_kept_and_another_refused(tmp_path: Path) -> None:
    assert load(tmp_path, "Home.Example.org.").issuer == "home.example.org"
    assert load(tmp_path).issuer == "home.example.org"
    with pytest.raises(IdentityError, match=r"fixed at its first start; other\.org is another"):
        load(tmp_path, "other.org")


@pytest.mark.parametrize("issuer", ["-x", "a b", "x" * 65, "a..b"])
def test_an_issuer_must_be_a_domain_name(tmp_path: Path, issuer: str) -> None:
    with pytest.raises(IdentityError, match="no domain name"):
        load(tmp_path, issuer)


def test_only_the_owner_may_read(tmp_path: Path) -> None:
    load(tmp_path)
    for path in (tmp_path / "identity").rglob("*"):
        assert path.stat().st_mode & 0o777 == (0o700 if path.is_dir() else 0o600)
    assert (tmp_path / "identity").stat().st_mode & 0o777 == 0o700


def test_a_crash_half_way_leaves_nothing_half_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Crash(BaseException):
        pass

    def crash(path: Path) -> None:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(keyring, "sync_directory", crash)
        with pytest.raises(Crash):
            load(tmp_path)
    assert not (tmp_path / "identity" / "pki").exists()
    assert (tmp_path / "identity" / "pki.new").exists()
    (tmp_path / "identity" / "incarnation").write_text("kept")
    assert load(tmp_path).issuer == load(tmp_path).issuer
    assert not (tmp_path / "identity" / "pki.new").exists()
    assert (tmp_path / "identity" / "incarnation").read_text() == "kept"


@pytest.mark.parametrize("name", ["seed", "issuer", "root.pem", "certificates.json", "auth.key"])
def test_a_damaged_identity_is_named_and_never_replaced(tmp_path: Path, name: str) -> None:
    load(tmp_path)
    path = tmp_path / "identity" / "pki" / name
    if name == "auth.key":
        path.unlink()
    else:
        path.write_bytes(b"\xff" if name != "seed" else b"short")
    with pytest.raises(IdentityError, match="restore it from a backup"):
        load(tmp_path)
    assert (tmp_path / "identity" / "pki" / "root.key").exists()


def test_a_damaged_key_is_named_when_it_is_needed(tmp_path: Path) -> None:
    made = load(tmp_path)
    (tmp_path / "identity" / "pki" / "auth.key").write_text("no key")
    with pytest.raises(IdentityError, match=r"auth\.key is damaged"):
        assert made.auth_key


def test_the_chain_is_issuer_registry_root(tmp_path: Path) -> None:
    made = load(tmp_path, "edge.test")
    chain = pki.parse(made.chain_pem)
    assert [one.subject for one in chain[1:]] == [one.issuer for one in chain[:-1]]
    auth = x509.load_pem_x509_certificate(made.auth.pem.encode())
    auth.verify_directly_issued_by(chain[0])
    assert made.auth.aid == "auth.edge.test"
    assert made.auth.curve == "P-384"
    assert made.auth.cert_sha256 == keys.sha256(keys.der_of(made.auth.pem))


def test_issuing_certifies_the_key_that_was_given(tmp_path: Path) -> None:
    made, key = load(tmp_path, "edge.test"), keys.generate("P-256")
    spki = keys.spki_of(key.public_key())
    issued = made.issue("alice.edge.test", spki, NOW_US, 0, "http://edge.test")
    found = x509.load_pem_x509_certificate(issued.pem.encode())
    found.verify_directly_issued_by(pki.parse(made.chain_pem)[0])
    assert keys.spki_of(found.public_key()) == spki  # type: ignore[arg-type]
    assert (issued.start, issued.sure) == (NOW_US // SECOND - 600, True)
    unsure = made.issue("alice.edge.test", spki, NOW_US, UNSURE)
    assert (unsure.start, unsure.sure) == (FLOOR_US // SECOND - 86_400, False)


def test_tokens_name_the_present_and_past_auth_certificates(tmp_path: Path) -> None:
    made = load(tmp_path)
    first = made.auth.serial
    assert made.token_key(first) is not None
    later = load(tmp_path, now_us=NOW_US + 600 * DAY_US)
    assert later.auth.serial != first
    assert later.token_key(first) is not None
    assert later.token_key(later.auth.serial) is not None
    assert later.token_key("1234") is None


def test_leafs_are_made_again_when_due_and_only_then(tmp_path: Path) -> None:
    made = load(tmp_path)
    assert made.renew_leafs(NOW_US + 200 * DAY_US, 0) == []
    assert made.renew_leafs(NOW_US + 350 * DAY_US, 0) == ["tls"]
    assert made.renew_leafs(NOW_US + 700 * DAY_US, 0) == ["auth", "tls"]
    assert made.renew_leafs(NOW_US + 5000 * DAY_US, UNSURE) == []
    assert Identity(tmp_path / "identity" / "pki", FLOOR_US).auth == made.auth


def test_leafs_made_without_the_time_are_made_again_once_it_is_known(tmp_path: Path) -> None:
    made = load(tmp_path, unsure_us=UNSURE)
    assert made.auth.start == FLOOR_US // SECOND - 86_400
    assert not made.auth.sure
    assert made.renew_leafs(NOW_US, UNSURE) == []
    assert made.renew_leafs(NOW_US, 0) == ["auth", "tls"]
    assert made.auth.sure
    assert made.renew_leafs(NOW_US, 0) == []


def test_new_names_make_a_new_tls_certificate(tmp_path: Path) -> None:
    made = load(tmp_path, "edge.test", names=["Box.LAN", "192.168.1.5"])
    leaf = pki.parse(made.tls_cert.read_bytes())[0]
    found = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert found.get_values_for_type(x509.DNSName) == ["edge.test", "*.edge.test", "localhost", "box.lan"]
    assert made.renew_leafs(NOW_US, 0, ["box.lan", "192.168.1.5"]) == []
    assert made.renew_leafs(NOW_US, UNSURE, ["other.lan"]) == ["tls"]


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, name: str = "gateway.edge.test") -> ssl.SSLObject:
    """Both sides in memory; what the server's side knows afterwards."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(to_client, to_server, server_hostname=name)
    far = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(6):
        for side in (near, far):
            try:
                side.do_handshake()
            except ssl.SSLWantReadError:
                continue
    return far


def client_for(made: Identity) -> ssl.SSLContext:
    """A client that trusts our TLS CA. Its certificate begins before the present, whenever the test runs."""
    return ssl.create_default_context(cafile=str(made.tls_ca))


def now_us() -> int:
    path = Path("/proc/self")
    return int(path.stat().st_mtime) * SECOND


def test_our_own_certificate_serves_tls_and_reloads_in_place(tmp_path: Path) -> None:
    made = load(tmp_path, "edge.test", now_us=now_us())
    context = made.tls_context(TlsFiles())
    assert handshake(context, client_for(made)).version() == "TLSv1.3"
    made.renew_leafs(now_us(), 0, ["more.lan"])
    with pytest.raises(ssl.SSLCertVerificationError):
        handshake(context, client_for(made), "more.lan")
    made.reload_tls(context, TlsFiles())
    assert handshake(context, client_for(made), "more.lan").version() == "TLSv1.3"


def test_the_operators_certificate_and_client_ca_are_used(tmp_path: Path) -> None:
    made, theirs = load(tmp_path / "a", "edge.test"), load(tmp_path / "b", "other.test", now_us=now_us())
    files = TlsFiles(
        cert=str(theirs.tls_cert),
        key=str(theirs.tls_key),
        client_ca=str(theirs.tls_ca),
        client_cert="required",
        min_version="1.3",
    )
    context = made.tls_context(files)
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.minimum_version is ssl.TLSVersion.TLSv1_3
    client = client_for(theirs)
    client.maximum_version = ssl.TLSVersion.TLSv1_2
    with pytest.raises(ssl.SSLError):
        handshake(context, client, "other.test")
    optional = made.tls_context(TlsFiles(client_ca=str(theirs.tls_ca), client_cert="optional"))
    assert optional.verify_mode is ssl.CERT_OPTIONAL


def test_what_is_not_there_or_cannot_be_read_fixes_no_issuer(tmp_path: Path) -> None:
    assert keyring.fixed_issuer(tmp_path, "edge.test") == ""
    load(tmp_path, "edge.test")
    assert keyring.fixed_issuer(tmp_path, "") == ""
    assert keyring.fixed_issuer(tmp_path, " Edge.Test. ") == ""
    assert keyring.fixed_issuer(tmp_path, "other.test") == "edge.test"
    (tmp_path / "identity" / "pki" / "issuer").write_bytes(b"\xff")
    assert keyring.fixed_issuer(tmp_path, "other.test") == ""
