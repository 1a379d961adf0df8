"""Identity without a node: store, keyring, the services around them and a dispatcher; on request the HTTP side too."""

from __future__ import annotations

import asyncio
import base64
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec

from edge.contract.capability import Capability, Skill
from edge.contract.channel import Instance
from edge.contract.limit import Limits
from edge.contract.op import Door, Outcome
from edge.contract.principal import GUEST, Kind, Principal
from edge.contract.time import SECOND, Clock
from edge.contract.wire import dumps
from edge.dispatch.dispatcher import Dispatcher
from edge.dispatch.table import OpTable
from edge.protocol import keys
from edge.protocol.urls import Names
from edge.services.agent_md import About, AgentMdService
from edge.services.auth import AgentService, AuthService
from edge.services.ca import CaService
from edge.services.meta import MetaService
from edge.session.channels import Channels
from edge.session.conversation import Sessions
from edge.session.doors import Doors, Hosts
from edge.session.limiter import Limiter
from edge.store.database import Database
from edge.store.keyring import Identity, load_identity
from edge.system.ports import bind_tcp
from edge.transports.http import agent_md, aun, health, pki
from edge.transports.http.app import build_app
from edge.transports.http.bounded import Terms
from edge.transports.http.listener import Listener
from tests.support.clock import FakeClock
from tests.support.store import database

ISSUER = "edge.test"
OWNER = Principal(Kind.OPERATOR, "", frozenset({"*"}), via="control")
THERMO = f"d-thermo.{ISSUER}"
FLOOR_US = 1_740_000_000 * SECOND
NONCE = "challenge-nonce"

_KEYS: dict[str, ec.EllipticCurvePrivateKey] = {}


class Gate:
    """A `DeviceGate` of which only the list of skills is asked."""

    def __init__(self) -> None:
        cap = Capability(name="temperature", title="Temperature", kind="sensor", value_type="number", unit="°C")
        self.list = [Skill(id="thermo.temperature", device="thermo", device_name="Thermometer", aid=THERMO, cap=cap)]

    def skills(self) -> list[Skill]:
        return list(self.list)


class Seats:
    """A `Presence` that remembers whom it was told to expel."""

    def __init__(self) -> None:
        self.expelled: list[tuple[str, int, str]] = []

    def online(self, aid: str) -> bool:
        return False

    def instances(self, aid: str) -> list[Instance]:
        return []

    def expel(self, aid: str, code: int, reason: str) -> int:
        self.expelled.append((aid, code, reason))
        return 1


class _Asking:
    """`Calls` over a dispatcher that is made later."""

    def __init__(self) -> None:
        self.dispatcher: Dispatcher

    async def call(self, op: str, params: object, who: Principal) -> Any:
        return await self.dispatcher.run(op, params, who)


class Desk:
    """The parts, wired as a node wires them."""

    def __init__(
        self, store: Database, clock: Clock, identity: Identity, limits: Mapping[str, int], **auth: Any
    ) -> None:
        self.store, self.clock, self.identity = store, clock, identity
        self.limits, self.gate, self.seats = Limits(dict(limits)), Gate(), Seats()
        self.names = Names(issuer=identity.issuer)
        asking = _Asking()
        self.auth = AuthService(store, clock, identity, self.limits, **auth)
        self.agents = AgentService(store, clock, self.limits, self.auth, self.seats)
        self.ca = CaService(store, clock, identity, self.limits, self.gate)  # type: ignore[arg-type]
        self.meta = MetaService(clock, asking, lambda: self.names)
        self.cards = AgentMdService(
            store,
            clock,
            identity,
            self.limits,
            self.gate,  # type: ignore[arg-type]
            asking,
            endpoints=lambda base, address: {"aun": f"{base}/aun"} if base else {},
            about=About(provider="Household", contact="mailto:doe@example.org"),
        )
        table = OpTable(self.auth, self.agents, self.ca, self.meta, self.cards)
        self.dispatcher = asking.dispatcher = Dispatcher(table, {"node": store})

    async def ask(
        self, name: str, params: object = None, who: Principal = GUEST, *, surface: str = "aun", **door: Any
    ) -> Outcome:
        """Call by wire name, as a transport does; the socket's nonce is `NONCE`."""
        made = Door(**{"channel": "c1", "address": "192.0.2.7", "nonce": NONCE, **door})
        return await self.dispatcher.call(surface, name, dumps(params or {}), who, door=made)

    async def result(self, name: str, params: object = None, who: Principal = GUEST, **how: Any) -> Any:
        return (await self.ask(name, params, who, **how)).result

    async def register(self, name: str) -> Agent:
        """Reserve a name and register a key under it."""
        await self.result("agent.add", {"name": name}, OWNER, surface="edge")
        agent = Agent(f"{name}.{ISSUER}", new_key(name))
        agent.cert = (await self.result("auth.create_aid", {"aid": agent.aid, "public_key": agent.public})).cert
        return agent

    async def login(self, agent: Agent) -> Any:
        """Both halves; the answer of the second."""
        first = await self.first(agent)
        return await self.result("auth.aid_login2", agent.proof(first))

    async def first(self, agent: Agent) -> Any:
        return await self.result("auth.aid_login1", {"aid": agent.aid, "cert": agent.cert, "client_nonce": "Y2xpZW50"})


