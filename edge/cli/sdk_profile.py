"""What the unmodified AUN SDK needs to find and trust this node (spec aun-connect §3.4, recipe 2 and method D).

DIR/CA/root/trust-roots.pem   the AUN root; the only way in for the `aun` command
DIR/AIDs/<aid>/aun.db         the gateway's URL; discovery, DNS and TLS are then not needed
DIR/env                       variables for a shell: `. DIR/env`
"""

from __future__ import annotations

import shlex
from pathlib import Path

from edge.contract.wire import dumps


def write_sdk_profile(
    folder: str | Path, aid: str, gateway_url: str, http_url: str, root_pem: str | Path, tls_ca: str | Path = ""
) -> None:
    """Prepare `folder` as an SDK data directory for `aid`. What is already there of other AIDs stays.

    `root_pem` and `tls_ca` are PEM text or paths; `tls_ca` is needed when `gateway_url` is `wss:`. Raises `OSError`.
    """
    from edge.store.sdk_profile import set_metadata

    home = Path(folder).expanduser().resolve()
    _write(home / "CA" / "root" / "trust-roots.pem", _pem(root_pem))
    database = home / "AIDs" / aid / "aun.db"
    _folder(database.parent)
    set_metadata(database, "gateway_url", dumps(gateway_url).decode())
    database.chmod(0o600)
    variables = {
        "AUN_DATA_ROOT": str(home),
        "AUN_CLI_CONFIG": str(home / "cli.toml"),
        "AUN_NAMESERVICE_URL": http_url,
    }
    if gateway_url.startswith("wss:") and tls_ca:
        _write(home / "CA" / "tls-root.pem", _pem(tls_ca))
        variables["SSL_CERT_FILE"] = str(home / "CA" / "tls-root.pem")
    lines = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
    _write(home / "env", "\n".join([*lines, f"export {' '.join(variables)}", ""]))


def _pem(given: str | Path) -> str:
    text = str(given)
    return text if "-----BEGIN" in text else Path(text).read_text(encoding="ascii")


def _folder(path: Path) -> None:
    path.mkdir(mode=0o700, parents=True, exist_ok=True)


def _write(path: Path, text: str) -> None:
    from edge.system.files import write_atomic

    _folder(path.parent)
    write_atomic(path, text.encode())
