"""Settings, the signed index, and the older operations on the same things: rule G-18 of the service spec."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from edge.contract.errors import InvalidParams, RateLimited, SignatureInvalid, TooLarge, VersionConflict
from edge.contract.store import Unit
from edge.contract.wire import canonical
from edge.protocol import keys
from edge.store import identity as names
from tests.support.groups import Square, events, say, square
from tests.support.identity import new_key
from tests.support.messaging import ALICE, BOB


async def give_key(town: Square, aid: str) -> None:
    """Make the node know the key of an AID."""
    spki = keys.spki_of(new_key(aid).public_key())
    identity = town.service._room.identity
    made = identity.issue(aid, spki, town.clock.wall(town.clock.now())[0], 0, "")

    def work(unit: Unit) -> None:
        names.issue(unit, made, kind="agent", spki=spki, operation="agent_cert_issue")

    await town.post.node.commit(work)


def index(gid: str, documents: dict[str, Any], signer: str = ALICE, *, key: str = "", **meta: Any) -> dict[str, Any]:
    """A `group.index` of these settings, signed."""
    entries = [
        {"key": name, "etag": f'"sha256:{hashlib.sha256(canonical(value)).hexdigest()}"'}
        for name, value in sorted(documents.items())
    ]
    lines = b"".join(canonical(one) + b"\n" for one in entries)
    digest = hashlib.sha256(lines).hexdigest()
    head = {
        "type": "index_meta",
        "schema": "aun.group.index.v1",
        "sig_alg": "ECDSA-P256-SHA256",
        "body_hash": f"sha256:{digest}",
        "etag": f'"sha256:{digest}"',
        "group_aid": gid,
        "last_modified": 1,
        "signed_by": signer,
        "cert_fingerprint": "",
        **meta,
    }
    signature = keys.sign(new_key(key or signer), canonical(head) + b"\n" + lines)
    body = canonical({**head, "signature": signature}) + b"\n" + lines
    return {"body": body.decode()}


def etag(made: dict[str, Any]) -> str:
    """The etag of an index."""
    return '"sha256:' + hashlib.sha256(made["body"].partition("\n")[2].encode()).hexdigest() + '"'


async def value_of(town: Square, gid: str, key: str) -> Any:
    [found] = (await town.alice.call("group.get_settings", group_id=gid, keys=[key]))["settings"]
    return found["value"]


@pytest.mark.seed("S0-160")
async def test_g18_settings_are_written_all_or_none(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        done = await town.alice.call(
            "group.set_settings", group_id=gid, settings={"name": "Us", "mention_mode": "mention"}
        )
        assert done["updated_keys"] == ["mention_mode", "name"]
        assert (await events(town.bob, gid))[-1] == (3, "update")
        for wrong in (
            {},
            {"name": "X", "colour": "red"},
            {"name": "X", "mention_mode": "sometimes"},
            {"name": " "},
            {"name": 1},
            {"visibility": "secret"},
            {"join.max_pending": 0},
        ):
            with pytest.raises(InvalidParams):
                await town.alice.call("group.set_settings", group_id=gid, settings=wrong)
        assert await value_of(town, gid, "name") == "Us"
        assert len(await events(town.bob, gid)) == 2


async def test_g18_the_mention_mode_is_off_at_first_and_each_message_keeps_its_own(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found()
        assert (await town.alice.call("group.get_settings", group_id=gid))["mention_mode"] == "disabled"
        await say(town.alice, gid)
        await town.alice.call("group.set_settings", group_id=gid, settings={"mention_mode": "mention-only"})
        assert (await say(town.alice, gid))["mention_mode"] == "mention-only"
        await town.alice.call("group.set_settings", group_id=gid, settings={"mention_mode": "broadcast"})
        for name in ("group.pull", "group.v2.pull"):
            rows = (await town.alice.call(name, group_id=gid))["messages"]
            assert [row["mention_mode"] for row in rows] == ["disabled", "mention-only"]
        assert await value_of(town, gid, "mention_mode") == "disabled"


async def test_every_setting_has_a_value_and_can_be_asked_for(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        found = (await town.bob.call("group.get_settings", group_id=gid))["settings"]
        assert {one["key"]: one["value"] for one in found} == {
            "description": "",
            "join.mode": "approval",
            "mention_mode": "disabled",
            "name": "Team",
            "visibility": "private",
        }
        assert (await town.bob.call("group.get_settings", group_id=gid, keys=["nothing"]))["settings"] == []


async def test_g18_documents_change_with_an_index_made_from_the_one_in_force(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        await give_key(town, ALICE)
        first = {"announcement.content": "Hello", "join.mode": "open"}
        made = index(gid, first)
        written = {"group_id": gid, "settings": {**first, "group.index": made}}
        done = await town.alice.call("group.set_settings", **written, expected_index_etag="")
        assert done["_meta"]["group_indexes"][gid]["etag"] == etag(made)
        assert (await events(town.bob, gid))[-1][1] == "announcement_updated"
        assert await value_of(town, gid, "group.index") == made
        assert (await town.bob.call("group.get_announcement", group_id=gid))["announcement"]["content"] == "Hello"
        assert (await town.bob.call("group.get_rules", group_id=gid))["rules"]["mode"] == "open"
        before = await town.everything()
        second = {**first, "rules.content": "Be nice"}
        again = {"group_id": gid, "settings": {"rules.content": "Be nice", "group.index": index(gid, second)}}
        for wrong in ("", '"sha256:0"'):
            with pytest.raises(VersionConflict, match=r"group\.index etag conflict"):
                await town.alice.call("group.set_settings", **again, expected_index_etag=wrong)
        assert await town.everything() == before
        done = await town.alice.call("group.set_settings", **again, expected_index_etag=etag(made))
        assert done["updated_keys"] == ["group.index", "rules.content"]
        assert (await events(town.bob, gid))[-1][1] == "rules_updated"
        found = await town.bob.call("group.get_settings", group_id=gid, keys=["group.index"])
        assert found["_meta"]["group_indexes"][gid]["etag"] == etag(index(gid, second))


@pytest.mark.parametrize(
    ("settings", "how", "error"),
    [
        ({"rules.content": "x"}, {}, InvalidParams),
        ({"rules.content": "x", "group.index": "text"}, {}, InvalidParams),
        ({"rules.content": "x", "group.index": {"body": "{}"}}, {}, InvalidParams),
        ({"rules.content": "x", "group.index": {"body": "x" * 65_537}}, {}, TooLarge),
        ({"rules.content": "x", "group.index": {}}, {"group_aid": "g-other.edge.test"}, InvalidParams),
        ({"rules.content": "x", "group.index": {}}, {"signer": BOB}, InvalidParams),
        ({"rules.content": "x", "group.index": {}}, {"schema": "other"}, InvalidParams),
        ({"rules.content": "x", "group.index": {}}, {"key": BOB}, SignatureInvalid),
        ({"join.mode": "open", "group.index": {}}, {}, InvalidParams),
    ],
)
async def test_g18_an_index_that_is_not_what_it_should_be_is_refused(
    tmp_path: Path, settings: dict[str, Any], how: dict[str, str], error: type
) -> None:
    async with square(tmp_path) as town:
        gid = await town.found()
        await give_key(town, ALICE)
        if settings.get("group.index") == {}:
            settings = {**settings, "group.index": index(gid, {"rules.content": "x"}, **how)}
        before = await town.everything()
        with pytest.raises(error):
            await town.alice.call("group.set_settings", group_id=gid, settings=settings, expected_index_etag="")
        assert await town.everything() == before


async def test_an_index_is_not_written_without_saying_what_was_read(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found()
        await give_key(town, ALICE)
        made = {"rules.content": "x", "group.index": index(gid, {"rules.content": "x"})}
        with pytest.raises(InvalidParams, match="expected_index_etag"):
            await town.alice.call("group.set_settings", group_id=gid, settings=made)


async def test_an_announcement_of_the_older_kind_removes_the_index_that_is_untrue_now(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        await give_key(town, ALICE)
        made = index(gid, {"announcement.content": "Hello"})
        both = {"announcement.content": "Hello", "group.index": made}
        await town.alice.call("group.set_settings", group_id=gid, settings=both, expected_index_etag="")
        files = [{"name": "plan.pdf"}]
        done = await town.alice.call("group.update_announcement", group_id=gid, content="Bye", attachments=files)
        assert (done["announcement"]["content"], done["announcement"]["updated_by"]) == ("Bye", ALICE)
        found = (await town.bob.call("group.get_announcement", group_id=gid))["announcement"]
        assert (found["content"], found["attachments"]) == ("Bye", files)
        kept = await town.bob.call("group.get_settings", group_id=gid, keys=["group.index"])
        assert (kept["settings"], "_meta" in kept) == ([], False)
        with pytest.raises(InvalidParams):
            await town.alice.call("group.update_announcement", group_id=gid, content="x" * 4_001)


@pytest.mark.parametrize("name", ["group.update_rules", "group.update_join_requirements"])
async def test_the_way_in_has_two_older_names(tmp_path: Path, name: str) -> None:
    async with square(tmp_path) as town:
        gid = await town.found()
        await town.alice.call(name, group_id=gid, mode="open", question="Why?", max_pending=3)
        found = (await town.alice.call("group.get_join_requirements", group_id=gid))["requirements"]
        assert (found["mode"], found["question"], found["max_pending"]) == ("open", "Why?", 3)
        await town.alice.call(name, group_id=gid, auto_approve_patterns=["bob*"])
        found = (await town.alice.call("group.get_rules", group_id=gid))["rules"]
        assert (found["mode"], found["auto_approve_patterns"]) == ("open", ["bob*"])
        for wrong in ({}, {"mode": "sometimes"}, {"auto_approve_patterns": ["(a+)+"]}):
            with pytest.raises(InvalidParams):
                await town.alice.call(name, group_id=gid, **wrong)


async def test_settings_have_a_number_and_a_size(tmp_path: Path) -> None:
    async with square(tmp_path, limits={"group.settings": 1, "group.setting_octets": 40}) as town:
        gid = await town.found()
        await town.alice.call("group.update_announcement", group_id=gid, content="x" * 38)
        with pytest.raises(TooLarge, match=r"group\.setting_octets"):
            await town.alice.call("group.update_announcement", group_id=gid, content="x" * 39)
        with pytest.raises(RateLimited, match=r"group\.settings"):
            await town.alice.call("group.set_settings", group_id=gid, settings={"mention_mode": "disabled"})
        assert town.limits.hits == {"group.setting_octets": 1, "group.settings": 1}
