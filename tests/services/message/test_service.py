"""The service as one object, and what it does by itself."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

from edge.contract.errors import MethodNotFound
from edge.contract.time import SECOND
from edge.services.message import MessageService
from tests.support.messaging import BOB, PEER, post_office


def test_its_parts_do_not_override_each_other() -> None:
    for one, other in combinations(MessageService.__bases__, 2):
        shared = {name for name in vars(one).keys() & vars(other).keys() if not name.startswith("__")}
        assert shared == set(), (one.__name__, other.__name__)


async def test_every_name_of_the_namespace_is_answered(tmp_path: Path) -> None:
    names = {
        "send",
        "pull",
        "ack",
        "recall",
        "query_online",
        "peers",
        "history",
        "read",
        "read_state",
        "v2.pull",
        "v2.ack",
        "v2.put_peer_pk",
        "v2.bootstrap",
        "e2ee.put_prekey",
        "e2ee.get_prekey",
        "thought.put",
        "thought.get",
    }
    async with post_office(tmp_path) as post:
        assert {name.removeprefix("message.") for name in post.dispatcher.table.names("aun")} == names
        for absent in ("message.v2.send", "message.get_audit_status", "message.v2.group_bootstrap"):
            try:
                await post.offline().call(absent)
            except MethodNotFound:
                continue
            raise AssertionError(absent)


async def test_a_short_hello_without_backlog_is_silent(tmp_path: Path) -> None:
    async with post_office(tmp_path) as post:
        assert await (await post.connect(BOB, "b1", announced=PEER)).events() == []


async def test_after_a_stop_nothing_is_swept(tmp_path: Path) -> None:
    async with post_office(tmp_path, limits={"message.ttl_s": 60}) as post:
        await post.offline().send(BOB)
        post.service.stop()
        await post.clock.pass_(600 * SECOND)
        await post.rest()
        assert (await post.offline(BOB).call("message.pull"))["count"] == 1
