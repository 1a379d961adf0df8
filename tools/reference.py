"""Writes docs/reference from the declarations in the source, so that nobody keeps a second list."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import reference_methods  # noqa: E402

import edge  # noqa: E402
from edge.cli.examples import EXAMPLES  # noqa: E402
from edge.cli.parser import build, verbs_of  # noqa: E402
from edge.config.declared import SECTIONS, settings, split  # noqa: E402
from edge.config.ports import PORTS  # noqa: E402
from edge.contract.limit import REGISTRY  # noqa: E402
from edge.services.queue import REASONS  # noqa: E402

REFERENCE = ROOT / "docs" / "reference"
NOTE = "<!-- Written by tools/reference from the source; change it there. -->\n"


def main() -> int:
    """Write the pages, or with --check say which are out of date."""
    import_everything()
    texts = {name: NOTE + page() + "\n" for name, page in PAGES.items()} | reference_methods.pages(NOTE)
    stale = _left_over(texts)
    for name, text in texts.items():
        path = REFERENCE / name
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        if "--check" in sys.argv:
            stale.append(name)
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(f"written: {path.relative_to(ROOT)}")
    if stale:
        print(f"out of date: {', '.join(stale)}; run tools/reference")
    return 1 if stale else 0


def _left_over(texts: dict[str, str]) -> list[str]:
    """Pages of operations that are no more; without --check they go."""
    found = [path for folder in ("methods", "schema") for path in sorted((REFERENCE / folder).glob("*"))]
    gone = [path for path in found if path.relative_to(REFERENCE).as_posix() not in texts]
    if "--check" in sys.argv:
        return [path.relative_to(REFERENCE).as_posix() for path in gone]
    for path in gone:
        path.unlink()
        print(f"removed: {path.relative_to(ROOT)}")
    return []


def settings_page() -> str:
    """Every setting, by section."""
    lines = ["# Settings", "", _PLACES]
    for section, kind in SECTIONS.items():
        lines += ["", f"## `[{section}]`", "", (kind.__doc__ or "").strip(), ""]
        lines += [_row("setting", "default", "allowed", "example", "what it is"), _row(*["---"] * 5)]
        for one in settings():
            if split(one.key)[0] == section:
                default, example = f"`{_toml(one.default)}`", f"`{_toml(one.example)}`"
                lines.append(_row(f"`{one.key}`", default, one.allowed, example, one.about))
    lines += ["", "## Ports", "", _PORT_WORDS, "", _row("name", "setting", "usual address", "what")]
    lines.append(_row(*["---"] * 4))
    lines += [_row(port.name, f"`{port.key}`", f"`{port.usual}`", port.about) for port in PORTS]
    return "\n".join(lines)


def limits_page() -> str:
    """Every limit."""
    lines = ["# Limits", "", _LIMIT_WORDS, "", _row("limit", "default", "unit", "over it", "about"), _row(*["---"] * 5)]
    for name, one in sorted(REGISTRY.items()):
        error = one.error.summary if one.error else "as told"
        about = one.about + (f"; at least {one.least}" if one.least > 1 else "")
        lines.append(_row(f"`{name}`", str(one.default), one.unit, error, about))
    return "\n".join(lines)


def cli_page() -> str:
    """Every verb."""
    top = build()
    lines = ["# The command line", "", _CLI_WORDS]
    for words, verb in verbs_of(top):
        lines += ["", f"## `aun-edge {words}`", "", (verb.description or "").strip(), ""]
        lines += [_row("argument", "what"), _row("---", "---")]
        for action in verb._actions:
            names = ", ".join(action.option_strings) or str(action.metavar or action.dest)
            if action.dest != "help":
                value = f" {action.metavar}" if action.option_strings and action.metavar else ""
                lines.append(_row(f"`{names}{value}`", (action.help or "").replace("%%", "%")))
        lines += ["", "```console", *(f"$ {line}" for line in EXAMPLES[words]), "```"]
    return "\n".join(lines)


def losses_page() -> str:
    """Every reason of a loss."""
    lines = ["# Why something was given up", "", _LOSSES, "", _row("reason", "what"), _row("---", "---")]
    return "\n".join([*lines, *(_row(f"`{reason}`", about) for reason, about in REASONS.items())])


def import_everything() -> None:
    """Every module of the program, so that all declarations are there; those of an extra only where it is installed."""
    for found in pkgutil.walk_packages(edge.__path__, "edge."):
        try:
            importlib.import_module(found.name)
        except ModuleNotFoundError as error:
            if (error.name or "").partition(".")[0] == "edge":
                raise


def _row(*cells: str) -> str:
    return "| " + " | ".join(" ".join(cell.replace("|", "\\|").split()) for cell in cells) + " |"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "{" + ", ".join(f'"{name}" = {_toml(item)}' for name, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return f'"{value}"' if isinstance(value, str) else str(value)


_PLACES = """Where a setting may stand, later places winning:

1. the default below
2. a profile: `aun-edge run --profile home`
3. `/etc/aun-edge/aun-edge.toml`, then `/etc/aun-edge/aun-edge.toml.d/*.toml`; with `--config FILE`, that file and
   `FILE.d/*.toml` instead
4. `DIR/config.d/*.toml` in the state directory; `aun-edge config set` writes `90-local.toml` there
5. the environment: `AUN_EDGE_SECTION_KEY`, for example `AUN_EDGE_MQTT_LISTEN`
6. `aun-edge run --set section.key=value`

A key that does not exist and a value that is not allowed stop the start; the message names file and line."""
_PORT_WORDS = """A listener that nobody asked for and whose port is taken is left off and named in
`aun-edge status`; one that a file, the environment or an option asks for stops the start. TLS listeners that nobody
asked for open once a device exists. `node.port_aliases = true` opens all aliases."""
_LIMIT_WORDS = """What others may ask of the node. Each is changed by `[limits]` in the configuration, for example
`limits."mqtt.packet" = 65536`; `aun-edge status` counts how often each was hit."""
_CLI_WORDS = """Every verb finds the node by `--state-dir DIR` (root: `/var/lib/aun-edge`, else
`$XDG_STATE_HOME/aun-edge`). Exit codes: 0 ok, 1 failed, 2 usage or no match, 3 node not running, 4 not permitted,
75 try later, 130 ended by Ctrl-C. A reader that goes away early (`| head`) is no failure. An error says what, why, and
after `next:` what to do; a fault of the program itself too, and PYTHONDEVMODE=1 shows where. `--json` is UTF-8 and its
names stay; names are only added."""

_LOSSES = """Reasons in `aun-edge queue drops`, one spelling each; `--reason WORD` shows those of one. What
`device show` says of an announcement is the same with spaces. A file that was damaged says so in words of its own, in
the log `*`."""

PAGES: dict[str, Callable[[], str]] = {
    "settings.md": settings_page,
    "limits.md": limits_page,
    "cli.md": cli_page,
    "losses.md": losses_page,
}

if __name__ == "__main__":
    sys.exit(main())
