"""Everything the node is made of, built in the order of the layers and wired once. No logic lives here."""

from __future__ import annotations

import asyncio
import logging
import socket
import threading
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from edge import __version__
from edge.config import Config
from edge.contract.errors import InvalidParams
from edge.contract.limit import Limits
from edge.contract.principal import Principal
from edge.contract.store import Unit
from edge.contract.time import SECOND
from edge.devices.alarms import Alarms
from edge.devices.caps import CapService
from edge.devices.gate import Gate
from edge.devices.grants import GrantBook
from edge.devices.history import Keeper
from edge.devices.intake import Intake
from edge.devices.operator import OperatorService
from edge.devices.registry import Registry
from edge.devices.service import DeviceService
from edge.devices.tap import Taps
from edge.devices.users import UserService
from edge.dispatch.areas import Areas
from edge.dispatch.dispatcher import Dispatcher
from edge.dispatch.hub import Hub
from edge.dispatch.table import OpTable
from edge.node.bus import Ports, make_bus
from edge.node.names import own_names
from edge.node.renewal import Renewal
from edge.node.tasks import Tasks
from edge.protocol import aun_events
from edge.protocol.aid import SERVICES
from edge.protocol.urls import Names, gateway_url, public_url, settled_base
from edge.services import agent_md as cards
from edge.services.admin import AdminService, Method, Reloaded
from edge.services.auth.agents import AgentService
from edge.services.auth.certificates import CertificateDesk
from edge.services.auth.service import AuthService
from edge.services.backup import BackupService
from edge.services.ca import CaService
from edge.services.debug import DebugService, Stage
from edge.services.group import GroupService
from edge.services.message.service import MessageService
from edge.services.meta import MetaService
from edge.services.push import PushService
from edge.services.queue import QueueService
from edge.services.routes import RouteService
from edge.services.task.service import TaskService
from edge.session.channels import Channels
from edge.session.conversation import Sessions
from edge.session.doors import Doors, Hosts
from edge.session.gatekeeper import Gatekeeper
from edge.session.limiter import Limiter
from edge.session.signed import SignedCalls
from edge.store import devices as device_rows
from edge.store import identity as names
from edge.store.boot import Boots
from edge.store.database import Database
from edge.store.keyring import Identity, TlsFiles, load_identity
from edge.store.losses import Losses
from edge.store.marks import Marks, kernel_boot_id
from edge.store.reserve import Reserve
from edge.system.clock import SystemClock
from edge.transports.ctl import ControlSocket
from edge.transports.http import a2a, agent_md, aun, health, pki
from edge.transports.http.app import build_app
from edge.transports.http.bounded import Terms

log = logging.getLogger(__name__)


class Asked(Protocol):
    """What the node itself answers."""

    def facts(self) -> Mapping[str, Any]:
        """What `status` shows."""
        ...

    def well(self) -> Mapping[str, bool]:
        """Each part that must answer, and whether it did."""
        ...

    def reload(self) -> Reloaded:
        """Read the configuration again. Raises `InvalidParams` when it is refused."""
        ...


