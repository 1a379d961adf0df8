from __future__ import annotations

from pathlib import Path

import pytest

from edge.cli.failure import NotRunning
from edge.cli.places import default_state_dir, ready


@pytest.mark.parametrize(
    ("environ", "uid", "path"),
    [
        ({"XDG_STATE_HOME": "/x"}, 0, "/var/lib/aun-edge"),
        ({"XDG_STATE_HOME": "/x", "HOME": "/home/a"}, 1000, "/x/aun-edge"),
        ({"XDG_STATE_HOME": "", "HOME": "/home/a"}, 1000, "/home/a/.local/state/aun-edge"),
        ({"HOME": "/home/a"}, 1000, "/home/a/.local/state/aun-edge"),
    ],
)
def test_state_is_kept_where_the_system_wants_it(environ: dict[str, str], uid: int, path: str) -> None:
    assert default_state_dir(environ, uid) == Path(path)


def test_a_ready_file_is_read(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "ready.json").write_text('{"pid": 7}')
    assert ready(tmp_path) == {"pid": 7}


@pytest.mark.parametrize("text", [None, "", "{", "[1]"])
def test_without_a_good_ready_file_no_node_runs(tmp_path: Path, text: str | None) -> None:
    (tmp_path / "run").mkdir()
    if text is not None:
        (tmp_path / "run" / "ready.json").write_text(text)
    with pytest.raises(NotRunning, match="no node is running"):
        ready(tmp_path)
