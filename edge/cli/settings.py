"""`aun-edge config`: what is set, by whom, and changes to it. Works with and without a running node."""

from __future__ import annotations

import os
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from edge.cli import show
from edge.cli.ask import ask
from edge.cli.failure import Exit, Failure, NotRunning
from edge.config import LOCAL_FILE, Config, ConfigError, Origin, edit_local, load_config, settings
from edge.contract.errors import MethodNotFound


def get(options: Namespace) -> int:
    """One setting."""
    config = _load(options)
    try:
        value = config.value(options.key)
    except KeyError:
        raise Failure(f"no such setting: {options.key}", next_step="aun-edge config list", code=Exit.USAGE) from None
    said = {"key": options.key, "value": value, "origin": str(config.origin(options.key))}
    if options.json:
        show.as_json(said)
    else:
        print(show.word(value))
    return Exit.OK


def list_(options: Namespace) -> int:
    """Every setting."""
    config = _load(options)
    rows: list[dict[str, Any]] = [
        {
            "key": one.key,
            "value": config.value(one.key),
            "default": one.default,
            "origin": str(config.origin(one.key)),
            "allowed": one.allowed,
            "about": one.about,
        }
        for one in settings()
    ]
    if options.json:
        show.as_json(rows)
    else:
        show.table(rows, ["key", "value", "origin", "about"], none="no settings")
    return Exit.OK


def validate(options: Namespace) -> int:
    """All files, as a start would read them."""
    from edge.node.fixed import refuse_another_issuer

    try:
        refuse_another_issuer(_load(options, raw=True))
    except ConfigError as refused:
        if options.json:
            show.as_json([{"key": one.key, "place": str(one.origin), "why": one.why} for one in refused.problems])
            return Exit.FAILED
        raise Failure(str(refused), next_step="mend these and run `aun-edge config validate` again") from None
    if options.json:
        show.as_json([])
    else:
        print("the configuration is good")
    return Exit.OK


def set_(options: Namespace) -> int:
    """Write the local file, then let a running node take what it can take at once."""
    from edge.node.fixed import refuse_issuer
    from edge.system.files import write_atomic

    changes = _changes(options)
    _know_limits()
    try:
        text = edit_local(options.state_dir, changes, **_files(options))
        refuse_issuer(options.state_dir, changes.get("node.issuer") or "", Origin("option", "config set"))
    except ConfigError as refused:
        raise Failure(str(refused), next_step="aun-edge config list", code=Exit.USAGE) from None
    path = options.state_dir / LOCAL_FILE
    for folder in (options.state_dir, path.parent):  # private, both: `parents=True` would leave the first one open
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_atomic(path, text.encode())
    print(f"written to {path}")
    print(_told(options, changes))
    return Exit.OK


def _told(options: Namespace, changes: Mapping[str, str | None]) -> str:
    try:
        answer = ask(options.state_dir, "config.reload")
    except (NotRunning, MethodNotFound):
        return "in force at the next start"
    later = tuple(answer["next_start"])  # a table is one setting: its keys follow after a dot
    waiting = [key for key in changes if key in later or key.startswith(tuple(f"{one}." for one in later))]
    return f"in force at the next start: {', '.join(waiting)}" if waiting else "in force now"


def _changes(options: Namespace) -> dict[str, str | None]:
    words: list[str] = options.changes
    if options.unset:
        return dict.fromkeys(words)
    if len(words) == 2 and "=" not in words[0]:
        return {words[0]: words[1]}
    wrong = [text for text in words if "=" not in text]
    if wrong:
        raise Failure(f"{wrong[0]} has no value", next_step="aun-edge config set KEY=VALUE", code=Exit.USAGE)
    return {text.partition("=")[0]: text.partition("=")[2] for text in words}


def _load(options: Namespace, *, raw: bool = False) -> Config:
    _know_limits()
    try:
        return load_config(state_dir=options.state_dir, profile=options.profile, environ=os.environ, **_files(options))
    except ConfigError as refused:
        if raw:
            raise
        raise Failure(str(refused), next_step="mend these, then `aun-edge config validate`") from None


def _files(options: Namespace) -> dict[str, Any]:
    return {"config_file": options.config} if options.config else {}


def _know_limits() -> None:
    """Limits are declared by the modules that keep them; the node imports them all."""
    import edge.node  # noqa: F401
