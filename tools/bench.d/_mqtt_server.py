"""Our engine alone, for the bench: password, ACL and a sink that keeps every message.  _mqtt_server.py FOLDER"""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from pathlib import Path

from edge.contract.bus import Admission, Done, Publish
from edge.contract.limit import Limits
from edge.contract.principal import Kind, Principal
from edge.store.database import Database
from edge.store.schema import MIGRATIONS
from edge.system.clock import SystemClock
from edge.transports.mqtt.builtin import BuiltinEngine

FILTERS = (*(f"device{at}/#" for at in range(5)), "+/+", "slow/+/+", "$SYS/#")


class Gate:
    """One user; an ACL of several filters of which the last fits."""

    def __init__(self) -> None:
        self._admission = Admission(Principal(Kind.DEVICE, "d-bench", via="mqtt"), "bench", FILTERS, FILTERS)

    def admit(self, user: str, password: bytes | None, client_id: str, address: str) -> Admission | None:
        return self._admission if (user, password) == ("bench", b"bench") else None


async def main(folder: Path) -> None:
    """Serve until SIGTERM; the port is the first line of output."""
    loop = asyncio.get_running_loop()
    clock = SystemClock(1)
    hot = Database(folder / "hot.db", "hot", clock, loop, migrations=MIGRATIONS)
    await hot.open()
    engine = BuiltinEngine(clock=clock, gatekeeper=Gate(), hot=hot, limits=Limits())

    def keep(batch: list[Publish], done: Done) -> range:
        loop.call_soon(done, None)
        return range(len(batch))

    engine.attach(keep)
    await engine.load()
    gc.freeze()
    print(await engine.listen("127.0.0.1", 0), flush=True)
    stop = asyncio.Event()
    loop.add_signal_handler(signal.SIGTERM, stop.set)
    await stop.wait()
    await engine.close()
    await hot.close()


if __name__ == "__main__":
    if "--asyncio" not in sys.argv:
        import uvloop

        uvloop.install()
    asyncio.run(main(Path(sys.argv[1])))
