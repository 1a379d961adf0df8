from __future__ import annotations

import io

from edge.cli.bar import Bar


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_sees_a_line_that_is_gone_at_the_end() -> None:
    out = Terminal()
    with Bar(out) as bar:
        bar("store/node.db", 0, 200)
        bar("store/node.db", 100, 200)
        bar("empty", 0, 0)
    assert "[###############               ]  50 % store/node.db" in out.getvalue()
    assert "100 % empty" in out.getvalue()
    assert out.getvalue().endswith("\r\x1b[K")


def test_a_percent_is_drawn_once() -> None:
    out = Terminal()
    with Bar(out) as bar:
        for done in range(10_000):
            bar("x", done, 1_000_000)
    assert out.getvalue().count("\r") == 2


def test_nobody_watching_nothing_is_written() -> None:
    out = io.StringIO()
    with Bar(out) as bar:
        bar("x", 1, 2)
    assert out.getvalue() == ""
