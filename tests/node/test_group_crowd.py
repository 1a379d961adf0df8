"""A group of twenty over real sockets while the node stops, is killed and is restored: nothing acked is lost.

Every member has a socket of its own to a node in a process of its own, some of them two devices. They log in once: what
the node forgets of a login they would notice. `Member` keeps what it was answered and what it heard.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from websockets.exceptions import WebSocketException

from tests.support.node import Agent, Elsewhere, RpcError, Socket
from tests.support.process import QUIET, NodeProcess

CROWD = 20
TWICE = 3
"""So many of them have a second device."""
OFTEN = ("rate.principal", "rate.address", "rate.auth", "rate.write")
"""Rates out of the way: they are somebody else's subject."""


class Member:
    """One device of an AID: its connection, what it was answered, how far it has read."""

    def __init__(self, agent: Agent, gid: str) -> None:
        self.agent, self.gid, self.aid = agent, gid, agent.aid
        self.acked: dict[str, int] = {}
        self.read: dict[int, str] = {}
        self.cursor = self.confirmed = 0
        self.count = 0
        self.open: list[str] = []

    @contextlib.asynccontextmanager
    async def connected(self) -> AsyncIterator[Socket]:
        """A session, with the token of the one login."""
        async with self.agent.connected(peer_pull=True) as wire:
            yield wire

    async def say(self, wire: Socket, message_id: str) -> None:
        """Send, or send again what was not answered."""
        if message_id not in self.open:
            self.open.append(message_id)
        payload = {"type": "text", "text": message_id}
        sent = await wire.call("group.send", {"group_id": self.gid, "payload": payload, "message_id": message_id})
        assert self.acked.setdefault(message_id, sent["seq"]) == sent["seq"]
        self.open.remove(message_id)

    async def talk(self, wire: Socket, count: int) -> None:
        """First what was left open, then some more."""
        for message_id in list(self.open):
            await self.say(wire, message_id)
        for _ in range(count):
            self.count += 1
            await self.say(wire, f"{self.agent.name}-{self.agent.device}-{self.count}")

    async def catch_up(self, wire: Socket) -> None:
        """Pull and ack until there is no more; a number means the same message for ever, and no ack is forgotten."""
        while True:
            page = await wire.call("group.pull", {"group_id": self.gid, "after_seq": self.cursor, "limit": 200})
            assert page["cursor"]["current_seq"] >= self.confirmed
            for row in page["messages"]:
                assert self.read.setdefault(row["seq"], row["message_id"]) == row["message_id"]
                assert row["seq"] > self.cursor
                self.cursor = row["seq"]
            done = await wire.call("group.ack_messages", {"group_id": self.gid, "msg_seq": self.cursor})
            assert done["cursor"] >= self.cursor
            self.confirmed = done["cursor"]
            if not page["has_more"]:
                return


class Crowd:
    """The node, the owner, the members."""

    def __init__(self, process: NodeProcess, gid: str, owner: Member, members: list[Member]) -> None:
        self.process, self.gid, self.owner, self.members = process, gid, owner, members

    @property
    def everybody(self) -> list[Member]:
        return [self.owner, *self.members]

    async def work(self, member: Member, count: int) -> None:
        async with member.connected() as wire:
            await member.talk(wire, count)
            await member.catch_up(wire)

    async def round(self, count: int, members: list[Member] | None = None) -> None:
        """Everybody talks at once."""
        await asyncio.gather(*(self.work(one, count) for one in members or self.everybody))

    async def interrupted(self, end: str) -> None:
        """The node ends while everybody talks; connections break, calls stay unanswered."""

        async def talk(member: Member) -> None:
            with contextlib.suppress(OSError, WebSocketException, asyncio.IncompleteReadError, RpcError):
                async with member.connected() as wire:
                    await member.talk(wire, 1_000)

        talking = [asyncio.create_task(talk(one)) for one in self.everybody]
        before = sum(len(one.acked) for one in self.everybody)
        async with asyncio.timeout(60):
            while sum(len(one.acked) for one in self.everybody) < before + 2 * CROWD:
                await asyncio.sleep(0.01)
        await asyncio.to_thread(getattr(self.process, end))
        await asyncio.gather(*talking)
        await asyncio.to_thread(self.process.start)

    async def process_end(self, end: str) -> None:
        """The node ends, and is there again."""
        await asyncio.to_thread(getattr(self.process, end))
        await asyncio.to_thread(self.process.start)

    async def whole(self) -> dict[int, str]:
        """Every message there is, as a new device of the owner reads them."""
        watcher = Member(self.owner.agent, self.gid)
        async with watcher.connected() as wire:
            await watcher.catch_up(wire)
        return watcher.read


