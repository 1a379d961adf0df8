from __future__ import annotations

from pathlib import Path

import pytest

from edge.config import ConfigError, Origin, load_config
from edge.node.fixed import refuse_another_issuer, refuse_issuer


def held(state: Path, issuer: str) -> Path:
    """A state directory as the first start leaves it, as far as the issuer goes."""
    (state / "identity" / "pki").mkdir(parents=True)
    (state / "identity" / "pki" / "issuer").write_text(f"{issuer}\n")
    return state


def test_another_issuer_is_a_problem_of_its_setting_and_named_with_its_place(tmp_path: Path) -> None:
    state = held(tmp_path / "state", "home.test")
    file = tmp_path / "edge.toml"
    file.write_text('[node]\nissuer = "other.test"\n')
    with pytest.raises(ConfigError) as refused:
        refuse_another_issuer(load_config(state_dir=state, config_file=file))
    (problem,) = refused.value.problems
    assert (problem.key, str(problem.origin)) == ("node.issuer", f"{file}:2")
    assert "home.test, fixed at its first start; other.test is another" in problem.why


def test_the_same_issuer_and_none_and_a_first_start_are_good(tmp_path: Path) -> None:
    state, option = held(tmp_path / "state", "home.test"), Origin("option", "config set")
    for asked in ("", "home.test", "Home.Test."):
        refuse_issuer(state, asked, option)
    refuse_issuer(tmp_path / "empty", "other.test", option)
    with pytest.raises(ConfigError, match=r"config set: node\.issuer"):
        refuse_issuer(state, "other.test", option)
