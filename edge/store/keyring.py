"""The node's keys and certificates on disk: made once, at the first start, and read ever after (design D10, D19).

Everything lies in `<state>/identity/pki/` (files 0600, folders 0700). The folder is made under another name and
renamed, so there is either a whole identity or none. Certificates that may be made again (auth service, TLS leaf)
stand in `certificates.json` and `tls.pem`. Reading them needs no cryptography library: it is imported when the first
signature is asked for.
"""

from __future__ import annotations

import base64
import hashlib
import logging
import os
import shutil
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from edge.contract.errors import Malformed
from edge.contract.time import SECOND
from edge.contract.wire import decode, dumps, loads
from edge.protocol import keys
from edge.protocol.aid import valid_issuer
from edge.system.files import sync_directory, write_atomic

if TYPE_CHECKING:
    import ssl

    from cryptography import x509
    from cryptography.hazmat.primitives.asymmetric import ec

    from edge.protocol.pki import Authority, Window

log = logging.getLogger(__name__)

SURE_US = 300 * SECOND
"""Wall time known to less than this counts as known; the back-dating of certificates covers it."""

PRIVATE_SUFFIX = "aun-edge.internal"
MAX_ISSUER = 64
"""The issuer is the common name of its CA, and X.520 ends those at 64 characters."""

_SEED = 32
_END = "-----END CERTIFICATE-----"


class IdentityError(Exception):
    """The node cannot have this identity: says what, why and what to do."""


class Issued(msgspec.Struct, frozen=True, kw_only=True):
    """A certificate, as tables and answers need it. Times are whole seconds since 1970 UTC."""

    serial: str
    aid: str
    pem: str
    cert_sha256: str
    spki_sha256: str
    curve: str
    start: int
    end: int
    sure: bool = True


class TlsFiles(msgspec.Struct, frozen=True, kw_only=True):
    """What the operator brings (settled G32): PEM paths, "" for our own; `client_cert` is off, optional, required."""

    cert: str = ""
    key: str = ""
    client_ca: str = ""
    client_cert: str = "off"
    min_version: str = "1.2"


class _Tls(msgspec.Struct, frozen=True):
    names: list[str]
    start: int
    end: int
    sure: bool


class _Certificates(msgspec.Struct, frozen=True):
    auth: Issued
    tls: _Tls
    past: list[str] = []
    """Serial numbers of earlier auth certificates: tokens that name them are still good."""


def load_identity(
    state_dir: Path,
    issuer: str | None,
    now_us: int,
    floor_us: int,
    uncertainty_us: int = 0,
    names: Sequence[str] = (),
) -> Identity:
    """The identity in `state_dir`, made now if there is none.

    `names` are further host names and addresses of the TLS certificate. Leaf certificates that are due (names
    changed, near their end, made while the time was unsure and now it is known) are made again.
    Raises `IdentityError` when another issuer is asked for or files are damaged.
    """
    asked = _asked(issuer)
    home = state_dir / "identity"
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    home.chmod(0o700)
    if not (home / "pki").is_dir():
        _make(home, asked, now_us, floor_us, uncertainty_us, names)
    identity = Identity(home / "pki", floor_us)
    if asked and asked != identity.issuer:
        raise IdentityError(
            f"the issuer of this node is {identity.issuer}, fixed at its first start; {asked} is another: "
            "leave --issuer out, or start a new node with another --state-dir"
        )
    try:
        identity.renew_leafs(now_us, uncertainty_us, names)
    except OSError as error:
        log.error("certificates that are due cannot be written, the old ones stay: %s", error)
    return identity


def fixed_issuer(state_dir: Path, asked: str) -> str:
    """The issuer that the first start fixed, when `asked` is another; "" when it is the same, or when nothing is fixed.

    What cannot be read fixes nothing: `load_identity` says what is wrong with it."""
    try:
        fixed = (state_dir / "identity" / "pki" / "issuer").read_text().strip()
    except (OSError, UnicodeError):
        return ""
    return "" if _plain(asked) in ("", fixed) else fixed


