"""One listening socket: uvicorn's protocols, not uvicorn's life (design D2).

`websocket` and `http1` subclass uvicorn's protocols to bound what they leave unbounded (heads, time to send one,
messages per path, a peer that does not read) and, by `bounded`, to put the verified client certificate into the scope.
`tests/contract/test_uvicorn.py` pins the names that these modules use.
"""

from __future__ import annotations

import socket
import ssl
from typing import Literal

import uvicorn
from starlette.types import ASGIApp

from edge.transports.http.bounded import Config, Terms
from edge.transports.http.http1 import HEAD, protocol
from edge.transports.http.websocket import MESSAGE, OurWS


class Listener:
    """One socket and its connections. `start` once; then `stop_accepting`, later `shutdown`."""

    def __init__(
        self,
        app: ASGIApp,
        sock: socket.socket,
        terms: Terms,
        *,
        tls: ssl.SSLContext | None = None,
        http: Literal["httptools", "h11"] | None = None,
    ) -> None:
        self._socket = sock
        self._address: tuple[str, int] = sock.getsockname()[:2]
        self.tls = tls
        config = Config(
            app,
            http=protocol(http),
            ws=OurWS,
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            proxy_headers=False,  # else X-Forwarded-For from loopback would decide who the client is
            server_header=False,
            date_header=False,
            ws_max_size=terms.limits[MESSAGE],
            ws_per_message_deflate=False,
            ws_ping_interval=20,
            ws_ping_timeout=20,
            timeout_graceful_shutdown=3,
            h11_max_incomplete_event_size=terms.limits[HEAD],
        )
        config.terms = terms
        config.load()
        config.ssl = tls
        self._server = uvicorn.Server(config)
        self._server.lifespan = config.lifespan_class(config)

    @property
    def address(self) -> tuple[str, int]:
        """Where it listens: address and port, the real one when port 0 was asked for."""
        return self._address

    @property
    def url(self) -> str:
        """`http(s)://address:port`."""
        host, port = self._address
        return f"{'https' if self.tls else 'http'}://{f'[{host}]' if ':' in host else host}:{port}"

    @property
    def connections(self) -> int:
        """Connections open now."""
        return len(self._server.server_state.connections)

    async def start(self) -> None:
        """Accept connections."""
        await self._server.startup(sockets=[self._socket])

    def stop_accepting(self) -> None:
        """First step of stopping: no new connections, those that are open go on."""
        for server in self._server.servers:
            server.close()

    async def shutdown(self) -> None:
        """Second step: close what is open, WebSockets with 1012; at most 3 s, then running requests are cancelled."""
        await self._server.shutdown(sockets=[self._socket])
