"""What groups are called: spec aun-services 2.G-1, C-8."""

from __future__ import annotations

import pytest

from edge.contract.errors import InvalidParams
from edge.protocol import group_ids

ISSUER = "edge.test"


@pytest.mark.parametrize(
    "form",
    [
        "g-c0ffee",
        "g-c0ffee.edge.test",
        "g-c0ffee@edge.test",
        "group.edge.test/g-c0ffee",
        "  G-C0FFEE.Edge.Test  ",
        "/g-c0ffee/",
        "g-c0ffee@",
        "g-c0ffee.",
    ],
)
def test_g_1_every_form_names_one_group(form: str) -> None:
    assert group_ids.canonical(form, ISSUER) == "g-c0ffee.edge.test"


def test_g_1_a_group_of_another_issuer_keeps_it() -> None:
    assert group_ids.canonical("team@other.example", ISSUER) == "team.other.example"


@pytest.mark.parametrize(
    "form",
    [
        "",
        "abc",
        "-abcd",
        "a b c d",
        "g-c0ffee@bad..domain",
        "group.edge.test/ab",
        "x" * 65,
        "team@" + "a" * 250,
        "g-ü123",
    ],
)
def test_g_1_what_is_no_group_id_is_refused(form: str) -> None:
    with pytest.raises(InvalidParams, match="not a group id"):
        group_ids.canonical(form, ISSUER)


def test_a_group_that_begins_like_the_url_form_is_read_by_its_dot() -> None:
    assert group_ids.canonical("group.edge.test", ISSUER) == "group.edge.test"


@pytest.mark.parametrize("given", ["g-ab12", "team_a", "g-" + "a" * 32])
def test_g_1_a_creator_may_choose_a_name(given: str) -> None:
    assert group_ids.custom(given, ISSUER) == f"{given}.{ISSUER}"


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("team@other.example", "groups of this node"),
        ("12345", "digits only"),
        ("g-ab1", "after g-"),
        ("g-ab_12", "after g-"),
        ("g-" + "a" * 33, "after g-"),
        ("storage", "reserved"),
        ("d-lamp", "reserved"),
    ],
)
def test_g_1_a_chosen_name_must_be_free_to_choose(given: str, why: str) -> None:
    with pytest.raises(InvalidParams, match=why):
        group_ids.custom(given, ISSUER)


def test_a_named_group_is_an_aid_of_the_node() -> None:
    assert group_ids.named(" Family ", ISSUER) == "family.edge.test"


@pytest.mark.parametrize("name", ["abc", "x" * 65, "g-team", "-team", "a.team", "tëam", ""])
def test_a_named_group_has_a_plain_name(name: str) -> None:
    with pytest.raises(InvalidParams, match="invalid group_name"):
        group_ids.named(name, ISSUER)


def test_a_named_group_may_not_be_called_like_a_service() -> None:
    with pytest.raises(InvalidParams, match="reserved"):
        group_ids.named("storage", ISSUER)


def test_a_generated_name_is_one_that_every_client_accepts() -> None:
    made = group_ids.generated("0123456789ab", ISSUER)
    assert made == group_ids.canonical(made, ISSUER) == group_ids.custom(made, ISSUER)
