from __future__ import annotations

import os
import re
import shlex
import tomllib
from pathlib import Path

import pytest

import edge
from edge.cli.parser import build, verbs_of

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
VERBS = {words for words, _ in verbs_of(build())}


def commands(page: Path) -> list[str]:
    """What a page tells its reader to type; lines that go on are joined."""
    blocks = re.findall(r"```console\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    return [line[2:] for line in lines if line.startswith("$ ")]


@pytest.mark.seed("C-015")
def test_the_readme_has_one_command_that_runs_and_one_that_tests() -> None:
    ours = [line for line in commands(ROOT / "README.md") if line.startswith("tools/")]
    assert ours == ["tools/run", "tools/test"]
    assert all(os.access(ROOT / line, os.X_OK) for line in ours)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_pages_show_verbs_that_exist(page: Path) -> None:
    inline = re.findall(r"`(aun-edge [a-z][^`]*)`", page.read_text(encoding="utf-8").replace("\n", " "))
    for line in [*(line for line in commands(page) if line.startswith("aun-edge ")), *inline]:
        words = [word for word in shlex.split(line, comments=True)[1:] if re.fullmatch(r"[a-z]+", word)]
        assert words[0] in {verb.split()[0] for verb in VERBS}, line
        if words[0] not in VERBS:
            assert len(words) == 1 or {" ".join(words[:2]), " ".join(words[:3])} & set(VERBS), line


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for link in re.findall(r"\]\(([^)#:]+)[^)]*\)", page.read_text(encoding="utf-8")):
            assert (page.parent / link).exists(), f"{page.name}: {link}"


@pytest.mark.seed("C-002")
@pytest.mark.parametrize(
    "package", ["aiomqtt", "amqtt", "websockets", "cryptography", "cbor2", "sqlite-utils", "uvloop", "pytest"]
)
def test_the_packages_of_the_design_card_are_declared(package: str) -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    declared = [*project["dependencies"], *extras["amqtt"], *extras["dev"]]
    assert package in [re.split(r"[<>=;\s]", line)[0] for line in declared]
    assert "amqtt" in " ".join(extras["all"])


def test_the_journeys_lead_through_files_that_are_there() -> None:
    named = re.findall(r"`(edge/[^`]+)`", edge.__doc__ or "")
    assert len(named) > 15
    assert all((ROOT / name).exists() for name in named)


def test_the_licence_is_the_one_that_is_declared() -> None:
    assert "Apache License" in (ROOT / "LICENSE").read_text()[:200]
