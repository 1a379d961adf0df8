"""The names of uvicorn and websockets that `edge.transports.http` builds on (design D2)."""

from __future__ import annotations

import inspect

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState
from websockets.server import ServerProtocol

from edge.contract.limit import Limits
from edge.system.ports import bind_tcp
from edge.transports.http.bounded import Terms
from edge.transports.http.listener import Listener
from tests.support.clock import FakeClock

CONFIG = {
    "http", "ws", "lifespan", "log_config", "log_level", "access_log", "proxy_headers", "server_header", "date_header",
    "ws_max_size", "ws_per_message_deflate", "ws_ping_interval", "ws_ping_timeout", "timeout_graceful_shutdown",
    "h11_max_incomplete_event_size",
}  # fmt: skip

METHODS = {
    HttpToolsProtocol: {
        "connection_made", "connection_lost", "data_received", "pause_writing", "resume_writing", "on_message_begin",
        "on_url", "on_header", "on_headers_complete", "on_body", "send_400_response", "handle_websocket_upgrade",
        "on_response_complete",
    },
    H11Protocol: {
        "connection_made", "connection_lost", "pause_writing", "resume_writing", "handle_events", "send_400_response",
        "handle_websocket_upgrade",
    },
    WebSocketsSansIOProtocol: {
        "connection_made", "connection_lost", "data_received", "pause_writing", "resume_writing", "handle_connect",
        "handle_text", "handle_bytes", "handle_cont", "handle_parser_exception", "send_receive_event_to_app",
        "keepalive_timeout", "stop_keepalive", "receive", "handle_ping", "handle_pong",
    },
}  # fmt: skip

ATTRIBUTES = {
    "conn", "queue", "transport", "client", "app", "close_sent", "disconnected", "handshake_complete",
    "handshake_initiated", "read_paused", "writable", "close_timer", "frames", "curr_msg_data_type", "loop",
}  # fmt: skip


def test_the_configuration_has_the_settings_we_make() -> None:
    assert set(inspect.signature(uvicorn.Config.__init__).parameters) >= CONFIG
    assert callable(uvicorn.Config.load)


def test_the_protocols_have_the_methods_we_override_or_call() -> None:
    for kind, names in METHODS.items():
        assert names <= set(dir(kind)), kind


async def test_a_web_socket_has_the_attributes_we_use() -> None:
    config = uvicorn.Config(_app, lifespan="off", log_config=None)
    config.load()
    protocol = WebSocketsSansIOProtocol(config, ServerState(), {})
    assert set(vars(protocol)) >= ATTRIBUTES
    assert {"close_sent", "handshake_exc"} <= set(vars(protocol.conn))
    assert {"send_close", "data_to_send"} <= set(dir(protocol.conn))


async def test_a_server_starts_stops_and_counts_without_serve() -> None:
    assert {"startup", "shutdown"} <= set(dir(uvicorn.Server))
    listener = Listener(_app, bind_tcp("127.0.0.1", 0), Terms(FakeClock(), Limits()))
    await listener.start()
    assert listener._server.servers
    assert listener.connections == len(listener._server.server_state.connections) == 0
    listener.stop_accepting()
    await listener.shutdown()


def test_the_message_limit_is_where_we_set_it() -> None:
    """websockets 15 reads `max_size`, websockets 17 `max_message_size`; one of them must be there."""
    assert {"max_size", "max_message_size"} & set(vars(ServerProtocol(max_size=5)))


async def _app(scope: object, receive: object, send: object) -> None:
    raise AssertionError("never called")
