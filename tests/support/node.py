"""A whole node in this process: real sockets on loopback, real files, its own clock."""

from __future__ import annotations

import asyncio
import base64
import json
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from websockets.asyncio.client import ClientConnection, connect

from edge.config import load_config
from edge.node.life import Node
from edge.system.notify import ServiceManager
from tests.support.process import NodeProcess

ISSUER = "edge.test"
SETS = ("http.listen=127.0.0.1:0", "mqtt.listen=127.0.0.1:0", "http.tls_listen=off", "mqtt.tls_listen=off")


@asynccontextmanager
async def running(state_dir: Path, *sets: str, issuer: str = ISSUER, base: Sequence[str] = SETS) -> AsyncIterator[Node]:
    """A node that answers; it leaves in order at the end. `base` is what tests set besides `sets`."""
    config = load_config(
        state_dir=state_dir, sets=[*base, *sets], environ={}, system_file=state_dir / "no-such-file.toml"
    )
    node = Node(config, issuer, ServiceManager({}))
    run = asyncio.get_running_loop().create_task(node.run())
    started = asyncio.get_running_loop().create_task(node.started.wait())
    await asyncio.wait({run, started}, return_when=asyncio.FIRST_COMPLETED)
    try:
        if run.done():
            started.cancel()
            run.result()
        yield node
    finally:
        node.stop()
        await run


class RpcError(Exception):
    """The node answered with an error."""

    def __init__(self, error: dict[str, Any]) -> None:
        self.code, self.message, self.data = error["code"], error["message"], error.get("data")
        super().__init__(f"{self.code} {self.message}")


class Socket:
    """One AUN socket, raw: frames out, frames in, answers matched by id, events kept."""

    def __init__(self, ws: ClientConnection) -> None:
        self.ws = ws
        self.events: list[dict[str, Any]] = []
        self.challenge: dict[str, Any] = {}
        self.connected: dict[str, Any] = {}
        """What `auth.connect` answered."""
        self._ids = 0

    async def call(self, method: str, params: dict[str, Any] | None = None) -> Any:
        """The result of a request. Raises `RpcError`."""
        self._ids += 1
        key = f"t-{self._ids}"
        await self.ws.send(json.dumps({"jsonrpc": "2.0", "id": key, "method": method, "params": params or {}}))
        while True:
            frame = json.loads(await self.ws.recv())
            if frame.get("id") != key:
                self.events.append(frame)
                continue
            if "error" in frame:
                raise RpcError(frame["error"])
            return frame["result"]

    async def event(self, method: str) -> dict[str, Any]:
        """The next event of a name, waiting for it; its params."""
        while True:
            for frame in self.events:
                if frame.get("method") == method:
                    self.events.remove(frame)
                    return frame["params"]
            self.events.append(json.loads(await self.ws.recv()))


class Place(Protocol):
    """A node as its callers see it."""

    @property
    def endpoints(self) -> Mapping[str, str]: ...

    @property
    def issuer(self) -> str: ...


@asynccontextmanager
async def socket(node: Place) -> AsyncIterator[Socket]:
    """A fresh socket that has read its challenge."""
    async with connect(node.endpoints["aun"], max_size=4 << 20) as ws:
        made = Socket(ws)
        made.challenge = json.loads(await ws.recv())["params"]
        yield made


class Agent:
    """An AID with its key: registers and logs in as the SDK does, step by step."""

    def __init__(self, node: Place, name: str, device: str = "dev-1", slot: str = "default") -> None:
        self.node, self.name, self.device, self.slot = node, name, device, slot
        self.aid = f"{name}.{node.issuer}"
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.cert = ""
        self.token = ""

    @property
    def public_key(self) -> str:
        """base64 of the SPKI."""
        raw = self.key.public_key().public_bytes(
            serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
        )
        return base64.b64encode(raw).decode()

    def sign(self, text: str) -> str:
        """base64 DER ECDSA over UTF-8 text."""
        return base64.b64encode(self.key.sign(text.encode(), ec.ECDSA(hashes.SHA256()))).decode()

    async def register(self) -> None:
        """`auth.create_aid`; the name must be reserved."""
        async with socket(self.node) as wire:
            made = await wire.call(
                "auth.create_aid", {"aid": self.aid, "public_key": self.public_key, "curve": "P-256"}
            )
            self.cert = made["cert"]

    async def login(self) -> None:
        """`auth.aid_login1` and `auth.aid_login2` on sockets of their own."""
        async with socket(self.node) as wire:
            first = await wire.call(
                "auth.aid_login1",
                {
                    "aid": self.aid,
                    "cert": self.cert,
                    "client_nonce": base64.b64encode(secrets.token_bytes(12)).decode(),
                },
            )
        async with socket(self.node) as wire:
            now = "1795150236.070368"
            second = await wire.call(
                "auth.aid_login2",
                {
                    "aid": self.aid,
                    "request_id": first["request_id"],
                    "nonce": first["nonce"],
                    "client_time": now,
                    "signature": self.sign(f"{first['nonce']}:{now}"),
                },
            )
            self.token = second["access_token"]

    @asynccontextmanager
    async def connected(self, *, peer_pull: bool = False, **more: Any) -> AsyncIterator[Socket]:
        """A session."""
        async with socket(self.node) as wire:
            wire.connected = await wire.call(
                "auth.connect",
                {
                    "nonce": wire.challenge["nonce"],
                    "auth": {"method": "kite_token", "token": self.token},
                    "protocol": {"min": "1.0", "max": "1.0"},
                    "device": {"id": self.device, "type": "sdk"},
                    "client": {"slot_id": self.slot},
                    "delivery_mode": {"mode": "fanout"},
                    "capabilities": {"p2p_peer_pull_v1": peer_pull},
                    **more,
                },
            )
            yield wire


async def agent(node: Node, name: str, **more: Any) -> Agent:
    """An agent whose name the owner reserved, registered and logged in."""
    from edge.contract.principal import Kind, Principal

    owner = Principal(kind=Kind.OPERATOR, aid="", scopes=frozenset({"*"}), via="control")
    await node.house.dispatcher.call("edge", "agent.add", json.dumps({"name": name}).encode(), owner)
    made = Agent(node, name, **more)
    await made.register()
    await made.login()
    return made


class Elsewhere:
    """A node in another process, as far as an `Agent` needs to know it. It may have been started anew meanwhile."""

    def __init__(self, process: NodeProcess) -> None:
        self._process = process

    @property
    def endpoints(self) -> dict[str, str]:
        """Where it answers."""
        found: dict[str, str] = self._process.ready["endpoints"]
        return found

    @property
    def issuer(self) -> str:
        """What its AIDs end in."""
        return str(self._process.ready["issuer"])

    async def agent(self, name: str, **more: Any) -> Agent:
        """An agent whose name the owner reserved, registered and logged in."""
        await asyncio.to_thread(self._process.cli, "agent", "add", name)
        made = Agent(self, name, **more)
        await made.register()
        await made.login()
        return made
