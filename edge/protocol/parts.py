"""Parts: what messages and artifacts are made of, in the form of A2A 0.3, whatever dialect brought them."""

from __future__ import annotations

from typing import Any

from edge.contract.errors import InvalidParams

Part = dict[str, Any]


def text(value: str) -> Part:
    """A text part."""
    return {"kind": "text", "text": value}


def data(value: dict[str, Any]) -> Part:
    """A data part."""
    return {"kind": "data", "data": value}


def texts(parts: tuple[Part, ...] | list[Part]) -> str:
    """All text of the parts, a line each."""
    return "\n".join(str(part["text"]) for part in parts if part.get("kind") == "text")


def objects(parts: tuple[Part, ...] | list[Part]) -> list[dict[str, Any]]:
    """The data objects of the parts."""
    return [part["data"] for part in parts if part.get("kind") == "data" and isinstance(part.get("data"), dict)]


def lenient(value: object) -> tuple[Part, ...]:
    """Read the part list of a device: `kind` or `type`, a bare string, or any other value as data."""
    items = value if isinstance(value, list) else [value]
    return tuple(_lenient(item) for item in items if item is not None)


def _lenient(item: object) -> Part:
    if isinstance(item, str):
        return text(item)
    if not isinstance(item, dict):
        return data({"value": item})
    kind = item.get("kind", item.get("type"))
    rest = {key: value for key, value in item.items() if key not in ("kind", "type")}
    if kind == "text" and isinstance(item.get("text"), str):
        return {"kind": "text", **rest}
    if kind == "data" and isinstance(item.get("data"), dict):
        return {"kind": "data", **rest}
    if kind == "file" and isinstance(item.get("file"), dict):
        return {"kind": "file", **rest}
    return data(item)


def strict(value: object) -> tuple[Part, ...]:
    """Read the parts of an A2A message (agent-protocols §2.2). Raises `InvalidParams`."""
    if not isinstance(value, list) or not value:
        raise InvalidParams("message.parts must be a non-empty array")
    return tuple(_strict(item, f"message.parts[{index}]") for index, item in enumerate(value))


def _strict(item: object, where: str) -> Part:
    if not isinstance(item, dict):
        raise InvalidParams(f"{where} must be an object")
    match item.get("kind"):
        case "text":
            good = isinstance(item.get("text"), str)
        case "data":
            good = isinstance(item.get("data"), dict)
        case "file":
            good = _is_file(item.get("file"))
        case kind:
            raise InvalidParams(f"{where}.kind {kind!r} is none of text, data, file")
    if not good:
        raise InvalidParams(f"{where} has no valid {item['kind']}")
    if not isinstance(item.get("metadata") or {}, dict):
        raise InvalidParams(f"{where}.metadata must be an object")
    return {key: value for key, value in item.items() if value is not None}


def _is_file(value: object) -> bool:
    if not isinstance(value, dict):
        return False
    content = [value[key] for key in ("bytes", "uri") if value.get(key) is not None]
    named = all(isinstance(value.get(key) or "", str) for key in ("name", "mimeType"))
    return named and len(content) == 1 and isinstance(content[0], str)
