"""Settings of a group, and the older operations that are views of them (spec aun-services §1.3, C-11, G-18).

Announcement, rules, the way in and other documents stand in `group.index`, which an owner or admin signs: they change
together with it, against the index that the writer has seen. The older operations know no index; what they write makes
the stored index untrue, so they remove it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from edge.contract.errors import InvalidParams, RateLimited, SignatureInvalid, TooLarge, VersionConflict
from edge.contract.op import Call, op
from edge.contract.store import Unit
from edge.contract.wire import JsonLimits, decode, dumps
from edge.protocol import group_index, group_rules, keys
from edge.protocol.group_index import Index
from edge.protocol.group_rules import ADMIN, CORE, INDEX
from edge.services.group import limits as bounds
from edge.services.group import views
from edge.services.group.joining import JoinService, Requirements
from edge.services.group.lifecycle import ADMIN_ERRORS, GROUP_ERRORS
from edge.services.group.room import InGroup, Seat
from edge.store import groups
from edge.store import identity as names
from edge.store.groups import Group, Setting

SETTING_ERRORS = (*ADMIN_ERRORS, TooLarge, RateLimited, VersionConflict, SignatureInvalid)


class SetSettings(InGroup, frozen=True, kw_only=True):
    """What to write. With `group.index` the etag of the index that the writer has seen, "" for the first one."""

    settings: dict[str, Any]
    expected_index_etag: str | None = None


class Updated(msgspec.Struct, omit_defaults=True):
    """What was written."""

    group_id: str
    group_aid: str
    updated_keys: list[str]
    meta: dict[str, Any] = msgspec.field(name="_meta", default_factory=dict)


class GetSettings(InGroup, frozen=True, kw_only=True):
    """Which settings; without `keys` all."""

    keys: list[str] | None = None


class Settings(msgspec.Struct, omit_defaults=True):
    """Settings with who wrote them and when; mention_mode is always among them when it may be."""

    group_id: str
    group_aid: str
    settings: list[dict[str, Any]]
    mention_mode: str
    meta: dict[str, Any] = msgspec.field(name="_meta", default_factory=dict)


class Announce(InGroup, frozen=True, kw_only=True):
    """The new announcement."""

    content: str
    attachments: list[Any] | None = None


class Announcement(msgspec.Struct):
    """What is announced."""

    group_id: str
    group_aid: str
    announcement: dict[str, Any]


class SetRules(InGroup, frozen=True, kw_only=True):
    """How one comes in; what is absent stays."""

    mode: str | None = None
    question: str | None = None
    auto_approve_patterns: list[str] | None = None
    max_pending: int | None = None


class Rules(msgspec.Struct):
    """How one comes in, with the text of the rules."""

    group_id: str
    group_aid: str
    rules: dict[str, Any]


class _Kept(msgspec.Struct):
    """A stored `group.index`."""

    body: str


class SettingService(JoinService):
    """Settings of groups."""

    @op(
        "group.set_settings",
        scope="group:write",
        wire={"aun": ("group.set_settings",)},
        raises=SETTING_ERRORS,
        writes=True,
        before="read_index",
    )
    def set_settings(self, call: Call[SetSettings], unit: Unit) -> Updated:
        """Write settings, all or none; documents and the way in only with a signed index of them."""
        asked, seat = call.params, self._room.enter(unit, call, ADMIN)
        checked = {key: group_rules.setting(key, value) for key, value in asked.settings.items()}
        if not checked:
            raise InvalidParams("settings is empty")
        index: Index | None = call.prepared
        missing = [key for key in checked if group_rules.indexed(key) and (index is None or key not in index.entries)]
        if missing:
            raise InvalidParams(f"{sorted(missing)[0]} is written together with a signed group.index that lists it")
        if index is not None:
            self._accept(unit, seat, index, asked.expected_index_etag)
        self._write(unit, seat, checked)
        keys_written = sorted(checked)
        self._room.changed(unit, seat.group, _action(keys_written), seat.aid, updated_keys=keys_written)
        return Updated(seat.gid, seat.gid, keys_written, _meta(seat.gid, index))

    async def read_index(self, call: Call[SetSettings]) -> Index | None:
        """The index of a call, its hashes checked."""
        value = call.params.settings.get(INDEX)
        if value is None:
            return None
        body = value.get("body") if isinstance(value, dict) else None
        if not isinstance(body, str):
            raise InvalidParams("group.index is an object with a body")
        self._fits(bounds.SETTING, body)
        return group_index.parse(body, JsonLimits(octets=self._limits[bounds.SETTING]))

    @op("group.get_settings", scope="group:read", wire={"aun": ("group.get_settings",)}, raises=GROUP_ERRORS)
    async def get_settings(self, call: Call[GetSettings]) -> Settings:
        """Settings by key, or all of them."""
        asked = call.params

        def look(unit: Unit) -> Settings:
            seat = self._room.enter(unit, call)
            kept = {one.key: one for one in groups.settings(unit, seat.gid)}
            shown = self._shown(unit, seat.group, kept)
            wanted = [one for one in shown if asked.keys is None or one["key"] in asked.keys]
            index = kept.get(INDEX)
            meta = _meta(seat.gid, self._parsed(index)) if index is not None else {}
            return Settings(seat.gid, seat.gid, wanted, views.mention_mode(unit, seat.gid), meta)

        return await self._room.node.read(look)

    @op("group.get_announcement", scope="group:read", wire={"aun": ("group.get_announcement",)}, raises=GROUP_ERRORS)
    async def get_announcement(self, call: Call[InGroup]) -> Announcement:
        """What is announced in the group."""

        def look(unit: Unit) -> Announcement:
            gid = self._room.enter(unit, call).gid
            return Announcement(gid, gid, self._document(unit, gid, "announcement"))

        return await self._room.node.read(look)

    @op(
        "group.update_announcement",
        scope="group:write",
        wire={"aun": ("group.update_announcement",)},
        raises=SETTING_ERRORS,
        writes=True,
    )
    def update_announcement(self, call: Call[Announce], unit: Unit) -> Announcement:
        """Announce something; a signed index does not vouch for it."""
        asked, seat = call.params, self._room.enter(unit, call, ADMIN)
        self._fits(bounds.TEXT, asked.content)
        fields: dict[str, Any] = {"announcement.content": asked.content}
        if asked.attachments is not None:
            fields["announcement.attachments"] = asked.attachments
        self._write_old(unit, seat, fields, "announcement_updated")
        return Announcement(seat.gid, seat.gid, self._document(unit, seat.gid, "announcement"))

    @op("group.get_rules", scope="group:read", wire={"aun": ("group.get_rules",)}, raises=GROUP_ERRORS)
    async def get_rules(self, call: Call[InGroup]) -> Rules:
        """The group's rules and how one comes in."""

        def look(unit: Unit) -> Rules:
            seat = self._room.enter(unit, call)
            return Rules(seat.gid, seat.gid, self._both(unit, seat.group))

        return await self._room.node.read(look)

    @op(
        "group.update_rules",
        scope="group:write",
        wire={"aun": ("group.update_rules",)},
        raises=SETTING_ERRORS,
        writes=True,
    )
    def update_rules(self, call: Call[SetRules], unit: Unit) -> Rules:
        """Change how one comes in; a signed index does not vouch for it."""
        seat = self._room.enter(unit, call, ADMIN)
        self._write_old(unit, seat, self._join_fields(call.params), "rules_updated")
        return Rules(seat.gid, seat.gid, self._both(unit, seat.group))

    @op(
        "group.update_join_requirements",
        scope="group:write",
        wire={"aun": ("group.update_join_requirements",)},
        raises=SETTING_ERRORS,
        writes=True,
    )
    def update_join_requirements(self, call: Call[SetRules], unit: Unit) -> Requirements:
        """`group.update_rules` under its other name."""
        seat = self._room.enter(unit, call, ADMIN)
        self._write_old(unit, seat, self._join_fields(call.params), "join_requirements_updated")
        return Requirements(seat.gid, seat.gid, {"group_id": seat.gid, **self._rules(unit, seat.group)})

    # Parts.

    def _accept(self, unit: Unit, seat: Seat, index: Index, expected: str | None) -> None:
        """Is the index signed by the caller, about this group, and made from the one in force?"""
        if expected is None:
            raise InvalidParams("expected_index_etag is missing: it names the group.index that was read before")
        kept = groups.setting(unit, seat.gid, INDEX)
        if expected != (self._parsed(kept).etag if kept is not None else ""):
            raise VersionConflict("group.index etag conflict: read it again, merge, sign and resend")
        if index.group_aid != seat.gid:
            raise InvalidParams("group.index is about another group")
        if index.signed_by != seat.aid:
            raise InvalidParams("group.index is signed by another AID than the caller's")
        signer = names.aid(unit, seat.aid)
        if signer is None or not signer.spki:
            raise InvalidParams(f"{seat.aid} has no key here")
        keys.verify(signer.spki, index.signed, index.signature)

    def _write(self, unit: Unit, seat: Seat, checked: Mapping[str, Any]) -> Group:
        """Put settings where they belong; names and texts of a group have the limits they always have."""
        now_ms, gid = unit.wall_us // 1000, seat.gid
        core = {key: checked[key] for key in CORE if key in checked}
        self._fits(bounds.NAME, core.get("name", ""))
        self._fits(bounds.TEXT, core.get("description", ""), checked.get("join.question", ""))
        if "name" in core and not core["name"].strip():
            raise InvalidParams("name is empty")
        rest = {key: dumps(value) for key, value in checked.items() if key not in core}
        self._fit_settings(unit, gid, rest)
        for key, raw in rest.items():
            groups.put_setting(unit, gid, Setting(key, raw, seat.aid, now_ms))
        return groups.change(unit, gid, now_ms, **core)

    def _write_old(self, unit: Unit, seat: Seat, fields: Mapping[str, Any], action: str) -> None:
        checked = {key: group_rules.setting(key, value) for key, value in fields.items()}
        self._write(unit, seat, checked)
        groups.drop_setting(unit, seat.gid, INDEX)
        self._room.changed(unit, seat.group, action, seat.aid, updated_keys=sorted(checked))

    def _join_fields(self, asked: SetRules) -> dict[str, Any]:
        given = {
            "join.mode": asked.mode,
            "join.question": asked.question,
            "join.auto_approve_patterns": asked.auto_approve_patterns,
            "join.max_pending": asked.max_pending,
        }
        fields = {key: value for key, value in given.items() if value is not None}
        if not fields:
            raise InvalidParams("nothing to change")
        return fields

    def _shown(self, unit: Unit, group: Group, kept: Mapping[str, Setting]) -> list[dict[str, Any]]:
        core = {
            "name": group.name,
            "description": group.description,
            "visibility": group.visibility,
            "mention_mode": views.mention_mode(unit, group.gid),
            "join.mode": views.join_mode(unit, group),
        }
        rows = {key: {"key": key, "value": value, "updated_at": 0, "updated_by": ""} for key, value in core.items()}
        for one in kept.values():
            value = msgspec.Raw(one.value)
            rows[one.key] = {"key": one.key, "value": value, "updated_at": one.updated_ms, "updated_by": one.by}
        return [rows[key] for key in sorted(rows)]

    def _document(self, unit: Unit, gid: str, name: str) -> dict[str, Any]:
        content = groups.setting(unit, gid, f"{name}.content")
        attachments = groups.setting(unit, gid, f"{name}.attachments")
        return {
            "group_id": gid,
            "content": decode(content.value, str) if content is not None else "",
            "attachments": decode(attachments.value, list[Any]) if attachments is not None else [],
            "updated_by": content.by if content is not None else "",
            "updated_at": content.updated_ms if content is not None else 0,
        }

    def _both(self, unit: Unit, group: Group) -> dict[str, Any]:
        return {**self._rules(unit, group), **self._document(unit, group.gid, "rules"), "visibility": group.visibility}

    def _parsed(self, kept: Setting) -> Index:
        body = decode(kept.value, _Kept).body
        return group_index.parse(body, JsonLimits(octets=len(body.encode())))


def _meta(gid: str, index: Index | None) -> dict[str, Any]:
    return {"group_indexes": {gid: index.meta()}} if index is not None else {}


def _action(written: list[str]) -> str:
    """What the members are told: the most telling of what was written."""
    if any(key.startswith("announcement.") for key in written):
        return "announcement_updated"
    if any(key.startswith("rules.") for key in written):
        return "rules_updated"
    if any(key.startswith("join.") for key in written):
        return "join_requirements_updated"
    return "update"
