"""`fastaun_agent` with the SDK's own group facade: what needs its key store, and the events of groups.

usage: fastaun_groups.py AUN_PATH AID
"""

import asyncio

import fastaun_agent
from aun_core import AIDStore

NAMES = (
    "group.changed",
    "group.message_created",
    "group.message_recalled",
    "group.message_undecryptable",
    "group.invite_received",
    "group.v2.state_confirmed",
    "group.v2.security_level",
    "group.v2.fork_detected",
    "group.read_changed",
)


class Agent(fastaun_agent.Agent):
    async def do_connect(self, command):
        fastaun_agent.NAMES += tuple(name for name in NAMES if name not in fastaun_agent.NAMES)
        return await super().do_connect(command)

    async def store(self):
        """The key store; reading the own card first makes it know the issuer's gateway, there is no DNS here."""
        store = AIDStore(aun_path=self.path, encryption_seed="")
        await store.download_agent_md(self.aid)
        return store

    async def do_facade(self, command):
        """A method of `client.group`; `store` hands it the key store, `signer` the own identity."""
        params = dict(command.get("params", {}))
        if command.get("store"):
            params["aid_store"] = await self.store()
        if command.get("signer"):
            params["signer"] = self.client.current_aid
        return await getattr(self.client.group, command["method"])(params)

    async def do_keep_store(self, command):
        """What an application does that takes part in group identities: the client knows its key store."""
        self.client._aid_store = await self.store()
        return True


if __name__ == "__main__":
    asyncio.run(fastaun_agent.main(Agent))
