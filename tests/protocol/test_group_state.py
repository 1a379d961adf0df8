"""The signed state of a group: spec aun-services §5.3, Q-14."""

from __future__ import annotations

import pytest

from edge.contract.wire import JsonLimits
from edge.protocol import group_state

LIMITS = JsonLimits(octets=256)


@pytest.mark.parametrize(
    "snapshot",
    [
        '{"members":[{"aid":"alice.edge.test","role":"owner"},{"aid":"bobb.edge.test"}]}',
        '{"members":["alice.edge.test","bobb.edge.test"]}',
        '["bobb.edge.test","alice.edge.test"]',
        '["bobb.edge.test",{"aid":"alice.edge.test"},{"role":"member"},7,null]',
    ],
)
def test_a_snapshot_vouches_for_the_members_it_names(snapshot: str) -> None:
    assert group_state.committed(snapshot, LIMITS) == {"alice.edge.test", "bobb.edge.test"}


@pytest.mark.parametrize("snapshot", ["", "{", "{}", '{"members":{}}', "7", '"alice"', '["' + "x" * 256 + '"]'])
def test_a_snapshot_that_cannot_be_read_vouches_for_nobody_in_particular(snapshot: str) -> None:
    assert group_state.committed(snapshot, LIMITS) is None


def test_an_empty_snapshot_is_readable() -> None:
    assert group_state.committed("[]", LIMITS) == frozenset()


def test_the_chain_depends_on_every_state_and_on_their_order() -> None:
    one, two = (group_state.chain("", state) for state in ("a", "b"))
    chains = {one, two, group_state.chain(one, "b"), group_state.chain(two, "a"), group_state.chain("", "ab")}
    assert len(chains) == 5
    assert all(len(bytes.fromhex(chain)) == 32 for chain in chains)
    assert group_state.chain("", "a") == one
