"""Values that settings must refuse: of each type some, and of each shape of a text."""

from __future__ import annotations

import math
from typing import Annotated, Any, Literal, get_args, get_origin

from msgspec import Meta

from edge.config import declared, shapes
from edge.config.shapes import Shape

TEXTS: dict[Shape, tuple[str, ...]] = {
    shapes.LINE: ("two\nlines", "a\x00b", "tab\t"),
    shapes.FILE: ("two\nlines", "a\x00b"),
    shapes.ADDRESS: (
        "9010",
        "127.0.0.1",
        "127.0.0.1:http",
        "::1:9010",
        "on",
        "",
        "127.0.0.1:99999999",
        "127.0.0.1:9010\n",
    ),
    shapes.ISSUER: ("two words", "https://home.test", "home..test", "-home.test", "x" * 65, "home.test/"),
    shapes.URL: (
        "javascript:alert(1)",
        "box.lan",
        "ftp://box.lan",
        "https://",
        "https://a b",
        "https://u:p@box.lan",
        "https://a?b",
    ),
    shapes.ORIGIN: ("https://a.lan/x", "https://a.lan/", "a.lan", "null", "*", "https://"),
    shapes.HOST: ("two words", "", "https://box.lan", "box.lan:80", "box.lan/", "-box", "*.lan", "[::1]"),
    shapes.CERTIFIED: ("two words", "", "https://box.lan", "box.lan:80", "*", "a.*.lan"),
    shapes.NETWORK: ("two words", "", "192.168.1.0/24\n", "10.0.0.0/8;"),
    shapes.LEVEL: ("$SYS", "+", "#", "a/b", "", "two words", "a\x00"),
    shapes.FILTER: ("", "a/#/b", "a#", "a+/b", "#/a", "a\x00", "a\nb"),
    shapes.SLUG: ("Two words", "", "-a"),
    shapes.SKILL: ("hall light", "hall", ".light", "hall.light\n"),
    shapes.AID: (
        "alice",
        "Alice.home.test",
        "a b.home.test",
        "d-porch.home.test",
        "alice.home..test",
        "alice.home.test\n",
    ),
    shapes.CLIENT: ("a\x00", "two\nlines", "x" * 257),
}


def wrong(hint: Any) -> list[Any]:
    """What a setting of this type must refuse."""
    bare, meta = taken_apart(hint)
    base, args = declared.base_of(hint), get_args(bare)
    if base is list:
        return ["x", [1], *([item] for item in wrong(args[0]))]
    if base is dict:
        return ["x", {"a": 1}, *({"a": item} for item in wrong(args[1]))]
    if base is str:
        return [7, True, *TEXTS[Shape(str(meta.pattern), (meta.extra or {})["allowed"])]]
    if base in (int, float):
        bounds = [edge + step for edge, step in ((meta.ge, -1), (meta.le, 1)) if edge is not None]
        return ["x", True, math.nan, math.inf, *bounds]
    return ["no such choice", 7] if base is Literal else ["maybe", 7]


def taken_apart(hint: Any) -> tuple[Any, Meta]:
    """The plain type, and what is said of its values."""
    if get_origin(hint) is not Annotated:
        return hint, Meta()
    bare, *said = get_args(hint)
    return bare, next((part for part in said if isinstance(part, Meta)), Meta())
