"""A backup taken in the middle of a conversation, restored after more of it: numbers go on, clients go on."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from edge.store import restore, swap
from edge.store.schema import MIGRATIONS
from tests.support.node import Agent, Elsewhere
from tests.support.process import NodeProcess


async def _send(alice: Agent, bob: Agent, *texts: str) -> list[int]:
    async with alice.connected() as wire:
        return [
            (await wire.call("message.send", {"to": bob.aid, "payload": {"type": "text", "text": text}}))["seq"]
            for text in texts
        ]


async def _read(bob: Agent, after: int) -> list[tuple[int, str]]:
    """What a reader at `after` gets from its one sender; it then acknowledges that."""
    async with bob.connected(peer_pull=True) as wire:
        catalogue = await wire.call("message.peers", {"filter": "pending"})
        found: list[tuple[int, str]] = []
        for peer in catalogue["peers"]:
            where: dict[str, Any] = {"cursor_scope": "peer", "sender_aid": peer["sender_aid"]}
            page = await wire.call("message.v2.pull", {**where, "after_seq": after})
            assert page["head_seq"] >= after
            found += [(row["seq"], row["legacy_v1"]["payload"]["text"]) for row in page["messages"]]
            done = await wire.call("message.v2.ack", {**where, "up_to_seq": page["next_after_seq"]})
            assert done["peer_ack_seq"] >= page["next_after_seq"]
        return found


def test_a_restore_in_the_middle_of_a_conversation(tmp_path: Path) -> None:
    file = str(tmp_path / "a.backup")
    with NodeProcess(tmp_path / "state", "--issuer", "edge.test") as node:
        alice, bob = asyncio.run(_pair(node))
        assert asyncio.run(_send(alice, bob, "one", "two")) == [1, 2]
        assert asyncio.run(_read(bob, 0)) == [(1, "one"), (2, "two")]
        node.cli("backup", "create", file)
        assert asyncio.run(_send(alice, bob, "three", "four")) == [3, 4]
        assert asyncio.run(_read(bob, 2)) == [(3, "three"), (4, "four")]
        assert node.stop() == 0
        node.cli("backup", "restore", "--force", file)
        node.start()
        [five, six] = asyncio.run(_send(alice, bob, "five", "six"))
        assert six == five + 1 > 1 << 40
        assert asyncio.run(_read(bob, 4)) == [(five, "five"), (six, "six")]
        [drop] = [one for one in node.cli("queue", "drops")["total"] if one["reason"] == "restored"]
        assert (drop["log"], drop["count"]) == ("*", 2)


def test_a_backup_restored_twice_onto_empty_cards_and_a_reader_who_knows_the_first_life(tmp_path: Path) -> None:
    """Both lives begin in the same incarnation; only the reader's cursor shows that there was another (D18)."""
    file = str(tmp_path / "a.backup")
    with NodeProcess(tmp_path / "state", "--issuer", "edge.test") as node:
        alice, bob = asyncio.run(_pair(node))
        assert asyncio.run(_send(alice, bob, "one", "two")) == [1, 2]
        node.cli("backup", "create", file)
    base, lives = 1 << 40, []
    for name in ("first", "second"):
        with NodeProcess(tmp_path / name, "--issuer", "edge.test") as node:
            assert node.stop() == 0
            node.cli("backup", "restore", "--force", file)
            node.start()
            alice.node = bob.node = Elsewhere(node)
            lives.append(node.cli("status")["incarnation"])
            if name == "first":
                assert asyncio.run(_send(alice, bob, "three", "four", "five")) == [base + 1, base + 2, base + 3]
                assert [text for _, text in asyncio.run(_read(bob, 0))] == ["one", "two", "three", "four", "five"]
                continue
            assert lives == [1, 1]
            assert asyncio.run(_shown(bob, base + 3)) == base + 3
            [six] = asyncio.run(_send(alice, bob, "six"))
            assert six == 2 * base + 1
            assert asyncio.run(_read(bob, base + 3)) == [(six, "six")]
            status = node.cli("status")
            assert (status["incarnation"], status["stores"]["node"]["doubt"]) == (2, "a reader knows later numbers")
            reasons = {one["reason"]: one["count"] for one in node.cli("queue", "drops")["total"]}
            assert reasons["a_reader_knows_later_numbers"] == 1
            node.kill()
            node.start()
            assert asyncio.run(_send(alice, bob, "seven")) == [2 * base + 2]


async def _shown(bob: Agent, seq: int) -> int:
    """The reader comes back and asks for what follows its cursor, as the current SDK does; where the page ends."""
    async with bob.connected(peer_pull=True) as wire:
        where: dict[str, Any] = {"cursor_scope": "peer", "sender_aid": f"alice.{bob.node.issuer}"}
        page = await wire.call("message.v2.pull", {**where, "after_seq": seq})
        assert page["messages"] == []
        return int(page["next_after_seq"])


async def _pair(node: NodeProcess) -> tuple[Agent, Agent]:
    return await Elsewhere(node).agent("alice"), await Elsewhere(node).agent("bobby")


def test_a_backup_under_load_holds_everything_acknowledged_before_it(tmp_path: Path) -> None:
    file = str(tmp_path / "a.backup")

    async def talk(alice: Agent, bob: Agent) -> tuple[int, int]:
        """The last number acknowledged before the backup began, and the last of all."""
        async with alice.connected() as wire:
            seq, making = 0, None
            for number in range(300):
                if number == 100:
                    before = seq
                    making = asyncio.ensure_future(asyncio.to_thread(node.cli, "backup", "create", file))
                sent = await wire.call("message.send", {"to": bob.aid, "payload": {"n": number}})
                seq = sent["seq"]
            assert making is not None
            await making
            return before, seq

    async def pulled(bob: Agent) -> list[int]:
        async with bob.connected() as wire:
            rows: list[int] = []
            while page := (await wire.call("message.pull", {"after_seq": rows[-1] if rows else 0}))["messages"]:
                rows += [row["seq"] for row in page]
            return rows

    with NodeProcess(tmp_path / "state", "--issuer", "edge.test", "--set", "limits.rate.write=100000") as node:
        alice, bob = asyncio.run(_pair(node))
        before, last = asyncio.run(talk(alice, bob))
        assert node.stop() == 0
        node.cli("backup", "restore", "--force", file)
        node.start()
        found = asyncio.run(pulled(bob))
    assert found == list(range(1, len(found) + 1))
    assert before <= len(found) <= last


def test_a_start_goes_on_with_a_restore_that_was_cut_off(tmp_path: Path) -> None:
    state, file = tmp_path / "state", str(tmp_path / "a.backup")
    with NodeProcess(state, "--issuer", "edge.test") as node:
        node.cli("device", "add", "lamp")
        node.cli("backup", "create", file)
        node.cli("device", "add", "later")
        assert node.stop() == 0
        ready = state / swap.READY
        ready.mkdir()
        restore.verify(Path(file), ready, MIGRATIONS, lambda name, done, total: None)
        (ready / swap.ASIDE).write_text("before-restore-1")
        (state / "quarantine" / "before-restore-1").write_text("no folder")
        with pytest.raises(AssertionError, match="a restore that was cut off cannot go on"):
            node.start()
        (state / "quarantine" / "before-restore-1").unlink()
        node.start()
        assert [device["name"] for device in node.cli("device", "list")] == ["lamp"]
        assert "a restore was finished" in node.log
