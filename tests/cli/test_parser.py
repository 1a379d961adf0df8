from __future__ import annotations

import argparse
import importlib
import shlex

import pytest

from edge.cli.examples import EXAMPLES
from edge.cli.parser import build, verbs_of

VERBS = verbs_of(build())
READ = {"status", "doctor", "methods", "device list", "device show", "agent list", "skill list", "cap list"} | {
    "selftest",
    "queue drops",
    "config get",
    "config list",
    "config validate",
}


def test_every_verb_of_the_design_is_there() -> None:
    wanted = READ | {
        "run",
        "init",
        "device add",
        "device forget",
        "device rotate",
        "agent add",
        "agent revoke",
        "skill call",
    }
    wanted |= {"cap grant", "cap revoke", "config set", "mqtt pub", "mqtt sub"}
    assert wanted <= {words for words, _ in VERBS}


@pytest.mark.parametrize(("words", "verb"), VERBS, ids=[words for words, _ in VERBS])
def test_a_verb_names_a_function_and_says_what_it_does(words: str, verb: argparse.ArgumentParser) -> None:
    module, _, function = verb.get_default("does").partition(":")
    assert callable(getattr(importlib.import_module(f"edge.cli.{module}"), function))
    assert (verb.description or "").endswith(".")
    options = {name for action in verb._actions for name in action.option_strings}
    assert "--state-dir" in options
    assert words not in READ or "--json" in options


def test_the_state_directory_may_stand_before_or_after_the_verb() -> None:
    for line in (["--state-dir", "/x", "device", "list"], ["device", "list", "--state-dir", "/x"]):
        assert str(build().parse_args(line).state_dir) == "/x"


def test_settings_are_repeatable() -> None:
    options = build().parse_args(["run", "--set", "a.b=1", "--set", "c.d=2"])
    assert options.set == ["a.b=1", "c.d=2"]


@pytest.mark.parametrize("line", [["walk"], ["device", "add"], ["status", "--loud"]])
def test_what_is_no_command_ends_with_usage(line: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        build().parse_args(line)
    assert ended.value.code == 2
    assert "usage: aun-edge" in capsys.readouterr().err


WORDS = [
    (words, action)
    for words, verb in VERBS
    for action in verb._actions
    if action.option_strings and action.nargs is None and action.type is not int and action.dest != "set"
]


@pytest.mark.parametrize(("words", "action"), WORDS, ids=[f"{words} {action.dest}" for words, action in WORDS])
def test_an_empty_word_is_not_the_default(
    words: str, action: argparse.Action, capsys: pytest.CaptureFixture[str]
) -> None:
    for empty in ("", " "):
        with pytest.raises(SystemExit) as ended:
            build().parse_args([*words.split(), action.option_strings[0], empty])
        assert ended.value.code == 2
        assert f"argument {action.option_strings[0]}: " in capsys.readouterr().err


def test_the_state_directory_before_the_verb_is_not_empty_either(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        build().parse_args(["--state-dir", "", "status"])
    assert "argument --state-dir: it is empty: leave the option out" in capsys.readouterr().err


def test_an_option_that_was_left_out_is_a_plain_empty_word() -> None:
    options = build().parse_args(["queue", "drops"])
    assert (type(options.reason), options.reason) == (str, "")


def test_every_verb_has_examples_and_help_for_each_argument() -> None:
    assert EXAMPLES.keys() == {words for words, _ in VERBS}
    assert all(action.help for _, verb in VERBS for action in verb._actions)


@pytest.mark.parametrize("line", [line for lines in EXAMPLES.values() for line in lines])
def test_an_example_is_a_command(line: str) -> None:
    program, *words = shlex.split(line.partition(" < ")[0])
    assert program == "aun-edge"
    options = build().parse_args(words)
    assert options.does
    assert line in options.help_of.format_help()
