"""A client of the published aun-core 0.2 SDK, driven line by line, in the SDK's own environment.

usage: aun_core_agent.py AUN_PATH AID
"""

import asyncio

from aun_core import AUNClient
from driven import Driven, main

NAMES = (
    "message.received",
    "message.recalled",
    "message.ack",
    "message.undecryptable",
    "connection.state",
)


class Agent(Driven):
    async def do_register(self, command):
        self.make(command)
        await self.client.auth.create_aid({"aid": self.aid})
        return True

    async def do_connect(self, command):
        if self.client is None:
            self.make(command)
        session = await self.client.auth.authenticate({"aid": self.aid})
        await self.client.connect(
            {"access_token": session["access_token"], "gateway": session["gateway"]},
            {"auto_reconnect": True, **command.get("options", {})},
        )
        return str(self.client.state)

    def make(self, command):
        self.client = AUNClient({"aun_path": self.path, "root_ca_path": command["root"]})
        self.client._gateway_url = command["gateway"]  # its own error message names this way to preset the gateway
        for name in NAMES:
            self.client.on(name, self.hear(name))


if __name__ == "__main__":
    asyncio.run(main(Agent))