@contextlib.asynccontextmanager
async def crowd(folder: Path, count: int = CROWD) -> AsyncIterator[Crowd]:
    """A node with a group of this many."""
    sets = [part for name in OFTEN for part in ("--set", f"limits.{name}=100000")]
    with NodeProcess(folder / "state", quiet=(*QUIET, *sets)) as process:
        place = Elsewhere(process)
        owner = await place.agent("owner")
        async with owner.connected() as wire:
            gid = (await wire.call("group.create", {"name": "Crowd"}))["group_id"]
            members = []
            for number in range(1, count):
                agent = await place.agent(f"member-{number}")
                members.append(Member(agent, gid))
                await wire.call("group.add_member", {"group_id": gid, "aid": agent.aid})
                if number <= TWICE:
                    other = Agent(place, agent.name, device="dev-2")
                    other.key, other.cert = agent.key, agent.cert
                    await other.login()
                    members.append(Member(other, gid))
        yield Crowd(process, gid, Member(owner, gid), members)


def nothing_acked_is_lost(found: dict[int, str], members: list[Member]) -> None:
    """Every answered message is there once, under the number of its answer."""
    places = {message_id: seq for seq, message_id in found.items()}
    assert len(places) == len(found)
    for one in members:
        assert one.acked == {message_id: places.get(message_id) for message_id in one.acked}


@pytest.mark.seed("S0-160")
async def test_a_crowd_talks_while_the_node_stops_and_is_killed(tmp_path: Path) -> None:
    async with crowd(tmp_path) as town:
        await town.round(3)
        for end in ("stop", "kill", "kill"):
            await town.interrupted(end)
            await town.round(2)
        found = await town.whole()
        assert sorted(found) == list(range(1, len(found) + 1))
        nothing_acked_is_lost(found, town.everybody)
        await town.round(0)
        for one in town.everybody:
            assert (one.read, one.open) == (found, [])


@pytest.mark.seed("S0-160")
async def test_who_is_kicked_while_everybody_talks_hears_and_reads_nothing_until_they_are_back(tmp_path: Path) -> None:
    async with crowd(tmp_path, 8) as town:
        *others, victim = town.members
        await town.round(2)

        async def until_refused(wire: Socket) -> None:
            with pytest.raises(RpcError) as refused:
                await victim.talk(wire, 10_000)
            assert refused.value.code == -33006

        async with victim.connected() as wire, town.owner.connected() as own:
            talking = asyncio.gather(until_refused(wire), town.round(4, others))
            kicked = await own.call("group.kick", {"group_id": town.gid, "aid": victim.aid})
            await talking
            victim.open.clear()
            left = kicked["group"]["message_seq"]
            await wire.call("meta.ping")  # what was pushed before is here now
            wire.events.clear()
            await town.round(2, others)
            private = {seq for one in others for seq in one.acked.values()} - set(range(left + 1))
            await wire.call("meta.ping")
            assert [one for one in wire.events if one["method"] == "event/group.message_created"] == []
            assert (await wire.call("group.pull", {"group_id": town.gid}))["messages"] == []
            joined = max(private)
            await own.call("group.add_member", {"group_id": town.gid, "aid": victim.aid})
        await town.process_end("kill")
        await town.round(2)
        await town.round(0)
        found = await town.whole()
        nothing_acked_is_lost(found, town.everybody)
        assert not [seq for seq in victim.read if left < seq <= joined]
        assert {seq for seq in found if seq > joined} <= victim.read.keys()
        assert all(one.read == found for one in others)


@pytest.mark.seed("S0-160")
async def test_a_crowd_goes_on_above_every_number_after_a_restore(tmp_path: Path) -> None:
    async with crowd(tmp_path, 8) as town:
        backup = tmp_path / "kept.backup"
        await town.round(3)
        kept = {message_id: seq for one in town.everybody for message_id, seq in one.acked.items()}
        talking = asyncio.create_task(town.round(4))
        await asyncio.to_thread(town.process.cli, "backup", "create", str(backup))
        await talking
        await town.round(2)
        highest = max(max(one.read) for one in town.everybody)
        assert await asyncio.to_thread(town.process.stop) == 0
        await asyncio.to_thread(town.process.cli, "backup", "restore", "--force", str(backup))
        await asyncio.to_thread(town.process.start)
        before = {one: set(one.acked) for one in town.everybody}
        for one in town.everybody:
            one.confirmed = 0
        await town.round(3)
        found = await town.whole()
        new = [one.acked[message_id] for one in town.everybody for message_id in one.acked.keys() - before[one]]
        assert min(new) > max(highest, 1 << 40)
        assert len(set(new)) == len(new) == 3 * len(town.everybody)
        assert {message_id: seq for seq, message_id in found.items() if message_id in kept} == kept
        await town.round(0)
        for one in town.everybody:
            assert {seq: one.read.get(seq) for seq in found} == found
