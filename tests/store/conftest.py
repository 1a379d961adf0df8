"""What several tests of the store begin with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.disk import mounted


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 6 MiB."""
    with mounted(tmp_path, 6 << 20) as folder:
        yield folder
