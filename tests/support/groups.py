"""Groups on a real database, with real channels; and what clients of both generations put into envelopes."""

from __future__ import annotations

import atexit
import base64
import hashlib
import tempfile
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from edge.contract.time import SECOND
from edge.protocol import wraps
from edge.services.group import GroupService
from edge.store.keyring import Identity, load_identity
from tests.support.clock import FakeClock
from tests.support.messaging import ALICE, BOB, CAROL, HI, ISSUER, Client, Post, post_office

DAVE = f"dave.{ISSUER}"
FLOOR_US = 1_740_000_000 * SECOND


@cache
def _identity(now_us: int) -> Identity:
    """The node's keys; the same ones for a whole run, because they take longer than a test."""
    folder = tempfile.TemporaryDirectory()
    atexit.register(folder.cleanup)
    return load_identity(Path(folder.name), ISSUER, now_us, FLOOR_US, 0)


class Square:
    """A post office where groups meet. Alice owns what is founded here unless somebody else is named."""

    def __init__(self, post: Post, service: GroupService) -> None:
        self.post, self.service, self.clock, self.limits = post, service, post.clock, post.limits
        self.alice, self.bob, self.carol, self.dave = (post.offline(aid) for aid in (ALICE, BOB, CAROL, DAVE))

    async def found(
        self, *members: Client, admins: Sequence[Client] = (), owner: Client | None = None, **how: Any
    ) -> str:
        """A new group with these members; its id."""
        owner = owner or self.alice
        gid: str = (await owner.call("group.create", **{"name": "Team", **how}))["group_id"]
        for one in (*members, *admins):
            role = "admin" if one in admins else "member"
            await owner.call("group.add_member", group_id=gid, aid=one.who.aid, role=role)
        return gid

    async def everything(self) -> str:
        """A fingerprint of what the node holds, its own bookkeeping aside."""

        def look(unit: Any) -> str:
            digest = hashlib.sha256()
            for (name,) in unit.run(
                "SELECT name FROM sqlite_master WHERE type = 'table' AND name <> 'meta' ORDER BY name"
            ):
                digest.update(repr((name, sorted(unit.run(f"SELECT * FROM {name}"), key=repr))).encode())
            return digest.hexdigest()

        return await self.post.node.read(look)


@asynccontextmanager
async def square(
    folder: Path,
    *,
    clock: FakeClock | None = None,
    limits: Mapping[str, int] | None = None,
    incarnation: int = 0,
    synchronous: str = "FULL",
    made_us: int = 0,
) -> AsyncIterator[Square]:
    """A group service in `folder`; opening the same folder again is a restart.

    `made_us` is when the node's keys were made, now by default.
    """
    clock = clock or FakeClock()
    identity = _identity(made_us or clock.wall(clock.now())[0])
    made: list[GroupService] = []

    def services(post: Post) -> Sequence[object]:
        post.aids.add(DAVE)
        made.append(
            GroupService(
                post.node,
                post.clock,
                post.channels,
                post.hub,
                post.spawn,
                identity,
                issuer=ISSUER,
                known=post.known,
                limits=post.limits,
            )
        )
        return made[0].parts

    async with post_office(
        folder, clock=clock, limits=limits, services=services, incarnation=incarnation, synchronous=synchronous
    ) as post:
        [service] = made
        post.channels.on_admitted.append(service.connected)
        service.start()
        await post.rest()
        try:
            yield Square(post, service)
        finally:
            service.stop()


async def say(client: Client, gid: str, text: str = "hi", **more: Any) -> dict[str, Any]:
    """group.send of a text."""
    return await client.call("group.send", group_id=gid, payload={**HI, "text": text}, **more)


async def texts(client: Client, gid: str, **more: Any) -> list[str]:
    """The texts of one group.pull."""
    page = await client.call("group.pull", group_id=gid, **more)
    return [row["payload"].get("text", row["type"]) for row in page["messages"]]


async def events(client: Client, gid: str, after: int = 0) -> list[tuple[int, str]]:
    """Number and action of the events of one group.pull_events."""
    page = await client.call("group.pull_events", group_id=gid, after_event_seq=after)
    return [(one["event_seq"], one["action"]) for one in page["events"]]


async def news(client: Client) -> list[str]:
    """The actions that a connection has heard of, hints aside."""
    return [one["action"] for one in await client.events("group.changed") if "action" in one]


async def publish_key(client: Client, gid: str, seed: str = "") -> dict[str, Any]:
    """group.v2.put_group_pk of a client's device."""
    der = hashlib.sha512(f"{client.who.aid}{client.who.device_id}{seed}".encode()).digest()
    return await client.call(
        "group.v2.put_group_pk",
        group_id=gid,
        spk_id="sha256:" + hashlib.sha256(der).hexdigest()[:16],
        spk_pk=base64.b64encode(der).decode(),
        spk_signature=base64.b64encode(der).decode(),
        spk_timestamp=1_760_000_000,
    )


def envelope(sender: Client, gid: str, to: Sequence[tuple[str, str]], **more: Any) -> dict[str, Any]:
    """A V2 envelope for (AID, device) pairs, as the current SDK makes it; nobody here can decrypt it.

    `epoch`, `message_id`, `state` and any other field may be given.
    """
    rows = [
        wraps.Row(aid, device, "member", "group_device_prekey", "fp", "sha256:0", "bm9uY2U=", _b64(f"{aid}{device}"))
        for aid, device in sorted(to)
    ]
    state = more.pop("state", None)
    aad = {
        "from": sender.who.aid,
        "from_device": sender.who.device_id,
        "group_id": gid,
        "epoch": more.pop("epoch", 1),
        "message_id": more.pop("message_id", "m-1"),
        **({"state_commitment": state} if state else {}),
        **more.pop("aad", {}),
    }
    made = {
        "type": "e2ee.group_encrypted",
        "version": "v2",
        "ciphertext": "AAAA",
        "recipients": [list(msgspec.structs.astuple(row)) for row in rows],
        "recipients_digest": wraps.root([wraps.leaf(row) for row in rows]),
        "aad": aad,
    }
    return {**made, **more}


async def seal(sender: Client, gid: str, to: Sequence[tuple[str, str]], message_id: str = "m-1", **more: Any) -> Any:
    """group.v2.send to these devices, in the epoch there is unless another is given."""
    epoch = (await sender.call("group.get_info", group_id=gid, required=["e2ee"]))["epoch"]
    made = envelope(sender, gid, to, **{"epoch": epoch, "message_id": message_id, **more})
    return await sender.call("group.v2.send", group_id=gid, message_id=message_id, envelope=made)


def _b64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()
