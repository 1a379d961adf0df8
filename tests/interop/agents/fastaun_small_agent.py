"""`fastaun_agent` with the SDK's notifications and push facade."""

import asyncio

import fastaun_agent

fastaun_agent.NAMES += ("app.typing", "push.offline_message")


class Agent(fastaun_agent.Agent):
    async def do_notify(self, command):
        await self.client.notify(command["method"], command.get("params", {}), **command.get("options", {}))
        return True

    async def do_push(self, command):
        return await getattr(self.client.push, command["name"])(**command.get("params", {}))

    async def do_diag(self, command):
        return await self.client.debug.diag(command.get("scope", ""))


if __name__ == "__main__":
    asyncio.run(fastaun_agent.main(Agent))
