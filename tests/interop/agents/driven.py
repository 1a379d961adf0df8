"""What the clients of all SDKs have in common: driven line by line, in an environment of the SDK's own.

Reads one JSON command a line from stdin, answers one JSON line each: `{"ok": …}` or `{"error": …, "type": …}`. What the
application hears is kept and handed out by the command `heard`.
"""

import asyncio
import json
import sys


class Driven:
    """A client with an AID; the SDK's own ways to register and connect are added by who uses it."""

    def __init__(self, path, aid):
        self.path, self.aid = path, aid
        self.client = None
        self.heard = []
        self.news = asyncio.Event()

    def hear(self, name):
        def handler(payload):
            self.heard.append({"event": name, "payload": payload})
            self.news.set()

        return handler

    async def do_call(self, command):
        return await self.client.call(command["method"], command.get("params", {}))

    async def do_until_ready(self, command):
        """Wait until the client says that it is connected again, and is."""
        deadline = asyncio.get_running_loop().time() + 50
        while True:
            try:
                return await asyncio.wait_for(self.client.call("meta.ping", {}), 5)
            except Exception as error:
                if asyncio.get_running_loop().time() > deadline:
                    raise TimeoutError(f"still {self.client.state}, after {error!r}") from error
            await asyncio.sleep(0.2)

    async def do_heard(self, command):
        """What was heard of one event, once `count` are there or the time is up."""
        name, count = command["event"], command.get("count", 0)
        deadline = asyncio.get_running_loop().time() + command.get("within", 10)
        while True:
            found = [one["payload"] for one in self.heard if one["event"] == name]
            left = deadline - asyncio.get_running_loop().time()
            if len(found) >= count or left <= 0:
                return found
            self.news.clear()
            try:
                await asyncio.wait_for(self.news.wait(), left)
            except TimeoutError:
                pass

    async def do_close(self, command):
        await self.client.close()
        return True


async def main(kind):
    agent = kind(sys.argv[1], sys.argv[2])
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 24)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        command = json.loads(line)
        try:
            answer = {"ok": await getattr(agent, f"do_{command['do']}")(command)}
        except Exception as error:
            answer = {"error": str(error), "type": type(error).__name__, "code": getattr(error, "code", None)}
        print("\x1e" + json.dumps(answer, default=str), flush=True)
