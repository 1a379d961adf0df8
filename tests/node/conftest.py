from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from edge.node.life import Node
from tests.support.node import running


@pytest.fixture
async def node(tmp_path: Path) -> AsyncIterator[Node]:
    async with running(tmp_path / "state") as made:
        yield made
