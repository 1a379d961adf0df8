"""A client of the published fastaun SDK, driven line by line, in the SDK's own environment.

usage: fastaun_agent.py AUN_PATH AID
"""

import asyncio

from aun_core import AIDStore, AUNClient
from driven import Driven, main

NAMES = (
    "message.received",
    "message.recalled",
    "message.ack",
    "message.undecryptable",
    "message.read_changed",
)


class Agent(Driven):
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

    async def do_certify(self, command):
        """A method of the key store that gets a new certificate; the fingerprint of it."""
        store = AIDStore(aun_path=self.path, encryption_seed="")
        done = await getattr(store, command["how"])(self.aid)
        if not done["ok"]:
            raise RuntimeError(str(done["error"]))
        return done["data"]["new_fingerprint"]

    async def do_burst(self, command):
        """Texts sent all at once."""
        calls = [{"to": command["to"], "payload": {"type": "text", "text": text}} for text in command["texts"]]
        return await asyncio.gather(*(self.client.call("message.send", {**c, "encrypt": False}) for c in calls))


if __name__ == "__main__":
    asyncio.run(main(Agent))
