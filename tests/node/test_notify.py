"""Notifications and wake-ups across areas: a group's members, a push server, both in one node."""

from __future__ import annotations

from pathlib import Path

from tests.support.node import agent, running

TYPING = {"method": "event/app.typing", "params": {"on": True}}


async def test_a_notification_reaches_the_connected_members_of_a_group_and_nobody_else(tmp_path: Path) -> None:
    async with running(tmp_path / "state") as node:
        alice, bob, carol = [await agent(node, name) for name in ("alice", "bobby", "carol")]
        async with alice.connected() as one, bob.connected() as two, carol.connected() as three:
            made = await one.call("group.create", {"name": "walkers"})
            group = made["group"]["group_id"]
            await one.call("group.add_member", {"group_id": group, "aid": bob.aid})
            await one.call("notification/group.route", {"group_id": group, "deliver": TYPING})
            assert (await two.event("event/app.typing"))["_notify"]["from_aid"] == alice.aid
            await three.call("meta.ping")
            assert not [frame for frame in three.events if frame.get("method") == "event/app.typing"]


async def test_a_group_message_wakes_a_member_who_is_away(tmp_path: Path) -> None:
    async with running(tmp_path / "state") as node:
        alice, bob, server = [await agent(node, name) for name in ("alice", "bobby", "pusher")]
        async with bob.connected() as wire:
            await wire.call("push.register", {"push_server_aid": server.aid, "push_token": "t"})
        async with alice.connected() as one, server.connected() as pusher:
            group = (await one.call("group.create", {"name": "walkers"}))["group"]["group_id"]
            await one.call("group.add_member", {"group_id": group, "aid": bob.aid})
            await one.call("group.send", {"group_id": group, "payload": {"type": "text", "text": "hi"}})
            batch = await pusher.event("event/push.offline_message")
            [item] = batch["items"]
            assert (item["target_aid"], item["category"]) == (bob.aid, "group")
            done = await pusher.call("push.ack", {"batch_id": batch["batch_id"], "status": "accepted"})
            assert done == {"status": "applied"}
