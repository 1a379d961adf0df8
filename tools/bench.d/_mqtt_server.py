"""Our engine alone, for the bench: password, ACL and a sink that keeps every message.  _mqtt_server.py FOLDER"""

from __future__ import annotations

import asyncio
import gc
import signal
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import engine_alone

from edge.contract.bus import Admission, Done, Login, Publish, Refusal, Verdict
from edge.contract.limit import Limits
from edge.contract.principal import Kind, Principal

FILTERS = (*(f"device{at}/#" for at in range(5)), "+/+", "slow/+/+", "$SYS/#")


class Gate:
    """One user; an ACL of several filters of which the last fits."""

    def __init__(self) -> None:
        self._admission = Admission(Principal(Kind.DEVICE, "d-bench", via="mqtt"), "bench", FILTERS, FILTERS)

    def admit(self, login: Login, then: Verdict) -> None:
        known = (login.user, login.password) == ("bench", b"bench")
        then(self._admission if known else Refusal.CREDENTIALS)


async def main(folder: Path) -> None:
    """Serve until SIGTERM; the port is the first line of output."""
    loop = asyncio.get_running_loop()

    def keep(batch: list[Publish], done: Done) -> range:
        loop.call_soon(done, None)
        return range(len(batch))

    async with engine_alone.engine(folder, Gate(), Limits(), sink=keep) as engine:
        gc.freeze()
        print(await engine.listen("127.0.0.1", 0), flush=True)
        stop = asyncio.Event()
        loop.add_signal_handler(signal.SIGTERM, stop.set)
        await stop.wait()


if __name__ == "__main__":
    if "--asyncio" not in sys.argv:
        import uvloop

        uvloop.install()
    asyncio.run(main(Path(sys.argv[1])))
