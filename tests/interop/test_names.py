"""Every name that the published SDKs can send has an operation here, or a refusal that says why (settled G34)."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge.dispatch.absent import ABSENT, absent
from tests.interop.names import NAMES, names
from tests.plugins.needs import peer
from tests.support.node import RpcError, agent, running
from tests.support.sdk_names import documented, sent

DOCS = Path(__file__).parents[2] / "docs" / "agents.md"


@pytest.mark.interop
@pytest.mark.parametrize(
    ("sdk", "packages"),
    [
        pytest.param("fastaun", ("aun_core", "aun_cli"), marks=pytest.mark.needs("peer:fastaun")),
        pytest.param("aun-core", ("aun_core",), marks=pytest.mark.needs("peer:aunold")),
    ],
)
def test_the_list_is_what_the_packages_send_and_document(sdk: str, packages: tuple[str, ...]) -> None:
    place = peer({"fastaun": "fastaun", "aun-core": "aunold"}[sdk])
    assert place is not None
    [site] = place.glob("lib/python3*/site-packages")
    found = {name for package in packages for name in sent(site / package) | documented(site / package)}
    assert found == names(sdk)


async def test_each_name_has_an_operation_or_says_why_not(tmp_path: Path) -> None:
    async with running(tmp_path / "state") as node:
        offered = {name for method in node.house.methods() for name in method.wire.get("aun", ())}
        wanted = {name for sdk in NAMES for name in names(sdk)}
        alice = await agent(node, "alice")
        async with alice.connected() as wire:
            for name in sorted(wanted - offered):
                entry, reason = absent("aun", name)
                with pytest.raises(RpcError) as refused:
                    await wire.call(name)
                told = refused.value
                assert (told.code, told.message) == (-32601, reason)
                assert told.data == {"absent": entry, "retryable": False}
        explained = {entry: [name for name in wanted if absent("aun", name)[0] == entry] for entry in ABSENT}
        assert {entry for entry, found in explained.items() if not found} == set(), "nobody asks for these"
        assert {entry for entry in ABSENT if any(absent("aun", name)[0] == entry for name in offered)} == set()


def test_the_page_for_agents_names_every_refusal() -> None:
    page = DOCS.read_text(encoding="utf-8")
    assert [entry for entry in ABSENT if f"`{entry}" not in page] == []
