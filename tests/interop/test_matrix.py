"""Every phrase with both SDKs: in a plain run, over a restart, over `kill -9`, over a restore; or why it cannot be."""

from __future__ import annotations

import importlib

import pytest

from tests.interop import test_survival
from tests.interop.conversations import SCRIPTS
from tests.interop.matrix import LEFT_OUT, PLAIN, left_out


@pytest.mark.parametrize("phrase", SCRIPTS)
@pytest.mark.parametrize("sdk", PLAIN)
def test_every_cell_has_a_test_or_a_reason(sdk: str, phrase: str) -> None:
    tests = PLAIN[sdk].get(phrase, ())
    assert bool(tests) is not bool(left_out(phrase, sdk))
    for name in tests:
        module, _, function = name.rpartition(".")
        assert callable(getattr(importlib.import_module(f"tests.interop.{module}"), function)), name


def test_the_matrix_names_no_other_phrase_and_every_end() -> None:
    for sdk in PLAIN:
        assert {*PLAIN[sdk], *LEFT_OUT[sdk]} == set(SCRIPTS)
    marks = vars(test_survival.test_every_conversation_goes_on_after_the_node_ended_in_the_middle)["pytestmark"]
    cells = {mark.args[0]: [getattr(one, "id", one) for one in mark.args[1]] for mark in marks if mark.args}
    assert cells == {"end": ["stop", "kill", "restore"], "sdk": list(PLAIN)}
