"""Names of the box besides its issuer: one list for its TLS certificate, the Host check and absolute URLs."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from edge.config import Config

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?")


def own_names(config: Config, machine: str) -> list[str]:
    """Under which names and addresses others reach the box: as set in `tls.names`, `http.hosts` and
    `node.public_url`, and the machine's own name, bare and in `.local`."""
    public = [
        urlsplit(entry[entry.find("=") + 1 :] if _has_subnet(entry) else entry) for entry in config.node.public_url
    ]
    bare = machine.lower()
    own = [bare] if "." in bare else [bare, f"{bare}.local"]
    found = [name for name in (*(url.hostname or "" for url in public), *own) if _NAME.fullmatch(name)]
    return list(dict.fromkeys([*config.tls.names, *config.http.hosts, *found]))


def _has_subnet(entry: str) -> bool:
    """Whether an entry of `node.public_url` is `SUBNET=URL`."""
    before, equals, _ = entry.partition("=")
    return bool(equals) and "://" not in before