class Identity:
    """Who this node is: its issuer name, its authorities, its own certificates.

    `issuer` the domain behind every AID; `seed` 32 secret bytes that device keys come from; `chain_pem` issuer,
    registry, root; `aun_root` and `tls_ca` are PEM paths to hand to clients.
    """

    def __init__(self, folder: Path, floor_us: int) -> None:
        """Raises `IdentityError`."""
        self._folder = folder
        self.floor_us = floor_us
        self.aun_root, self.tls_ca = folder / "root.pem", folder / "tls-ca.pem"
        self.tls_cert, self.tls_key = folder / "tls.pem", folder / "tls.key"
        try:
            self.issuer = (folder / "issuer").read_text().strip()
            self.seed = (folder / "seed").read_bytes()
            self.root_pem = self.aun_root.read_text()
            self.issuer_pem = (folder / "issuer.pem").read_text()
            self.chain_pem = self.issuer_pem + (folder / "registry.pem").read_text() + self.root_pem
            self.tls_ca_pem = self.tls_ca.read_text()
            raw = (folder / "certificates.json").read_bytes()
            loads(raw)
            self._own = decode(raw, _Certificates)
            for name in ("root", "registry", "issuer", "auth", "tls-ca", "tls"):
                (folder / f"{name}.key").stat()
        except (OSError, UnicodeError, Malformed) as error:
            raise IdentityError(
                f"the identity in {folder} is damaged ({error}): restore it from a backup; "
                "moving the folder away makes a new node, and every client must register again"
            ) from None
        if len(self.seed) != _SEED or not valid_issuer(self.issuer):
            raise IdentityError(f"the identity in {folder} is damaged (seed or issuer): restore it from a backup")

    @property
    def chain(self) -> list[str]:
        """Issuer, registry, root: a PEM each."""
        return [f"{part.strip()}\n{_END}\n" for part in self.chain_pem.split(_END) if part.strip()]

    @property
    def auth(self) -> Issued:
        """The certificate of `auth.<issuer>`, whose key signs login answers and tokens."""
        return self._own.auth

    @property
    def tls_until(self) -> int:
        """When our own TLS certificate ends, s UTC."""
        return self._own.tls.end

    @cached_property
    def auth_key(self) -> ec.EllipticCurvePrivateKey:
        """The P-384 key of the auth service; it also signs tokens."""
        return self._key("auth")

    @cached_property
    def authority(self) -> Authority:
        """The issuer CA: signs every AID certificate, the CRL and OCSP answers."""
        return self._authority("issuer")

    @cached_property
    def root(self) -> Authority:
        """The root CA: signs the trust list."""
        return self._authority("root")

    def token_key(self, kid: str) -> ec.EllipticCurvePublicKey | None:
        """The key that signed tokens naming `kid`, the serial of a present or past auth certificate."""
        if kid == self._own.auth.serial or kid in self._own.past:
            return self.auth_key.public_key()
        return None

    def issue(self, aid: str, spki: bytes, now_us: int, uncertainty_us: int, base: str = "") -> Issued:
        """Certify a key for an AID of this issuer; slow enough to belong off the loop. `base`: where `/pki` is."""
        from edge.protocol import pki

        valid = pki.window(now_us, self.floor_us, uncertainty_us <= SURE_US, pki.AID_DAYS)
        return _issued(self.authority, aid, keys.public(spki), valid, base)

    def recognise(self, aid: str, spki: bytes, pem: str) -> Issued | None:
        """A certificate that this issuer signed for this AID and key, read back; None for any other.

        Slow enough to belong off the loop. Raises `CertificateInvalid` for what is no PEM.
        """
        from cryptography import x509
        from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
        from cryptography.x509.oid import NameOID

        from edge.protocol import pki

        try:
            found = x509.load_der_x509_certificate(keys.der_of(pem))
            found.verify_directly_issued_by(self.authority.certificate)
            names = [str(one.value) for one in found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
            if names != [aid] or keys.spki_of(found.public_key()) != spki:  # type: ignore[arg-type]
                return None
        except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
            return None
        start, end = found.not_valid_before_utc.timestamp(), found.not_valid_after_utc.timestamp()
        return _record(found, aid, keys.public(spki), pki.Window(int(start), int(end)))

    def key_of(self, aid: str, generation: int) -> ec.EllipticCurvePrivateKey:
        """The key of a device or service AID of this node; derived, never stored (design D15)."""
        return keys.derive(self.seed, aid, generation)

    def renew_leafs(self, now_us: int, uncertainty_us: int, names: Sequence[str] = ()) -> list[str]:
        """Make auth and TLS certificates again where they are due; which were made."""
        sure = uncertainty_us <= SURE_US
        wanted = tls_names(self.issuer, names)
        own, made = self._own, []
        if _due(own.auth.start, own.auth.end, own.auth.sure, sure, now_us):
            fresh = _auth(self.authority, self.issuer, self.auth_key, now_us, self.floor_us, sure)
            own = msgspec.structs.replace(own, auth=fresh, past=[own.auth.serial, *own.past][:8])
            made.append("auth")
        if own.tls.names != wanted or _due(own.tls.start, own.tls.end, own.tls.sure, sure, now_us):
            pem, tls = _tls(self._authority("tls-ca"), self._key("tls"), wanted, now_us, self.floor_us, sure)
            write_atomic(self.tls_cert, pem.encode())
            own = msgspec.structs.replace(own, tls=tls)
            made.append("tls")
        if made:
            write_atomic(self._folder / "certificates.json", dumps(own))
            self._own = own
        return made

    def tls_context(self, files: TlsFiles) -> ssl.SSLContext:
        """A server context with the operator's certificate or ours.

        Raises `OSError`, with the name of a file that cannot be read, or `ssl.SSLError`, with the settings whose files
        are not what they should be."""
        import ssl

        for name in (files.cert, files.key, files.client_ca):
            if name:
                open(name, "rb").close()  # OpenSSL would not say which file it is
        try:
            return self._tls_context(files)
        except ssl.SSLError as error:
            brought = {"tls.cert": files.cert, "tls.key": files.key, "tls.client_ca": files.client_ca}
            named = ", ".join(f"{key} = {name}" for key, name in brought.items() if name)
            raise ssl.SSLError(error.errno, f"{error.strerror}; {named}") from None

    def _tls_context(self, files: TlsFiles) -> ssl.SSLContext:
        import ssl

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        newest = files.min_version == "1.3"
        context.minimum_version = ssl.TLSVersion.TLSv1_3 if newest else ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        if files.client_cert != "off":
            if files.client_ca:
                self.reload_clients(context, files)
            else:
                context.load_verify_locations(cadata=self.chain_pem)
            context.verify_mode = ssl.CERT_REQUIRED if files.client_cert == "required" else ssl.CERT_OPTIONAL
            context.num_tickets = 0  # a resumed session would bring a certificate that nobody looks at again
            context.options |= ssl.OP_NO_TICKET
        self.reload_tls(context, files)
        return context

    def reload_clients(self, context: ssl.SSLContext, files: TlsFiles) -> int:
        """Load the authorities of clients, and their revocation lists if the file has any, into the same context.

        What a context trusts it trusts as long as it lives: how many authorities it has that the file has no more.
        Raises `OSError` or `ssl.SSLError`; nothing has changed then.
        """
        import ssl

        found = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        found.load_verify_locations(cafile=files.client_ca)
        context.load_verify_locations(cafile=files.client_ca)
        if found.cert_store_stats()["crl"]:
            context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF
        return len(set(context.get_ca_certs(binary_form=True)) - set(found.get_ca_certs(binary_form=True)))

    def reload_tls(self, context: ssl.SSLContext, files: TlsFiles) -> None:
        """Load the certificate again into the same context: new connections get it, running ones go on."""
        if files.cert:
            context.load_cert_chain(files.cert, files.key or None)
        else:
            context.load_cert_chain(self.tls_cert, self.tls_key)

    def _key(self, name: str) -> ec.EllipticCurvePrivateKey:
        try:
            return keys.load((self._folder / f"{name}.key").read_bytes())
        except (OSError, ValueError) as error:
            raise IdentityError(f"{self._folder / name}.key is damaged ({error}): restore it from a backup") from None

    def _authority(self, name: str) -> Authority:
        from edge.protocol import pki

        return pki.Authority(pki.parse((self._folder / f"{name}.pem").read_bytes())[0], self._key(name))


def tls_names(issuer: str, more: Sequence[str] = ()) -> list[str]:
    """What our own TLS certificate is for: the issuer, everything below it, loopback, and `more`."""
    names = [issuer, f"*.{issuer}", "localhost", "127.0.0.1", "::1", *more]
    return list(dict.fromkeys(name.lower() for name in names if name))


def private_issuer(root_spki: bytes) -> str:
    """The issuer name of a node that nobody named (design D19)."""
    digest = base64.b32encode(hashlib.sha256(root_spki).digest()).decode().lower()
    return f"n{digest[:10]}.{PRIVATE_SUFFIX}"


def _plain(issuer: str) -> str:
    """As it is written on disk: a domain name has no case, and may end in a dot."""
    return issuer.strip().lower().rstrip(".")


def _asked(issuer: str | None) -> str:
    asked = _plain(issuer or "")
    if asked and (not valid_issuer(asked) or len(asked) > MAX_ISSUER):
        raise IdentityError(
            f"issuer {asked[:80]!r} is no domain name: at most {MAX_ISSUER} letters, digits, - _ and dots"
        )
    return asked


def _make(home: Path, asked: str, now_us: int, floor_us: int, uncertainty_us: int, names: Sequence[str]) -> None:
    from edge.protocol import pki

    sure = uncertainty_us <= SURE_US

    def valid(days: int) -> Window:
        return pki.window(now_us, floor_us, sure, days)

    private = {name: keys.generate("P-384") for name in ("root", "registry", "issuer", "auth")}
    private |= {name: keys.generate("P-256") for name in ("tls-ca", "tls")}
    issuer = asked or private_issuer(keys.spki_of(private["root"].public_key()))
    root = pki.root(private["root"], issuer, valid(pki.ROOT_DAYS))
    registry = pki.subordinate(root, private["registry"], f"{issuer[:52]} Registry CA", 1, valid(pki.REGISTRY_DAYS))
    authority = pki.subordinate(registry, private["issuer"], issuer, 0, valid(pki.ISSUER_DAYS))
    tls_ca = pki.tls_root(private["tls-ca"], issuer, valid(pki.TLS_CA_DAYS))
    auth = _auth(authority, issuer, private["auth"], now_us, floor_us, sure)
    leaf, tls = _tls(tls_ca, private["tls"], tls_names(issuer, names), now_us, floor_us, sure)
    files = {f"{name}.key": keys.save(key) for name, key in private.items()}
    files |= {
        "issuer": issuer.encode() + b"\n",
        "seed": os.urandom(_SEED),
        "root.pem": pki.pem(root.certificate).encode(),
        "registry.pem": pki.pem(registry.certificate).encode(),
        "issuer.pem": pki.pem(authority.certificate).encode(),
        "tls-ca.pem": pki.pem(tls_ca.certificate).encode(),
        "tls.pem": leaf.encode(),
        "certificates.json": dumps(_Certificates(auth, tls)),
    }
    _write_folder(home, files)


def _write_folder(home: Path, files: dict[str, bytes]) -> None:
    """All files or none: a folder under another name, synced, then renamed."""
    fresh = home / "pki.new"
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(mode=0o700)
    for name, content in files.items():
        descriptor = os.open(fresh / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    sync_directory(fresh)
    fresh.rename(home / "pki")
    sync_directory(home)


def _auth(
    authority: Authority, issuer: str, key: ec.EllipticCurvePrivateKey, now_us: int, floor_us: int, sure: bool
) -> Issued:
    from edge.protocol import pki

    valid = pki.window(now_us, floor_us, sure, pki.SERVICE_DAYS)
    return _issued(authority, f"auth.{issuer}", key.public_key(), valid, "")


def _issued(authority: Authority, aid: str, key: ec.EllipticCurvePublicKey, valid: Window, base: str) -> Issued:
    from edge.protocol import pki

    return _record(pki.end_certificate(authority, aid, key, valid, base), aid, key, valid)


def _record(certificate: x509.Certificate, aid: str, key: ec.EllipticCurvePublicKey, valid: Window) -> Issued:
    from edge.protocol import pki

    pem = pki.pem(certificate)
    return Issued(
        serial=pki.serial_of(certificate),
        aid=aid,
        pem=pem,
        cert_sha256=keys.sha256(keys.der_of(pem)),
        spki_sha256=keys.sha256(keys.spki_of(key)),
        curve=keys.CURVES[key.curve.name],
        start=valid.start,
        end=valid.end,
        sure=valid.sure,
    )


def _tls(
    above: Authority, key: ec.EllipticCurvePrivateKey, names: list[str], now_us: int, floor_us: int, sure: bool
) -> tuple[str, _Tls]:
    from edge.protocol import pki

    valid = pki.window(now_us, floor_us, sure, pki.TLS_DAYS)
    leaf = pki.tls_leaf(above, key.public_key(), names, valid)
    return pki.pem(leaf) + pki.pem(above.certificate), _Tls(names, valid.start, valid.end, valid.sure)


def _due(start: int, end: int, was_sure: bool, sure: bool, now_us: int) -> bool:
    """While the time is unsure nothing is due; then what was made without it, or has less than a quarter left."""
    return sure and (not was_sure or now_us // SECOND > end - (end - start) // 4)