class Agent:
    """A client: its name, key and certificate."""

    def __init__(self, aid: str, key: ec.EllipticCurvePrivateKey, cert: str = "") -> None:
        self.aid, self.key, self.cert = aid, key, cert

    @property
    def spki(self) -> bytes:
        return keys.spki_of(self.key.public_key())

    @property
    def public(self) -> str:
        return base64.b64encode(self.spki).decode()

    def sign(self, text: str) -> str:
        return keys.sign(self.key, text.encode())

    def proof(self, first: Any, client_time: object = "1750000000.25") -> dict[str, object]:
        """What aid_login2 takes."""
        return {
            "aid": self.aid,
            "request_id": first.request_id,
            "nonce": first.nonce,
            "client_time": client_time,
            "signature": self.sign(f"{first.nonce}:{client_time}"),
        }


def new_key(name: str) -> ec.EllipticCurvePrivateKey:
    """A P-256 key; the same for the same name within a test run."""
    return _KEYS.setdefault(name, keys.generate("P-256"))


@asynccontextmanager
async def desk(
    folder: Path, clock: Clock | None = None, *, limits: Mapping[str, int] | None = None, **auth: Any
) -> AsyncIterator[Desk]:
    """Everything on a real database in `folder`; a second time in the same folder is a restart."""
    clock = clock or FakeClock()
    now_us, unsure_us = clock.wall(clock.now())
    identity = load_identity(folder, ISSUER, now_us, FLOOR_US, unsure_us)
    async with database(folder, clock=clock) as store:
        made = Desk(store, clock, identity, limits or {}, **auth)
        await made.ca.start()
        yield made


@asynccontextmanager
async def served(made: Desk, hosts: Sequence[str] = ()) -> AsyncIterator[str]:
    """The HTTP and WebSocket side of a desk on loopback; its base URL."""
    clock, limits = made.clock, made.limits
    channels, limiter = Channels(clock, limits), Limiter(clock, limits)
    async with asyncio.TaskGroup() as group:
        sessions = Sessions(made.dispatcher, channels, limiter, clock, limits, lambda work: _spawn(group, work))
        doors = Doors(made.auth, limiter, Hosts([ISSUER, f"*.{ISSUER}", *hosts]))
        routes = [
            *aun.routes(sessions, lambda event, hello: None),
            *pki.routes(made.dispatcher),
            *agent_md.routes(made.dispatcher),
            *health.routes(lambda: {}),
        ]
        app = build_app(routes, clock=clock, limits=limits, limiter=limiter, doors=doors)
        listener = Listener(app, bind_tcp("127.0.0.1", 0), Terms(clock, limits, aun.message_limits()))
        await listener.start()
        try:
            yield listener.url
        finally:
            listener.stop_accepting()
            await listener.shutdown()


def _spawn(group: asyncio.TaskGroup, work: Any) -> None:
    group.create_task(work)


def scratch() -> Path:
    """A folder for one run by hand."""
    return Path(tempfile.mkdtemp())