class House:
    """The parts of one node. `open` brings them up, `close` takes them down; in between the listeners come and go."""

    def __init__(self, config: Config, issuer: str, tasks: Tasks) -> None:
        state = config.state_dir
        self._config, self._asked_issuer, self._tasks = config, issuer, tasks
        self._own_names = own_names(config, socket.gethostname())
        self.limits = Limits(config.limits_overrides(), threading.Lock())
        self.marks = Marks.load(state / "identity" / "incarnation")
        self.clock = SystemClock(self.marks.begin_boot(kernel_boot_id()))
        self.hub = Hub()
        self.node = self._database("node", 0)
        self.hot = self._database("hot", config.store.wear_window_s)
        self.boots = Boots(self.node, self.clock, self.marks)
        self.losses = Losses(self.hot, self.clock)
        self.lag_us: Callable[[], int] = lambda: 0
        """How late the loop was lately; told by whoever measures it."""
        self.channels = Channels(self.clock, self.limits)
        self.channels.attach(self.hub)
        self.limiter = Limiter(self.clock, self.limits)
        self.terms = Terms(self.clock, self.limits, aun.message_limits())
        self.identity: Identity
        self._listening: dict[str, str] = {}
        self._closers: list[Callable[[], None]] = []
        self._built = False

    def _database(self, name: str, wear_window_s: float) -> Database:
        state = self._config.state_dir
        path = state / "store" / f"{name}.db"
        return Database(
            path,
            name,
            self.clock,
            asyncio.get_running_loop(),
            marks=self.marks,
            fanout=self.hub.publish,
            limits=self.limits,
            wear_window_us=int(wear_window_s * SECOND),
            quarantine=state / "quarantine",
            reserve=Reserve(path) if name == "hot" else None,
        )

    # Coming.

    async def open(self, asked: Asked) -> None:
        """Open the files, build what stands on them, load what they hold. Raises `IdentityError`."""
        await self._open_files()
        await self.boots.start()
        self._closers.append(self.boots.stop)
        now_us, unsure_us = self.clock.wall(self.clock.now())
        self.identity = load_identity(
            self._config.state_dir,
            self._asked_issuer or None,
            now_us,
            self.clock.floor_us,
            unsure_us,
            self._own_names,
        )
        self._build(asked)
        await self._load()

    async def _open_files(self) -> None:
        """Both or none: one that cannot be used leaves the other as a clean stop does."""
        files = (self.node, self.hot)
        for outcome in await asyncio.gather(*(one.open() for one in files), return_exceptions=True):
            if isinstance(outcome, BaseException):
                await asyncio.gather(*(one.close() for one in files))
                raise outcome

    def _build(self, asked: Asked) -> None:
        """Make every part and hand down the ports, in the order of the layers."""
        areas = Areas()
        self._build_devices()
        self.alarms = Alarms(
            self.registry, areas, self._tasks.spawn, self.losses, self.limits, owner=self._config.node.owner
        )
        self._build_services(areas)
        self.table = self._operations(areas, asked)
        self.table.switch_off(self._config.node.off)
        self.dispatcher = Dispatcher(self.table, {"node": self.node, "hot": self.hot})
        areas.bind(self.dispatcher)
        self._build_doors(asked)
        self._built = True

    def _build_devices(self) -> None:
        """The bus, what devices say and do, and how long it is kept."""
        config, issuer = self._config, self.issuer
        self.gatekeeper = Gatekeeper(self.node, issuer, self.clock, self.limits)
        self.registry = Registry(issuer, self.clock, self.node, self.hot, self.limits)
        ports = Ports(
            self.clock,
            self.gatekeeper,
            self.hot,
            self.limits,
            self.losses,
            self._tasks.spawn,
            self.registry.routes,
            lambda: self.lag_us(),
        )
        self.bus, admission = make_bus(config, issuer, ports)
        self.gate = Gate(self.registry, self.bus, self.clock, confirm_us=config.devices.confirm_s * SECOND)
        self.intake = Intake(
            self.registry,
            admission,
            self.hub,
            events=self.gate,
            prefix=config.devices.discovery_prefix,
        )
        self.grants = GrantBook(self.node)
        self._taps = Taps(self.limits)
        self.keeper = Keeper(
            self.registry,
            self.intake,
            self._tasks.spawn,
            keep_days=config.readings.keep_days,
            keep_octets=config.readings.keep_mib << 20,
        )
        self.bus.attach(self.intake.sink)
        self.bus.attach(self._taps.sink)
        self.channels.attach_availability(self.registry.online)

    def _build_services(self, areas: Areas) -> None:
        """The services that keep state of their own and hear of what others do."""
        config, issuer = self._config, self.issuer
        self._services = {f"{name}.{issuer}" for name in (*self._offered, "gateway")}
        self.auth = AuthService(
            self.node,
            self.clock,
            self.identity,
            self.limits,
            registration=config.auth.registration,
            namespaces=lambda: self.table.namespaces("aun"),
            version=__version__,
            base=self._base,
        )
        self.ca = CaService(self.node, self.clock, self.identity, self.limits, self.gate, self._base)
        self.tasks = TaskService(
            self.node,
            self.clock,
            self.gate,
            self.grants,
            self.hub,
            issuer=issuer,
            known=self._known,
            limits=self.limits,
            default_skill=config.agents.default_skill,
        )
        self.gate.report_to(self.tasks)
        self.messages = MessageService(
            self.node,
            self.clock,
            self.channels,
            self.gate,
            areas,
            self._tasks.spawn,
            self.hub,
            issuer=issuer,
            known=self._known,
            limits=self.limits,
            key_of=self.identity.key_of,
        )
        self.groups = GroupService(
            self.node,
            self.clock,
            self.channels,
            self.hub,
            self._tasks.spawn,
            self.identity,
            issuer=issuer,
            known=self._known,
            limits=self.limits,
            base=self._base,
        )
        self.channels.on_admitted += [self.messages.connected, self.groups.connected]
        self.push = PushService(
            self.node, self.clock, self.channels, self.hub, self._tasks.spawn, self._known, self.limits
        )
        self.hub.attach_audience(self.push.heard)

    def _operations(self, areas: Areas, asked: Asked) -> OpTable:
        """The one table of everything that can be asked."""
        config = self._config
        return OpTable(
            self.auth,
            AgentService(
                self.node, self.clock, self.limits, self.auth, self.channels, ungranted=self.grants.drop_agent
            ),
            self.ca,
            MetaService(self.clock, areas, self.names),
            cards.AgentMdService(
                self.node,
                self.clock,
                self.identity,
                self.limits,
                self.gate,
                areas,
                endpoints=self._service_endpoints,
                about=cards.About(
                    provider=config.node.provider, contact=config.node.contact, license=config.node.license
                ),
                services=self._offered,
            ),
            self.messages,
            *self.groups.parts,
            self.tasks,
            DeviceService(
                self.registry,
                self.grants,
                self.gatekeeper,
                self.bus,
                self.clock,
                mqtt_url=lambda: self._listening.get("mqtt", ""),
                prefix=config.devices.discovery_prefix,
            ),
            CapService(self.registry, self.grants, self.clock),
            UserService(self.node, self.registry.names, self.gatekeeper, self.bus),
            OperatorService(self.bus, self.clock, self.limits, self._taps),
            QueueService({"node": self.node, "hot": self.hot}, self.clock, lambda: self.losses.pending, self._counted),
            AdminService(asked.facts, self.methods, asked.reload, self.limits),
            self.push,
            RouteService(self.clock, self.channels, self.hub, areas, self.limits),
            DebugService(self._requests, self._dry_run),
            BackupService({"node": self.node, "hot": self.hot}, config.state_dir, self.clock, self._tasks.spawn),
        )

    def _build_doors(self, asked: Asked) -> None:
        """Sessions and what leads to them."""
        config = self._config
        self.sessions = Sessions(
            SignedCalls(self.dispatcher, self.auth.signatures.check),
            self.channels,
            self.limiter,
            self.clock,
            self.limits,
            self._tasks.spawn,
        )
        self.ctl = ControlSocket(config.state_dir / "run", self.sessions, self.clock, self.limits, self._tasks.spawn)
        self.app = self._app(asked.well)
        files = TlsFiles(
            cert=config.tls.cert,
            key=config.tls.key,
            client_ca=config.tls.client_ca,
            client_cert=config.tls.client_cert,
            min_version=config.tls.min_version,
        )
        self.renewal = Renewal(self.identity, files, self._own_names, self.clock, self.ca.start)

    @property
    def _offered(self) -> list[str]:
        """The services that have an AID of their own here."""
        return [name for name in SERVICES if name not in self._config.node.off]

    @property
    def has_devices(self) -> bool:
        """Whether there is anybody to open a door to the LAN for (design D16)."""
        return bool(self.registry.devices())

    def _app(self, well: Callable[[], Mapping[str, bool]]) -> Any:
        """The one HTTP application of every HTTP listener."""
        config = self._config
        self.hosts = Hosts([self.issuer, f"*.{self.issuer}", *self._own_names])
        doors = Doors(
            self.auth,
            self.limiter,
            self.hosts,
            insecure_local=config.http.insecure_local,
            certificates=CertificateDesk(self.node, self.clock, self.identity).principal,
        )
        about = a2a.About(
            issuer=self.issuer,
            version=__version__,
            name=config.node.name or socket.gethostname(),
            provider=config.node.provider,
            secured=not config.http.insecure_local,
            mutual_tls=config.tls.client_cert != "off",
            **({"description": config.a2a.description} if config.a2a.description else {}),
        )
        agents = a2a.A2A(self.dispatcher, self.gate.skills, self.clock, about, self.names)
        routes = [
            *aun.routes(self.sessions, aun_events.render),
            *pki.routes(self.dispatcher),
            *agent_md.routes(self.dispatcher),
            *health.routes(well),
            *(agents.routes() if config.a2a.enabled else ()),
        ]
        return build_app(routes, clock=self.clock, limits=self.limits, limiter=self.limiter, doors=doors)

    async def _load(self) -> None:
        """Bring back what is on disk; afterwards listeners may open."""
        await self.gatekeeper.load()
        await self.grants.load()
        await self.registry.load()
        await self.bus.load()
        self.registry.recall(self.bus.kept)
        self.keeper.start()
        self._closers.append(self.keeper.stop)
        await self.ca.start()
        await self.tasks.resume()
        self._closers.append(self.tasks.close)
        self.messages.start()
        await self.alarms.start()
        self._closers.append(self.messages.stop)
        self.groups.start()
        self._closers.append(self.groups.stop)
        await self.push.start()
        self._closers.append(self.push.stop)

    def _known(self, unit: Unit, aid: str) -> bool:
        """Whether an AID can be spoken to: registered, let in by a token, a device's, or a service of ours (G19)."""
        return aid in self._services or names.known(unit, aid) or device_rows.has_aid(unit, aid)

    # Names and addresses.

    @property
    def issuer(self) -> str:
        """The domain behind every AID of this node."""
        return self.identity.issuer

    def listening(self, name: str, url: str) -> None:
        """A listener answers at `url`."""
        self._listening[name] = url

    def names(self) -> Names:
        """What the node is called and where it listens, for absolute URLs."""
        return Names(
            self.issuer,
            tuple(self._config.node.public_url),
            frozenset(self._own_names),
            self._listening.get("https", ""),
            self._listening.get("http", ""),
        )

    def _base(self) -> str:
        """Where we are reached when nobody asked from anywhere: what goes into certificates."""
        return public_url("", "", self.names())

    def _service_endpoints(self, base: str, address: str) -> dict[str, str]:
        names = self.names()
        base = settled_base(base, names)
        found = {"aun": gateway_url(base, address, names)}
        a2a = f"{public_url(base, address, names)}/a2a"
        return found | ({"a2a": a2a} if self._config.a2a.enabled else {})

    # Being asked.

    def _counted(self) -> dict[str, Mapping[str, int]]:
        """What was refused or dropped since the start, by who counts it."""
        return {
            "limits": self.limits.hits,
            "mqtt": {name: count for name, count in self.bus.stats().items() if "." in name},
            "logins": self.gatekeeper.refused,
            "devices": self.registry.counters,
            "alarms": self.alarms.counters,
            "session": {"notifications ignored": self.sessions.ignored, "control refused": self.ctl.refused},
            "frames": self.sessions.refused,
            "calls": {
                f"{op} {outcome}": count for (op, outcome), count in self.dispatcher.calls.items() if outcome != "ok"
            },
        }

    def pings(self) -> dict[str, Callable[[], Awaitable[None]]]:
        """What must answer before the watchdog is fed."""
        return {"node.db": self.node.ping, "hot.db": self.hot.ping, "bus": self.bus.ping}

    def methods(self) -> list[Method]:
        """Every operation as `aun-edge methods` shows it."""
        return [
            Method(
                op.name,
                op.scope,
                self.table.offered(op),
                op.writes,
                op.doc,
                [error.__name__ for error in op.raises],
                self.table.withheld(op),
            )
            for op in sorted(self.table, key=lambda op: op.name)
        ]

    def _requests(self) -> list[str]:
        """The AUN names that have an answer."""
        return [name for name in self.table.names("aun") if "/" not in name]

    def _dry_run(self, name: str, params: bytes, who: Principal) -> list[Stage]:
        """A call by its AUN name, looked at and not made."""
        op = self.dispatcher.permitted("aun", name, who)
        stages = [Stage("catalog", detail=op.name), Stage("scope", detail=op.scope or "open")]
        try:
            self.dispatcher.check(op, params)
        except InvalidParams as error:
            return [*stages, Stage("params", "skipped", error.message)]
        return [*stages, Stage("params")]

    def facts(self) -> dict[str, Any]:
        """What `status` shows of the parts."""
        now_us, unsure_us = self.clock.wall(self.clock.now())
        return {
            "version": __version__,
            "issuer": self.issuer,
            "boot": self.clock.boot,
            "incarnation": self.marks.incarnation,
            "clock": {"sure": self.clock.sure, "wall_us": now_us, "uncertainty_us": unsure_us},
            "stores": {
                db.name: {
                    **db.stats(),
                    "read_only": db.read_only,
                    "failure": db.failure,
                    "full": db.full,
                    "damage": db.damage,
                    "doubt": db.doubt,
                }
                for db in (self.node, self.hot)
            },
            "mqtt": {
                "engine": self._config.mqtt.engine,
                "promise": self.bus.promise,
                **self.bus.facts(),
                **self.bus.stats(),
            },
            "channels": len(self.channels),
            "owner": self._config.node.owner,
            "devices": len(self.registry.devices()),
            "skills": len(self.gate.skills()),
            "device_counters": dict(self.registry.counters),
            "limit_hits": dict(self.limits.hits),
            "tls_until": self.renewal.until,
        }

    # Going.

    def stop_accepting(self) -> None:
        """No new connections."""
        if self._built:
            self.bus.stop_accepting()
            self.ctl.stop()

    def stop_reading(self) -> None:
        """Nothing new from those that are connected."""
        if self._built:
            self.bus.stop_reading()
            self.sessions.stop_reading()

    async def drain(self, deadline_us: int) -> None:
        """Finish or refuse what runs; acks and answers out; then say goodbye."""
        if not self._built:
            return
        await self.sessions.drain(deadline_us)
        await self.bus.close()
        self.channels.close_all()

    async def close(self) -> None:
        """The last commit and a clean file each."""
        for close in reversed(self._closers):
            close()
        self.losses.stop()
        await self.hot.close()
        await self.node.close()
