"""What the first start fixed: a setting that says otherwise is refused with the others, not at the next power cut."""

from __future__ import annotations

from pathlib import Path

from edge.config import Config, ConfigError, Origin, Problem
from edge.store.keyring import fixed_issuer


def refuse_another_issuer(config: Config) -> None:
    """Raises `ConfigError` when `node.issuer` is not the issuer of the node that this state directory holds."""
    refuse_issuer(config.state_dir, config.node.issuer, config.origin("node.issuer"))


def refuse_issuer(state_dir: Path, asked: str, origin: Origin) -> None:
    """The same for one value, from where it comes."""
    fixed = fixed_issuer(state_dir, asked)
    if fixed:
        why = (
            f"the issuer of this node is {fixed}, fixed at its first start; {asked} is another: "
            "leave node.issuer out, or start a new node with another --state-dir"
        )
        raise ConfigError([Problem("node.issuer", origin, why)])
