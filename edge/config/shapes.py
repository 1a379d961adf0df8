"""What the text of a setting may look like: a pattern, and the same in words."""

from __future__ import annotations

from typing import NamedTuple

_HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*)"
_AT = r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?"
_LEVELS = r"(?:\+|[^+#/\x00-\x1f]*)(?:/(?:\+|[^+#/\x00-\x1f]*))*"


class Shape(NamedTuple):
    """`pattern` is searched for, so it has both its ends; `words` say what is allowed."""

    pattern: str
    words: str


LINE = Shape(r"^[^\x00-\x1f\x7f]*\Z", "one line of text")
FILE = Shape(r"^[^\x00-\x1f\x7f]*\Z", "the path of a file")
ADDRESS = Shape(
    r"^(off|(\[[0-9A-Fa-f:.]+\]|[^:\[\]\s/]+):[0-9]{1,5})\Z",
    "`host:port` (port 0 picks one and remembers it) or `off`",
)
ISSUER = Shape(
    r"^(?!.*\.\.)(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?\.?)?\Z",
    "a domain name of at most 63 characters",
)
URL = Shape(
    rf"^(?:[0-9A-Fa-f.:]+/[0-9]{{1,3}}=)?https?://{_AT}(?:/[A-Za-z0-9._~/-]*)?\Z",
    "`http(s)://host[:port][/path]`, or `SUBNET=` and that for the callers of one subnet",
)
ORIGIN = Shape(
    rf"^https?://{_AT}\Z",
    "http(s)://host[:port], no path",
)
HOST = Shape(
    rf"^{_HOST}\Z",
    "a host name or an address, without a port",
)
CERTIFIED = Shape(
    rf"^(?:\*\.)?{_HOST}\Z",
    "a host name (`*.` may stand first) or an address",
)
NETWORK = Shape(
    r"^[A-Za-z0-9][A-Za-z0-9_.:@/-]{0,49}\Z",
    "a private subnet or the name of an interface",
)
LEVEL = Shape(
    r"^[^$+#/\s\x00-\x1f][^+#/\s\x00-\x1f]*\Z",
    "one topic level that does not begin with `$`",
)
FILTER = Shape(
    rf"^(?:#|(?!\Z){_LEVELS}(?:/#)?)\Z",
    "a topic filter (`+` is one level, `#` stands last)",
)
SLUG = Shape(r"^[a-z0-9][a-z0-9_-]{0,63}\Z", "1 to 64 of a-z 0-9 _ -, beginning with a letter or digit")
SKILL = Shape(
    r"^(?:[^\s.]+\.\S+)?\Z",
    "the id of a skill, `<device>.<capability>`",
)
AID = Shape(
    r"^(?:(?!d-)[a-z0-9_][a-z0-9_-]{0,63}\.(?!.*\.\.)[a-z0-9](?:[a-z0-9._-]{0,186}[a-z0-9])?)?\Z",
    "an AID, `<name>.<issuer>`, that is no device's",
)
CLIENT = Shape(r"^[^\x00-\x1f\x7f]{0,256}\Z", "one line of at most 256 characters")
