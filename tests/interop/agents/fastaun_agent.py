"""A client of the published fastaun SDK, driven line by line, in the SDK's own environment.

Reads one JSON command a line from stdin, answers one JSON line each: `{"ok": …}` or `{"error": …, "type": …}`. What the
application hears is kept and handed out by the command `heard`.

usage: fastaun_agent.py AUN_PATH AID
"""

import asyncio
import json
import sys

from aun_core import AIDStore, AUNClient

NAMES = (
    "message.received",
    "message.recalled",
    "message.ack",
    "message.undecryptable",
    "message.read_changed",
)


class Agent:
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

    async def do_register(self, command):
        store = AIDStore(aun_path=self.path, encryption_seed="")
        done = await store.register(self.aid, type=command.get("type", "ai"))
        if not done["ok"]:
            raise RuntimeError(str(done["error"]))
        return True

    async def do_connect(self, command):
        store = AIDStore(aun_path=self.path, encryption_seed="", slot_id=command.get("slot", "default"))
        loaded = store.load(self.aid)
        if not loaded["ok"]:
            raise RuntimeError(str(loaded["error"]))
        self.client = AUNClient(loaded["data"]["aid"])
        for name in NAMES:
            self.client.on(name, self.hear(name))
        await self.client.connect({"auto_reconnect": True, **command.get("options", {})})
        return str(self.client.state)

    async def do_call(self, command):
        return await self.client.call(command["method"], command.get("params", {}))

    async def do_burst(self, command):
        """Texts sent all at once."""
        calls = [{"to": command["to"], "payload": {"type": "text", "text": text}} for text in command["texts"]]
        return await asyncio.gather(*(self.client.call("message.send", {**c, "encrypt": False}) for c in calls))

    async def do_until_ready(self, command):
        """Wait until the client says that it is connected again, and is."""
        deadline = asyncio.get_running_loop().time() + 50
        while asyncio.get_running_loop().time() < deadline:
            try:
                return await asyncio.wait_for(self.client.call("meta.ping", {}), 5)
            except Exception:
                await asyncio.sleep(0.2)
        raise TimeoutError(f"still {self.client.state}")

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


async def main(kind=Agent):
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


if __name__ == "__main__":
    asyncio.run(main())
