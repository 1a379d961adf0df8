"""What `auth.*` and `agent.*` take and answer (spec aun-connect §4.3–§7.3)."""

from __future__ import annotations

from typing import Any

import msgspec

from edge.contract.op import Params


class CreateAid(Params, frozen=True, kw_only=True):
    """A new name and the key behind it."""

    aid: str
    public_key: str
    curve: str = "P-256"


class Created(msgspec.Struct):
    """The certificate of a name."""

    aid: str
    cert: str
    ca_cert: str
    curve: str = "P-256"
    status: str = "ok"


class Login1(Params, frozen=True, kw_only=True):
    """The first half of a login."""

    aid: str
    cert: str
    client_nonce: str


class Challenge(msgspec.Struct):
    """The node's nonce, and its signature over the client's."""

    request_id: str
    nonce: str
    auth_cert: str
    client_nonce_signature: str
    server_time: float
    auth_curve: str = "P-384"


class Login2(Params, frozen=True, kw_only=True):
    """The second half: proof of the key. `client_time` is signed as it was sent, text or number."""

    aid: str
    request_id: str
    nonce: str
    signature: str
    client_time: msgspec.Raw = msgspec.Raw(b'""')


class LoggedIn(msgspec.Struct, omit_defaults=True):
    """Tokens; `new_cert` when the certificate was renewed on the way."""

    aid: str
    token: str
    access_token: str
    refresh_token: str
    expires_in: int
    success: bool | None = None
    new_cert: str = ""


class Refresh(Params, frozen=True, kw_only=True):
    """A refresh token, and whose it is."""

    refresh_token: str = ""
    aid: str = ""
    device_id: str = ""
    slot_id: str = ""


class Refreshed(msgspec.Struct, omit_defaults=True):
    """New tokens, or why there are none: a failure is a result here, not an error."""

    success: bool
    relogin_required: bool
    retryable: bool = False
    access_token: str = ""
    token: str = ""
    refresh_token: str = ""
    expires_in: int = 0
    aid: str = ""
    refresh_count: int = 0
    error: str = ""


class Renew(Params, frozen=True, kw_only=True):
    """A fresh nonce, signed by the certified key."""

    aid: str
    request_id: str
    nonce: str
    signature: str


class Rekey(Renew, frozen=True, kw_only=True):
    """A new key, signed by the old one together with the nonce."""

    new_public_key: str


class Certified(msgspec.Struct):
    """A new certificate."""

    status: str
    aid: str
    cert: str
    ca_cert: str
    curve: str = "P-256"


class RequestCert(Params, frozen=True, kw_only=True):
    """A further certificate on another curve."""

    public_key: str
    aid: str = ""
    curve: str = "P-384"


class DownloadCert(Params, frozen=True, kw_only=True):
    """A serial number in hex, or `root`."""

    cert_sn: str


class Downloaded(msgspec.Struct):
    """A certificate and what it hangs on."""

    cert: str
    ca_cert: str
    cert_chain: list[str]


class Proof(msgspec.Struct, frozen=True):
    """The `auth` of `auth.connect`."""

    method: str = ""
    token: str = ""
    aid: str = ""
    request_id: str = ""
    nonce: str = ""
    signature: str = ""


class Versions(msgspec.Struct, frozen=True):
    """A range of protocol versions."""

    min: str = "1.0"
    max: str = "1.0"


class Device(msgspec.Struct, frozen=True):
    """Which installation connects."""

    id: str = ""
    type: str = ""


class Client(msgspec.Struct, frozen=True):
    """Which instance on the device."""

    slot_id: str = ""
    sdk_lang: str = ""
    sdk_version: str = ""


class Options(msgspec.Struct, frozen=True):
    """Long (default) or short connection."""

    kind: str = "long"
    short_ttl_ms: int = 0


class Connect(Params, frozen=True, kw_only=True):
    """Everything that a connection says about itself."""

    nonce: str = ""
    auth: Proof = Proof()
    protocol: Versions = Versions()
    device: Device = Device()
    client: Client = Client()
    options: Options = Options()
    delivery_mode: str | dict[str, Any] = ""
    capabilities: dict[str, Any] = msgspec.field(default_factory=dict)
    extra_info: dict[str, Any] = msgspec.field(default_factory=dict)


class Connected(msgspec.Struct):
    """What the connection is from now on."""

    protocol: str
    server_time: float
    identity: dict[str, str]
    connection: dict[str, str]
    bridgeInfo: dict[str, str]
    capabilities: dict[str, Any]
    status: str = "ok"
    authenticated: bool = True
    trust_level: str = "low"


class AgentAdd(Params, frozen=True, kw_only=True):
    """A name to reserve; `expires_s` bounds its token, 0 does not."""

    name: str
    expires_s: int = 0


class AgentAdded(msgspec.Struct, omit_defaults=True):
    """The token is shown here and nowhere else."""

    name: str
    aid: str
    token: str
    registered: bool = False
    minutes: int = 0
    expires: str = ""


class AgentNamed(Params, frozen=True, kw_only=True):
    """An agent by name or AID."""

    name: str
    reason: str = "cessationOfOperation"


class AgentWindow(Params, frozen=True, kw_only=True):
    """For how long any free name may register; 0 closes."""

    minutes: int


class AgentLine(msgspec.Struct):
    """`state`: reserved, registered, token (no certificate), revoked. `token`: first characters of each."""

    name: str
    aid: str
    state: str
    token: str
    expires: str
    certificate: str
    online: bool = False


class AgentRevoked(msgspec.Struct):
    """What a revocation ended."""

    aid: str
    certificates: int
    connections: int
