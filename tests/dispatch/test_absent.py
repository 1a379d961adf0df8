from __future__ import annotations

import pytest

from edge.dispatch.absent import ABSENT, absent


@pytest.mark.parametrize(
    ("surface", "name", "entry"),
    [
        ("aun", "storage.fs.list", "storage"),
        ("aun", "storage", "storage"),
        ("aun", "group.fs.ls", "group.fs"),
        ("aun", "message.status", "message.status"),
        ("aun", "message.statuses", ""),
        ("aun", "group.fsck", ""),
        ("aun", "", ""),
        ("edge", "storage.get_object", ""),
    ],
)
def test_a_name_is_explained_by_itself_or_by_what_it_begins_with(surface: str, name: str, entry: str) -> None:
    assert absent(surface, name) == (entry, ABSENT.get(entry, ""))
