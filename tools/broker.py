"""Our MQTT engine alone, with its real sockets and its real store, for a test suite of somebody else.

    tools/broker --anonymous --port 1883 --ws-port 8080 --refuse-subscribe test/nosubscribe
    tools/broker --user alice:secret --user bob:secret --state DIR      a kill and a start find everything again

On loopback only: `--anonymous` lets in whoever comes. The node itself knows no anonymous clients.
"""

from __future__ import annotations

import argparse
import asyncio
import ipaddress
import signal
import socket
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

import engine_alone

from edge.contract.bus import Admission, Login, Refusal, Verdict
from edge.contract.limit import REGISTRY, Limits
from edge.contract.principal import Kind, Principal
from edge.protocol.mqtt.reasons import ALLOWED, Packet, Reason
from edge.protocol.mqtt.topics import valid_filter
from edge.transports.mqtt.builtin import BuiltinEngine
from edge.transports.mqtt.tcp import Entrance

HOSTS = ("127.0.0.1", "::1")
ANYBODY = "anybody"


class Door:
    """Who may come in. With users named, they need their password, and nobody else comes unless `anonymous`, by no
    user name; with none named, `anonymous` takes any user name and password for the same somebody."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._users = dict(options.user)
        self._anonymous: bool = options.anonymous
        self._publish = tuple(options.allow_publish or ("#",))
        self._subscribe = tuple(options.allow_subscribe or ("#", "$SYS/#"))
        self._withheld = tuple(options.refuse_subscribe)

    def admit(self, login: Login, then: Verdict) -> None:
        user = login.user
        if self._anonymous and not (self._users and user):
            then(self._admission(ANYBODY))
        elif user in self._users and login.password == self._users[user]:
            then(self._admission(user))
        else:
            then(Refusal.CREDENTIALS)

    def _admission(self, user: str) -> Admission:
        who = Principal(Kind.DEVICE, f"d-{user}", via="mqtt")
        return Admission(who, user, self._publish, self._subscribe, self._withheld)


def parse(words: Sequence[str]) -> argparse.Namespace:
    """What is asked for; exits when that cannot be."""
    parser = argparse.ArgumentParser(
        prog="tools/broker", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--host", help="a loopback address; both of them by default")
    parser.add_argument("--port", type=int, default=1883, help="of MQTT over TCP (1883); 0 takes a free one")
    parser.add_argument("--ws-port", type=int, help="of MQTT over WebSocket; none by default")
    parser.add_argument("--ws-path", default="/mqtt", help="path of the WebSocket (/mqtt)")
    parser.add_argument("--state", type=Path, help="keep sessions and messages in this folder, within one boot")
    parser.add_argument("--anonymous", action="store_true", help="let in whoever brings no user name")
    parser.add_argument("--user", action="append", type=_user, default=[], metavar="NAME:PASSWORD")
    parser.add_argument("--allow-publish", action="append", type=_filter, metavar="FILTER", help="%%c, %%u; default #")
    parser.add_argument("--allow-subscribe", action="append", type=_filter, metavar="FILTER", help="default #, $SYS/#")
    parser.add_argument(
        "--refuse-subscribe",
        action="append",
        type=_refusal,
        default=[],
        metavar="FILTER[:CODE]",
        help="refuse this very filter: 0x80 in 3.1.1, CODE (0x87) in 5; some suites want 0x80 in both",
    )
    parser.add_argument("--limit", action="append", type=_limit, default=[], metavar="NAME=VALUE")
    found = parser.parse_args(words)
    if not found.anonymous and not found.user:
        parser.error("nobody could come in: --anonymous or --user NAME:PASSWORD")
    if found.host is not None and not _loopback(found.host):
        parser.error(f"{found.host} is no loopback address")
    return found


def _loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _user(word: str) -> tuple[str, bytes]:
    name, colon, password = word.partition(":")
    if not name or not colon:
        raise argparse.ArgumentTypeError("NAME:PASSWORD")
    return name, password.encode()


def _filter(word: str) -> str:
    if not valid_filter(word):
        raise argparse.ArgumentTypeError(f"{word!r} is no topic filter")
    return word


def _refusal(word: str) -> tuple[str, int]:
    name, colon, code = word.rpartition(":")
    if not colon:
        return _filter(word), Reason.NOT_AUTHORIZED
    try:
        reason = int(code, 0)
    except ValueError:
        return _filter(word), Reason.NOT_AUTHORIZED
    if reason < 0x80 or reason not in ALLOWED[Packet.SUBACK]:
        raise argparse.ArgumentTypeError(f"{code} is no refusal that a SUBACK may carry")
    return _filter(name), reason


def _limit(word: str) -> tuple[str, int]:
    name, _, value = word.partition("=")
    if name not in REGISTRY:
        raise argparse.ArgumentTypeError(f"no limit is called {name!r}; docs/reference/limits.md has them all")
    try:
        number = int(value)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{name} needs a number") from None
    if number < (least := REGISTRY[name].least):
        raise argparse.ArgumentTypeError(f"{name} is at least {least}")
    return name, number


async def serve(options: argparse.Namespace, folder: Path) -> None:
    """Serve until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    async with engine_alone.engine(folder, Door(options), Limits(dict(options.limit))) as engine:
        hosts = HOSTS if options.host is None else (options.host,)
        await _open(engine, hosts, options.port, "mqtt", ws=False, entrance=Entrance())
        if options.ws_port is not None:
            entrance = Entrance(path=options.ws_path)
            await _open(engine, hosts, options.ws_port, "ws", ws=True, entrance=entrance)
        print("ready", flush=True)
        await stop.wait()


async def _open(
    engine: BuiltinEngine, hosts: Sequence[str], port: int, word: str, *, ws: bool, entrance: Entrance
) -> None:
    """Listen on every host, on the same port; the machine need not have both addresses."""
    for host in hosts:
        try:
            sock = _bound(host, port)
        except OSError as error:
            if host == hosts[0]:
                raise SystemExit(f"tools/broker: {host} port {port}: {error.strerror}") from None
            continue
        port = await engine.serve(sock, entrance=entrance, ws=ws)
        print(f"{word} {host} {port}", flush=True)


def _bound(host: str, port: int) -> socket.socket:
    six = ":" in host
    sock = socket.socket(socket.AF_INET6 if six else socket.AF_INET, socket.SOCK_STREAM)
    try:
        if six:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind((host, port))
    except OSError:
        sock.close()
        raise
    return sock


def main(words: Sequence[str]) -> None:
    """Run with the words of the command line."""
    options = parse(words)
    if options.state is not None:
        options.state.mkdir(parents=True, exist_ok=True)
        asyncio.run(serve(options, options.state))
        return
    with tempfile.TemporaryDirectory(prefix="broker-") as folder:
        asyncio.run(serve(options, Path(folder)))


if __name__ == "__main__":
    try:
        import uvloop
    except ImportError:
        pass
    else:
        uvloop.install()
    main(sys.argv[1:])
