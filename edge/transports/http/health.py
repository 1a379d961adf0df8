"""`/healthz`, `/readyz`, `/health`: for supervisors, and for SDKs that look before they connect (aun-connect §3.3)."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from edge.transports.http.app import json_response

Ready = Callable[[], Mapping[str, bool]]
"""Each part that must answer before the node is ready, and whether it does. Read in the loop; must not block."""


def routes(ready: Ready) -> list[BaseRoute]:
    """Open to everybody who may reach the listener; they tell no names and no numbers."""

    async def alive(request: Request) -> Response:
        return json_response({"status": "ok"})

    async def is_ready(request: Request) -> Response:
        parts = dict(ready())
        well = all(parts.values())
        return json_response({"status": "ready" if well else "not ready", "parts": parts}, 200 if well else 503)

    return [
        Route("/healthz", alive, methods=["GET"]),
        Route("/readyz", is_ready, methods=["GET"]),
        Route("/health", alive, methods=["GET"]),
    ]
