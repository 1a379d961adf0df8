"""The control socket `run/ctl.sock`: the `edge` surface, one JSON-RPC frame a line (design §4).

Who dials is what the kernel says (SO_PEERCRED): root and the node's own user are the operator, nobody else gets in.
A Unix socket's path has at most 107 bytes; through a descriptor of its directory any state directory will do.
"""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import struct
from pathlib import Path

from edge.contract.errors import EdgeError, NotPermitted, Unavailable
from edge.contract.limit import Limits, declare
from edge.contract.op import Door, Spawn
from edge.contract.principal import Kind, Principal
from edge.contract.time import SECOND, Clock, later
from edge.contract.wire import JsonLimits
from edge.protocol.control import ControlCodec
from edge.session.conversation import Sessions

log = logging.getLogger(__name__)

NAME = "ctl.sock"
LINE = declare("ctl.line_octets", 4_194_304, "bytes", "of one request on the control socket; then it closes")
DIALLERS = declare("ctl.connections", 32, "connections", "to the control socket at once", Unavailable)
CLOSE_SECONDS = declare(
    "ctl.close_seconds", 5, "s", "a closing control connection may take to read its last line; it is cut off", None
)

OPERATOR = Principal(kind=Kind.OPERATOR, aid="", scopes=frozenset({"*"}), via="control")


class ControlSocket:
    """Serves one control socket. `start` once, `stop` once."""

    def __init__(self, run_dir: Path, sessions: Sessions, clock: Clock, limits: Limits, spawn: Spawn) -> None:
        self._run_dir = run_dir
        self._sessions = sessions
        self._clock = clock
        self._limits = limits
        self._spawn = spawn
        self._codec = ControlCodec(JsonLimits(octets=limits[LINE]))
        self._server: asyncio.Server | None = None
        self._dialled = 0
        self.refused = 0
        """Connections of users who are not the operator."""

    async def start(self) -> None:
        """Bind and accept. The caller holds the state directory's lock: what lies there is a leftover."""
        self._server = await asyncio.start_unix_server(
            self._accept, sock=_bind(self._run_dir), limit=self._limits[LINE]
        )

    def stop(self) -> None:
        """Accept no more and take the name away; conversations end with the session's channels."""
        if self._server is not None:
            self._server.close()
            self._server = None
            (self._run_dir / NAME).unlink(missing_ok=True)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        stream = LineStream(reader, writer, self._clock, self._limits)
        if not _is_operator(writer.get_extra_info("socket")):
            self.refused += 1
            log.warning("control socket: a connection of another user was refused")
            self._refuse(stream, writer, NotPermitted("only root and the node's own user may use the control socket"))
        elif self._dialled >= self._limits[DIALLERS]:
            self._refuse(stream, writer, self._limits.refuse(DIALLERS))
        else:
            self._dialled += 1
            self._spawn(self._converse(stream))

    async def _converse(self, stream: LineStream) -> None:
        try:
            await self._sessions.converse(stream, self._codec, Door(), who=OPERATOR)
        finally:
            self._dialled -= 1

    def _refuse(self, stream: LineStream, writer: asyncio.StreamWriter, error: EdgeError) -> None:
        writer.write(self._codec.refuse_frame(b"null", error) + b"\n")
        stream.close(1008, "")


class LineStream:
    """`session.channels.Stream` over a byte stream: frames are lines."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, clock: Clock, limits: Limits
    ) -> None:
        self._reader = reader
        self._writer = writer
        self._clock = clock
        self._limits = limits
        self._closed = False

    async def receive(self) -> bytes | None:
        """The next line that is not empty; None at the end, also of a peer that overdoes it."""
        while not self._closed:
            try:
                line = await self._reader.readuntil(b"\n")
            except asyncio.LimitOverrunError:
                self._too_long()
                return None
            except (asyncio.IncompleteReadError, OSError):
                return None
            if frame := line.strip():
                return frame
        return None

    async def send(self, frame: bytes) -> None:
        """Write one line."""
        if self._closed:
            raise ConnectionResetError
        self._writer.write(frame + b"\n")
        await self._writer.drain()

    def close(self, code: int, reason: str) -> None:
        """Hang up once what is written is read; after a while without that."""
        if self._closed:
            return
        self._closed = True
        self._reader.feed_eof()
        self._writer.close()
        if self._writer.transport.get_write_buffer_size():
            later(self._clock, self._limits[CLOSE_SECONDS] * SECOND, self._cut_off)

    def _cut_off(self) -> None:
        if self._writer.transport.get_write_buffer_size():
            self._limits.hit(CLOSE_SECONDS)
            self._writer.transport.abort()

    def _too_long(self) -> None:
        refusal = ControlCodec(JsonLimits()).refuse_frame(b"null", self._limits.refuse(LINE))
        self._writer.write(refusal + b"\n")


def _bind(run_dir: Path) -> socket.socket:
    """A socket at `run_dir/ctl.sock`, mode 0600 from its first moment."""
    where = os.open(run_dir, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        try:
            os.unlink(NAME, dir_fd=where)
        except FileNotFoundError:
            pass
        os.fchmod(sock.fileno(), 0o600)  # Linux: the inode that bind makes has the mode of the socket's own
        sock.bind(f"/proc/self/fd/{where}/{NAME}")
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    finally:
        os.close(where)
    return sock


def _is_operator(sock: socket.socket) -> bool:
    _, uid, _ = struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return uid in (0, os.getuid())
