"""One HTTP request over a plain socket: any Host, any header, nothing added."""

from __future__ import annotations

import asyncio
from typing import Any

import h11
import msgspec


class Answer(msgspec.Struct):
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return msgspec.json.decode(self.body)


async def request(
    url: str, path: str, method: str = "GET", *, host: str = "", body: bytes = b"", **headers: Any
) -> Answer:
    """`headers` names use `_` for `-`. `host` is the Host header, by default the URL's."""
    place = url.partition("://")[2]
    address, _, port = place.rpartition(":")
    reader, writer = await asyncio.open_connection(address.strip("[]"), int(port))
    conn = h11.Connection(h11.CLIENT)
    named = [(name.replace("_", "-"), value) for name, value in headers.items()]
    if body:
        named.append(("content-length", str(len(body))))
    asked = h11.Request(method=method, target=path, headers=[("host", host or place), *named])
    parts = [conn.send(asked), conn.send(h11.Data(body)) if body else b"", conn.send(h11.EndOfMessage())]
    try:
        writer.write(b"".join(part or b"" for part in parts))
        answer, found = Answer(0, {}, b""), bytearray()
        while not isinstance(event := conn.next_event(), h11.EndOfMessage):
            if event is h11.NEED_DATA:
                conn.receive_data(await reader.read(65_536))
            elif isinstance(event, h11.Response):
                answer.status = event.status_code
                answer.headers = {name.decode(): value.decode() for name, value in event.headers}
            elif isinstance(event, h11.Data):
                found += event.data
        answer.body = bytes(found)
        return answer
    finally:
        writer.close()
        await writer.wait_closed()
