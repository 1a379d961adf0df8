from __future__ import annotations

import pytest
from starlette.applications import Starlette
from starlette.routing import BaseRoute, Mount

from edge.transports.http import health
from tests.support.sessions import gateway
from tests.transports.http.test_app import get


@pytest.mark.parametrize("path", ["/healthz", "/health", "/readyz"])
async def test_a_healthy_node_says_so_to_anybody(path: str) -> None:
    async with gateway() as house:
        assert (await get(house, path))[0] == 200


async def test_a_node_that_is_not_ready_names_the_part() -> None:
    parts = {"store": True, "bus": False}
    async with gateway(routes=[*_renamed(parts)]) as house:
        code, _, body = await get(house, "/other/readyz")
        assert (code, body) == (503, {"status": "not ready", "parts": parts})
        parts["bus"] = True
        assert (await get(house, "/other/readyz"))[0] == 200


def _renamed(parts: dict[str, bool]) -> list[BaseRoute]:
    return [Mount("/other", app=Starlette(routes=health.routes(lambda: parts)))]
