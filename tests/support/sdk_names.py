"""The RPC names that the code of an installed AUN package sends, read from its source."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

SENDS = {
    "_await_ack", "_call", "_invoke", "_lifecycle_read", "_lifecycle_transition", "_member_command", "_rpc_call",
    "_send_forward_ack", "_short_rpc", "_state_command", "_storage_call", "_submit_renewal_rpc", "_transport_send",
    "_verified_query", "call", "call_fn", "call_pre_ready", "notify", "raw_call", "short_rpc",
    "transport_call_background",
}  # fmt: skip
"""Functions of theirs that take the name of what they ask for."""

LISTS = re.compile(r"(_SIGNED|_WRITE|_NON_IDEMPOTENT|_METADATA|_PROTECTED_READ)_METHODS")
"""Sets of theirs that say how to treat a request, by its name."""

NAME = re.compile(
    r"(auth|ca|collab|credential|debug|event|group|mail|message|meta|org|proxy|push|search|storage|stream|task)"
    r"(\.[A-Za-z0-9_-]+)+|notification/[a-z._]+"
)

HEADING = re.compile(r"^#+ `?([a-z_/]+\.[A-Za-z0-9_.-]+)`?$", re.MULTILINE)

EVENTS = {"group.read_changed", "message.peers_snapshot", "message.read_changed"}
"""What has a heading in a manual without being a request."""


def sent(package: Path) -> set[str]:
    """Every name that the package passes on as a request or notification."""
    found: set[str] = set()
    trees = [ast.parse(file.read_text(encoding="utf-8-sig")) for file in sorted(package.rglob("*.py"))]
    prefixes: dict[str, set[str]] = {}
    for name, prefix in (pair for tree in trees for pair in _prefixes(tree)):
        prefixes.setdefault(name, set()).add(prefix)
    for tree in trees:
        for node in ast.walk(tree):
            found |= set(_sent_by(node, prefixes))
    return {name for name in found if NAME.fullmatch(name)}


def documented(package: Path) -> set[str]:
    """Every request with a heading in the manuals that come with the package: its generic call sends any name."""
    manuals = [file.read_text(encoding="utf-8-sig") for file in package.glob("docs/**/*RPC-Manual.md")]
    return {name for text in manuals for name in HEADING.findall(text) if NAME.fullmatch(name)} - EVENTS


def _prefixes(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Class of a facade, and what it puts before its names: told by its maker, or by itself to the class above."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id.endswith("Facade"):
            yield from ((node.func.id, text) for text in _texts(node.args[1:2]))
        elif isinstance(node, ast.ClassDef):
            inits = [one for one in ast.walk(node) if isinstance(one, ast.Call) and _named(one) == "__init__"]
            yield from ((node.name, text) for one in inits for text in _texts(one.args[1:2]))


def _sent_by(node: ast.AST, prefixes: dict[str, set[str]]) -> Iterator[str]:
    if isinstance(node, ast.Call):
        if _named(node) in SENDS:
            yield from _texts(node.args[:2])
    elif isinstance(node, ast.ClassDef) and node.name.endswith("Facade"):
        calls = [one for one in ast.walk(node) if isinstance(one, ast.Call) and _named(one) == "_call"]
        own = {text for one in calls for text in _texts(one.args[:1])}
        yield from (f"{prefix}.{name}" for prefix in prefixes.get(node.name, ()) for name in own)
    elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
        target = node.targets[0] if isinstance(node, ast.Assign) else node.target
        if LISTS.search(ast.unparse(target)):
            yield from _texts(ast.walk(node.value))


def _named(call: ast.Call) -> str:
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def _texts(nodes: Iterable[ast.AST]) -> list[str]:
    """Text constants among these, also both sides of `a if b else c`."""
    found = []
    for node in nodes:
        for one in (node.body, node.orelse) if isinstance(node, ast.IfExp) else (node,):
            if isinstance(one, ast.Constant) and isinstance(one.value, str):
                found.append(one.value)
    return found
