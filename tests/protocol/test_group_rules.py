"""Rules of groups that need no table: spec aun-services §1.3, G-3, G-14, G-18."""

from __future__ import annotations

from typing import Any

import pytest

from edge.contract.errors import InvalidParams
from edge.protocol import group_rules
from edge.protocol.group_rules import ADMIN, MEMBER, OWNER


def test_g_3_a_role_acts_on_lower_ones_only() -> None:
    ranked = [MEMBER, ADMIN, OWNER]
    for at, role in enumerate(ranked):
        assert [other for other in ranked if group_rules.outranks(role, other)] == ranked[:at]


def test_g_14_the_way_in_follows_from_the_visibility() -> None:
    assert group_rules.default_mode("public") == "open"
    assert group_rules.default_mode("private") == "approval"


@pytest.mark.parametrize(
    ("given", "kept"),
    [("public", "public"), ("private", "private"), ("invite_only", "private")],
)
def test_visibility_has_an_earlier_word_for_private(given: str, kept: str) -> None:
    assert group_rules.setting("visibility", given) == kept


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("disabled", "disabled"),
        ("broadcast", "disabled"),
        ("mention-only", "mention-only"),
        ("mention", "mention-only"),
    ],
)
def test_g_18_mention_mode_has_earlier_words(given: str, kept: str) -> None:
    assert group_rules.setting("mention_mode", given) == kept


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("name", "Family"),
        ("description", ""),
        ("join.mode", "closed"),
        ("join.question", "who?"),
        ("join.auto_approve_patterns", ["*.edge.test"]),
        ("join.max_pending", 1),
        ("join.max_pending", 1000),
        ("join.attachments", [{"name": "a"}]),
        ("rules.content", "be kind"),
        ("rules.attachments", []),
        ("house-style.content", "x"),
        ("group.index", {"body": "{}"}),
    ],
)
def test_g_18_a_setting_is_stored_as_it_was_given(key: str, value: Any) -> None:
    assert group_rules.setting(key, value) == value


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("name", 7),
        ("visibility", "secret"),
        ("mention_mode", "loud"),
        ("mention_mode", ["disabled"]),
        ("join.mode", "ajar"),
        ("join.question", None),
        ("join.auto_approve_patterns", "*"),
        ("join.auto_approve_patterns", [7]),
        ("join.max_pending", 0),
        ("join.max_pending", 1001),
        ("join.max_pending", True),
        ("join.max_pending", "5"),
        ("join.attachments", {}),
        ("rules.content", ["be kind"]),
        ("rules.attachments", "none"),
        ("group.index", "{}"),
        ("group.index", {"body": 7}),
    ],
)
def test_g_18_a_value_that_does_not_fit_its_setting_is_refused(key: str, value: Any) -> None:
    with pytest.raises(InvalidParams):
        group_rules.setting(key, value)


@pytest.mark.parametrize("key", ["", "rules", "rules.title", "name.content", "JOIN.content", "7.content", "owner_aid"])
def test_g_18_an_unknown_setting_is_refused(key: str) -> None:
    assert not group_rules.indexed(key)
    with pytest.raises(InvalidParams, match="unknown setting"):
        group_rules.setting(key, "x")


def test_g_18_the_index_covers_documents_and_the_way_in_but_not_the_groups_own_columns() -> None:
    assert all(group_rules.indexed(key) for key in ("rules.content", "announcement.attachments", "join.mode"))
    assert not any(group_rules.indexed(key) for key in (*group_rules.CORE, "mention_mode", group_rules.INDEX))


@pytest.mark.parametrize(
    ("pattern", "aid", "let_in"),
    [
        ("alice.edge.test", "alice.edge.test", True),
        ("alice.edge.test", "alice.edge.tests", False),
        ("*.edge.test", "bobb.edge.test", True),
        ("*.edge.test", "bobb.edge.test.evil", False),
        ("*.edge.test", ".edge.test", True),
        ("a*a", "a", False),
        ("sensor-*.edge.*", "sensor-7.edge.test", True),
        ("a*bb*bb*c", "abbbbc", True),
        ("a*bb*bb*c", "abbbc", False),
        ("^alice\\..*$", "alice.edge.test", True),
        (".+\\.edge\\.test", "bobb.edge.test", True),
        ("Alice.Edge.Test", "alice.edge.test", True),
        ("*", "anybody.at.all", True),
    ],
)
def test_g_14_an_applicant_is_let_in_when_a_pattern_fits_the_whole_aid(pattern: str, aid: str, let_in: bool) -> None:
    assert group_rules.approved(aid, [pattern]) is let_in
    assert not group_rules.approved(aid, [])


@pytest.mark.parametrize("pattern", ["", "^$", "(a+)+$", "a|b", "[a-z]", "a{2}", "x" * 254])
def test_a_pattern_that_could_be_slow_to_match_is_refused_when_it_is_set(pattern: str) -> None:
    with pytest.raises(InvalidParams, match="auto_approve_patterns"):
        group_rules.patterns([pattern])
