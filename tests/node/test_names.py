from __future__ import annotations

import pytest

from edge.config import Config
from edge.config.declared import HttpSettings, NodeSettings, TlsSettings
from edge.node.names import own_names


def test_everything_that_is_set_and_the_machines_own_name_are_ours() -> None:
    config = Config(
        state_dir=None,  # type: ignore[arg-type]
        node=NodeSettings(
            public_url=["https://edge.example.org/", "192.0.2.0/24=https://Box.lan:9443", "https://[::2]"]
        ),
        http=HttpSettings(hosts=["other.lan"]),
        tls=TlsSettings(names=["192.0.2.7", "box.lan"]),
    )
    assert own_names(config, "Kitchen") == [
        "192.0.2.7",
        "box.lan",
        "other.lan",
        "edge.example.org",
        "kitchen",
        "kitchen.local",
    ]


@pytest.mark.parametrize(
    ("machine", "names"),
    [("kitchen.lan", ["kitchen.lan"]), ("", []), ("a b", []), ("under_score", []), ("-x", [])],
)
def test_a_machine_name_that_is_no_host_name_is_left_out(machine: str, names: list[str]) -> None:
    assert own_names(Config(state_dir=None), machine) == names  # type: ignore[arg-type]
