"""Settings of a group and the older operations on them: rules G-18, C-11 of the service spec."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

from edge.contract.errors import InvalidParams, RateLimited, SignatureInvalid, TooLarge, VersionConflict
from edge.contract.wire import canonical
from edge.protocol import group_index, keys
from edge.services.group import limits as bounds
from edge.session.conversation import ANSWER
from edge.store import identity as names
from tests.support.groups import Square, events, news, say, square
from tests.support.identity import new_key
from tests.support.messaging import ALICE, BOB, PEER, Client

RULES, JOIN = "rules.content", "join.mode"


async def register(town: Square, aid: str = ALICE) -> None:
    """Give an AID the key `new_key(aid)`."""
    spki = keys.spki_of(new_key(aid).public_key())
    made = town.service._room.identity.issue(aid, spki, town.clock.wall(town.clock.now())[0], 0)
    await town.post.node.commit(
        lambda unit: names.issue(unit, made, kind="agent", spki=spki, operation="agent_cert_issue")
    )


def index(gid: str, *listed: str, signer: str = ALICE, key: str = "", last_modified: int = 1) -> dict[str, str]:
    """The value of `group.index` for these settings, as the current SDK makes it."""
    entries = [{"key": one, "etag": f'"{one}"'} for one in sorted(listed)]
    body = b"".join(canonical(one) + b"\n" for one in entries)
    digest = hashlib.sha256(body).hexdigest()
    meta: dict[str, Any] = {
        "type": "index_meta",
        "schema": group_index.SCHEMA,
        "sig_alg": group_index.ALGORITHM,
        "body_hash": f"sha256:{digest}",
        "etag": f'"sha256:{digest}"',
        "group_aid": gid,
        "last_modified": last_modified,
        "signed_by": signer,
        "cert_fingerprint": "sha256:ab",
    }
    meta["signature"] = keys.sign(new_key(key or signer), canonical(meta) + b"\n" + body)
    return {"body": (canonical(meta) + b"\n" + body).decode()}


async def write(client: Client, gid: str, etag: str | None = None, **settings: Any) -> dict[str, Any]:
    """group.set_settings; `_` stands for the dot of a key."""
    how = {} if etag is None else {"expected_index_etag": etag}
    fields = {key.replace("_", ".", 1) if key != "mention_mode" else key: value for key, value in settings.items()}
    return await client.call("group.set_settings", group_id=gid, settings=fields, **how)


async def kept(client: Client, gid: str, *wanted: str) -> dict[str, Any]:
    how = {"keys": list(wanted)} if wanted else {}
    found = await client.call("group.get_settings", group_id=gid, **how)
    return {one["key"]: one["value"] for one in found["settings"]}


async def test_g18_a_new_group_has_settings_before_anybody_wrote_any(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        for visibility, mode in (("public", "open"), ("private", "approval")):
            gid = await town.found(town.bob, visibility=visibility)
            found = await town.bob.call("group.get_settings", group_id=gid)
            assert (found["group_aid"], found["mention_mode"]) == (gid, "disabled")
            assert "_meta" not in found
            assert {one["key"]: one["value"] for one in found["settings"]} == {
                "name": "Team",
                "description": "",
                "visibility": visibility,
                "mention_mode": "disabled",
                "join.mode": mode,
            }


async def test_g18_who_asks_for_some_keys_gets_those_and_the_mention_mode(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        await write(town.alice, gid, mention_mode="mention")
        found = await town.bob.call("group.get_settings", group_id=gid, keys=["join.mode", "unheard.of"])
        assert [one["key"] for one in found["settings"]] == ["join.mode"]
        assert found["mention_mode"] == "mention-only"


async def test_settings_that_need_no_index_are_written_and_told_with_their_keys(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        bob = await town.post.connect(BOB, "b", announced=PEER)
        done = await write(town.alice, gid, name="New", mention_mode="mention-only", visibility="public")
        assert done == {
            "group_id": gid,
            "group_aid": gid,
            "updated_keys": ["mention_mode", "name", "visibility"],
        }
        group = (await town.bob.call("group.get", group_id=gid))["group"]
        assert (group["name"], group["visibility"], group["mention_mode"]) == ("New", "public", "mention-only")
        event = (await bob.events("group.changed"))[-1]
        assert (event["action"], event["updated_keys"]) == ("update", done["updated_keys"])
        [shown] = (await town.bob.call("group.get_settings", group_id=gid, keys=["mention_mode"]))["settings"]
        assert (shown["updated_by"], shown["updated_at"] > 0) == (ALICE, True)


async def test_g18_a_message_carries_the_mention_mode_that_was_in_force_when_it_was_sent(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        await say(town.alice, gid)
        await write(town.alice, gid, mention_mode="mention-only")
        sent = await say(town.alice, gid)
        assert sent["message"]["mention_mode"] == "mention-only"
        page = await town.bob.call("group.pull", group_id=gid)
        assert [row["mention_mode"] for row in page["messages"]] == ["disabled", "mention-only"]


@pytest.mark.limit("group.setting_octets", "group.text_length", "group.name_length")
@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({}, InvalidParams),
        ({"owner_aid": BOB}, InvalidParams),
        ({"name": "ok", "nonsense": 1}, InvalidParams),
        ({"name": "x" * 129}, InvalidParams),
        ({"name": " "}, InvalidParams),
        ({"description": "x" * 4_001}, InvalidParams),
        ({"mention_mode": "loud"}, InvalidParams),
        ({"group.index": "text"}, InvalidParams),
        ({"group.index": {"body": 7}}, InvalidParams),
        ({"group.index": {"body": "x" * 65_537}}, TooLarge),
        ({"group.index": {"body": "not an index"}}, InvalidParams),
        ({RULES: "be kind"}, InvalidParams),
        ({JOIN: "open"}, InvalidParams),
    ],
)
async def test_g18_a_wrong_setting_writes_nothing_of_its_call(
    tmp_path: Path, settings: dict[str, Any], error: type
) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        before = await town.everything()
        with pytest.raises(error):
            await town.alice.call("group.set_settings", group_id=gid, settings=settings)
        assert await town.everything() == before


async def test_g18_documents_and_the_way_in_are_written_with_a_signed_index_that_lists_them(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        await register(town)
        gid = await town.found(town.bob)
        signed = index(gid, RULES, JOIN)
        done = await write(town.alice, gid, "", rules_content="be kind", join_mode="closed", group_index=signed)
        assert done["updated_keys"] == ["group.index", JOIN, RULES]
        meta = done["_meta"]["group_indexes"][gid]
        assert (meta["schema"], meta["last_modified"]) == (group_index.SCHEMA, 1)
        found = await town.bob.call("group.get_settings", group_id=gid)
        assert found["_meta"] == done["_meta"]
        assert (await kept(town.bob, gid, RULES, JOIN, "group.index")) == {
            RULES: "be kind",
            JOIN: "closed",
            "group.index": signed,
        }


async def test_g18_who_did_not_see_the_index_in_force_is_told_of_a_conflict_and_writes_nothing(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        await register(town)
        gid = await town.found()
        first = await write(town.alice, gid, "", rules_content="1", group_index=index(gid, RULES))
        etag = first["_meta"]["group_indexes"][gid]["etag"]
        both = index(gid, RULES, JOIN)
        before = await town.everything()
        for stale in ("", '"sha256:00"'):
            with pytest.raises(VersionConflict, match=r"group\.index etag conflict"):
                await write(town.alice, gid, stale, join_mode="open", group_index=both)
        with pytest.raises(InvalidParams, match="expected_index_etag"):
            await write(town.alice, gid, join_mode="open", group_index=both)
        assert await town.everything() == before
        second = await write(town.alice, gid, etag, join_mode="open", group_index=both)
        assert second["_meta"]["group_indexes"][gid]["etag"] != etag
        assert (await kept(town.alice, gid, RULES, JOIN)) == {RULES: "1", JOIN: "open"}


async def test_g18_an_index_that_the_caller_did_not_sign_for_this_group_is_refused(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        await register(town)
        gid = await town.found(admins=[town.bob])
        before = await town.everything()
        for client, wrong, error in (
            (town.alice, index("g-other.edge.test", RULES), InvalidParams),
            (town.alice, index(gid, RULES, signer=BOB), InvalidParams),
            (town.bob, index(gid, RULES), InvalidParams),
            (town.bob, index(gid, RULES, signer=BOB), InvalidParams),
            (town.alice, index(gid, RULES, key=BOB), SignatureInvalid),
            (town.alice, index(gid, JOIN), InvalidParams),
        ):
            with pytest.raises(error):
                await write(client, gid, "", rules_content="1", group_index=wrong)
        assert await town.everything() == before


async def test_what_the_members_are_told_is_the_most_telling_of_what_was_written(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        await register(town)
        gid = await town.found(town.bob)
        bob = await town.post.connect(BOB, "b", announced=PEER)
        etag = ""
        for at, fields in enumerate(
            (
                {"announcement_content": "a", "rules_content": "r", "join_mode": "open"},
                {"rules_content": "r", "join_mode": "open"},
                {"join_mode": "open", "name": "New"},
                {"house_content": "h"},
            )
        ):
            keyed = [key.replace("_", ".", 1) for key in fields if key != "name"]
            signed = index(gid, *keyed, f"n{at}.content")
            done = await write(town.alice, gid, etag, **fields, group_index=signed)
            etag = done["_meta"]["group_indexes"][gid]["etag"]
        assert (await news(bob))[-4:] == [
            "announcement_updated",
            "rules_updated",
            "join_requirements_updated",
            "update",
        ]


@pytest.mark.limit("group.settings")
async def test_a_group_has_only_so_many_settings(tmp_path: Path) -> None:
    async with square(tmp_path, limits={"group.settings": 2}) as town:
        await register(town)
        gid = await town.found()
        await write(town.alice, gid, "", a_content="1", group_index=index(gid, "a.content"))
        etag = (await town.alice.call("group.get_settings", group_id=gid))["_meta"]["group_indexes"][gid]["etag"]
        again = index(gid, "a.content", last_modified=2)
        await write(town.alice, gid, etag, a_content="2", group_index=again)
        with pytest.raises(RateLimited):
            await write(town.alice, gid, mention_mode="disabled")
        assert (await kept(town.alice, gid, "a.content")) == {"a.content": "2"}


@pytest.mark.limit("group.settings_octets")
async def test_all_settings_of_a_group_fit_one_answer(tmp_path: Path) -> None:
    async with square(tmp_path, limits={"group.settings_octets": 2_000}) as town:
        gid = await town.found()
        before = await town.everything()
        for content, attachments in (("x" * 1_000, ["y" * 1_000]), ("x", ["y" * 2_000])):
            with pytest.raises(TooLarge):
                await town.alice.call(
                    "group.update_announcement", group_id=gid, content=content, attachments=attachments
                )
        assert await town.everything() == before
        keys = len("announcement.content") + len("announcement.attachments") + len('""') + len('[""]')
        for letter in "xy":  # what is replaced makes room
            content = letter * (1_000 - keys)
            await town.alice.call("group.update_announcement", group_id=gid, content=content, attachments=["y" * 1_000])
        found = await town.alice.call("group.get_settings", group_id=gid)
        values = {one["key"]: one["value"] for one in found["settings"]}
        assert values["announcement.content"] == "y" * (1_000 - keys)
        assert town.limits.hits == {"group.settings_octets": 2}
    assert 2 * bounds.SETTINGS_OCTETS.default < ANSWER.default


async def test_settings_are_there_after_a_restart(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        await register(town)
        gid = await town.found()
        await write(town.alice, gid, "", rules_content="be kind", group_index=index(gid, RULES))
    async with square(tmp_path) as town:
        assert (await kept(town.alice, gid, RULES)) == {RULES: "be kind"}


async def test_c11_the_older_announcement_is_the_same_setting_and_no_index_vouches_for_it(tmp_path: Path) -> None:
    async with square(tmp_path) as town:
        await register(town)
        gid = await town.found(town.bob)
        empty = (await town.bob.call("group.get_announcement", group_id=gid))["announcement"]
        assert empty == {"group_id": gid, "content": "", "attachments": [], "updated_by": "", "updated_at": 0}
        fields = {"announcement_content": "old", "group_index": index(gid, "announcement.content")}
        await write(town.alice, gid, "", **fields)
        done = await town.alice.call(
            "group.update_announcement", group_id=gid, content="new", attachments=[{"name": "a"}]
        )
        shown = done["announcement"]
        assert (shown["content"], shown["attachments"], shown["updated_by"]) == ("new", [{"name": "a"}], ALICE)
        assert (await town.bob.call("group.get_announcement", group_id=gid))["announcement"] == shown
        assert (await kept(town.bob, gid, "announcement.content")) == {"announcement.content": "new"}
        assert await kept(town.bob, gid, "group.index") == {}
        assert (await events(town.bob, gid))[-1][1] == "announcement_updated"
        await town.alice.call("group.update_announcement", group_id=gid, content="newer")
        assert (await town.bob.call("group.get_announcement", group_id=gid))["announcement"]["attachments"] != []
        with pytest.raises(InvalidParams):
            await town.alice.call("group.update_announcement", group_id=gid, content="x" * 4_001)


@pytest.mark.parametrize(
    ("name", "answer", "action"),
    [
        ("group.update_rules", "rules", "rules_updated"),
        ("group.update_join_requirements", "requirements", "join_requirements_updated"),
    ],
)
async def test_c11_the_older_rules_are_the_settings_of_the_way_in(
    tmp_path: Path, name: str, answer: str, action: str
) -> None:
    async with square(tmp_path) as town:
        gid = await town.found(town.bob)
        how = {"mode": "invite_only", "question": "who?", "auto_approve_patterns": ["*.edge.test"], "max_pending": 3}
        shown = (await town.alice.call(name, group_id=gid, **how))[answer]
        assert {key: shown[key] for key in how} == how
        assert (await events(town.bob, gid))[-1][1] == action
        assert (await town.alice.call(name, group_id=gid, question="and why?"))[answer]["mode"] == "invite_only"
        assert await kept(town.bob, gid, "join.mode", "join.question", "join.max_pending") == {
            "join.mode": "invite_only",
            "join.question": "and why?",
            "join.max_pending": 3,
        }
        rules = (await town.bob.call("group.get_rules", group_id=gid))["rules"]
        needs = (await town.bob.call("group.get_join_requirements", group_id=gid))["requirements"]
        assert {key: rules[key] for key in how} == {key: needs[key] for key in how}
        assert (rules["content"], rules["visibility"]) == ("", "private")
        for wrong in ({}, {"mode": "ajar"}, {"max_pending": 0}, {"auto_approve_patterns": ["(a+)+"]}):
            with pytest.raises(InvalidParams):
                await town.alice.call(name, group_id=gid, **wrong)
