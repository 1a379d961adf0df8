"""What the text of a setting may look like: a pattern, the same in words, and texts that it refuses."""

from __future__ import annotations

from typing import NamedTuple

_HOST = r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?|[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*)"
_AT = r"(?:[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?"
_LEVELS = r"(?:\+|[^+#/\x00-\x1f]*)(?:/(?:\+|[^+#/\x00-\x1f]*))*"


class Shape(NamedTuple):
    """`pattern` is searched for, so it has both its ends; `wrong` are texts that must be refused."""

    pattern: str
    words: str
    wrong: tuple[str, ...]


LINE = Shape(r"^[^\x00-\x1f\x7f]*\Z", "one line of text", ("two\nlines", "a\x00b", "tab\t"))
FILE = Shape(r"^[^\x00-\x1f\x7f]*\Z", "the path of a file", ("two\nlines", "a\x00b"))
ADDRESS = Shape(
    r"^(off|(\[[0-9A-Fa-f:.]+\]|[^:\[\]\s/]+):[0-9]{1,5})\Z",
    "`host:port` (port 0 picks one and remembers it) or `off`",
    ("9010", "127.0.0.1", "127.0.0.1:http", "::1:9010", "on", "", "127.0.0.1:99999999", "127.0.0.1:9010\n"),
)
ISSUER = Shape(
    r"^(?!.*\.\.)(?:[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?\.?)?\Z",
    "a domain name of at most 63 characters",
    ("two words", "https://home.test", "home..test", "-home.test", "x" * 65, "home.test/"),
)
URL = Shape(
    rf"^(?:[0-9A-Fa-f.:]+/[0-9]{{1,3}}=)?https?://{_AT}(?:/[A-Za-z0-9._~/-]*)?\Z",
    "`http(s)://host[:port][/path]`, or `SUBNET=` and that for the callers of one subnet",
    (
        "javascript:alert(1)",
        "box.lan",
        "ftp://box.lan",
        "https://",
        "https://a b",
        "https://u:p@box.lan",
        "https://a?b",
    ),
)
ORIGIN = Shape(
    rf"^https?://{_AT}\Z",
    "http(s)://host[:port], no path",
    ("https://a.lan/x", "https://a.lan/", "a.lan", "null", "*", "https://"),
)
HOST = Shape(
    rf"^{_HOST}\Z",
    "a host name or an address, without a port",
    ("two words", "", "https://box.lan", "box.lan:80", "box.lan/", "-box", "*.lan", "[::1]"),
)
CERTIFIED = Shape(
    rf"^(?:\*\.)?{_HOST}\Z",
    "a host name (`*.` may stand first) or an address",
    ("two words", "", "https://box.lan", "box.lan:80", "*", "a.*.lan"),
)
NETWORK = Shape(
    r"^[A-Za-z0-9][A-Za-z0-9_.:@/-]{0,49}\Z",
    "a private subnet or the name of an interface",
    ("two words", "", "192.168.1.0/24\n", "10.0.0.0/8;"),
)
LEVEL = Shape(
    r"^[^$+#/\s\x00-\x1f][^+#/\s\x00-\x1f]*\Z",
    "one topic level that does not begin with `$`",
    ("$SYS", "+", "#", "a/b", "", "two words", "a\x00"),
)
FILTER = Shape(
    rf"^(?:#|(?!\Z){_LEVELS}(?:/#)?)\Z",
    "a topic filter (`+` is one level, `#` stands last)",
    ("", "a/#/b", "a#", "a+/b", "#/a", "a\x00", "a\nb"),
)
SLUG = Shape(
    r"^[a-z0-9][a-z0-9_-]{0,63}\Z", "1 to 64 of a-z 0-9 _ -, beginning with a letter or digit", ("Two words", "", "-a")
)
SKILL = Shape(
    r"^(?:[^\s.]+\.\S+)?\Z",
    "the id of a skill, `<device>.<capability>`",
    ("hall light", "hall", ".light", "hall.light\n"),
)
AID = Shape(
    r"^(?:(?!d-)[a-z0-9_][a-z0-9_-]{0,63}\.(?!.*\.\.)[a-z0-9](?:[a-z0-9._-]{0,186}[a-z0-9])?)?\Z",
    "an AID, `<name>.<issuer>`, that is no device's",
    ("alice", "Alice.home.test", "a b.home.test", "d-porch.home.test", "alice.home..test", "alice.home.test\n"),
)
CLIENT = Shape(r"^[^\x00-\x1f\x7f]{0,256}\Z", "one line of at most 256 characters", ("a\x00", "two\nlines", "x" * 257))
