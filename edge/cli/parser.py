"""Every verb of `aun-edge` with its arguments, declared once: parser, help and reference are this."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from edge import __version__
from edge.cli.examples import EXAMPLES

EXIT_CODES = """exit codes:
  0 ok · 1 failed · 2 usage or no match · 3 node not running · 4 not permitted · 75 try later · 130 Ctrl-C"""

BYTES = frozenset({"payload"})
"""Arguments that may be any bytes, as paths may; all others are UTF-8 text."""


class _Parser(argparse.ArgumentParser):
    """Says the next command with what is wrong."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        said = message.encode("utf-8", "backslashreplace").decode()
        self.exit(2, f"{self.prog}: {said}\n  next: {self.prog} --help\n")


def build() -> argparse.ArgumentParser:
    """The whole command line. Each verb names `module:function` that does it, imported when it is called."""
    top = _Parser(
        prog="aun-edge",
        description="An edge node: the things in a house, reachable by agents.",
        epilog=EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    top.add_argument("--version", action="version", version=f"aun-edge {__version__}")
    _state_dir(top, default=None)
    top.set_defaults(help_of=top)
    verbs = top.add_subparsers(metavar="VERB")
    _life(verbs)
    _devices(verbs)
    _agents(verbs)
    _skills(verbs)
    _queue(verbs)
    _backup(verbs)
    _config(verbs)
    _mqtt(verbs)
    for words, verb in verbs_of(top):
        verb.formatter_class = argparse.RawDescriptionHelpFormatter
        verb.epilog = "\n  ".join(["examples:", *EXAMPLES[words]])
    return top


def _life(verbs: Any) -> None:
    run = _verb(verbs, "run", "offline:run", "Run the node until SIGTERM.")
    _sources(run)
    run.add_argument(
        "--insecure-local", action="store_true", help="callers from this machine need no token; loopback listeners only"
    )
    init = _verb(verbs, "init", "offline:init", "Make the state directory and the keys, without starting.")
    _sources(init)
    init.set_defaults(insecure_local=False)
    _json(_verb(verbs, "status", "verbs:status", "One screen: what runs, where, and what is wrong."))
    _json(_verb(verbs, "doctor", "doctor:run", "Check everything in order, the failing cause first."))
    selftest = _json(
        _verb(
            verbs,
            "selftest",
            "selftest:run",
            "Publish, kill and restart on a scratch directory: everything acked came or is declared lost.",
        )
    )
    selftest.add_argument(
        "--messages", type=_whole(10, 10_000_000), default=3000, metavar="N", help="how many to publish (default 3000)"
    )
    selftest.add_argument(
        "--kills",
        type=_whole(0, 1_000),
        default=1,
        metavar="N",
        help="how often to kill -9 in between (default 1)",
    )
    selftest.add_argument("--dir", type=_path, default=None, metavar="DIR", help="where to make the scratch directory")
    selftest.add_argument("--keep", action="store_true", help="leave the scratch directory there")
    methods = _json(_verb(verbs, "methods", "verbs:methods", "List the operations this node answers."))
    methods.add_argument(
        "--surface", type=_word, default=LEFT_OUT, choices=["aun", "a2a", "edge"], help="only those of one wire"
    )
    methods.add_argument("--scopes", action="store_true", help="show the scope that each one needs")


def _devices(verbs: Any) -> None:
    group = _group(verbs, "device", "Devices: who may connect by MQTT.")
    add = _json(_verb(group, "add", "verbs:device_add", "Let a device in; prints its password, once."))
    add.add_argument("name", metavar="NAME", help="its user name and the first word of its topics")
    add.add_argument("--admin", action="store_true", help="a bridge or operator that may use every topic")
    add.add_argument("--topics", nargs="+", default=[], metavar="FILTER", help="further topic filters it may use")
    _json(_verb(group, "list", "verbs:device_list", "List devices."))
    show = _json(_verb(group, "show", "verbs:device_show", "Show one device, its capabilities and what was refused."))
    show.add_argument("name", metavar="NAME", help="as `device list` shows it")
    rotate = _json(_verb(group, "rotate", "verbs:device_rotate", "Give a device another password; prints it, once."))
    rotate.add_argument("name", metavar="NAME", help="as `device list` shows it")
    forget = _verb(group, "forget", "verbs:device_forget", "Take a device's password away and forget it.")
    forget.add_argument("name", metavar="NAME", help="as `device list` shows it")
    _named(group, "device list")


def _agents(verbs: Any) -> None:
    group = _group(verbs, "agent", "Agents: who may ask and act.")
    add = _json(_verb(group, "add", "verbs:agent_add", "Reserve a name and make a token; prints the token, once."))
    add.add_argument("name", metavar="NAME", help="4 to 64 of a-z 0-9 _ -; its address is NAME.ISSUER")
    add.add_argument(
        "--sdk-profile", type=_path, metavar="DIR", help="write what the AUN SDK needs to find and trust this node"
    )
    add.add_argument(
        "--expires",
        type=_word,
        default="90d",
        metavar="90d",
        help="how long the token lives: 12h, 90d (default), never",
    )
    _json(_verb(group, "list", "verbs:agent_list", "List agents and their tokens' prefixes."))
    window = _verb(group, "window", "verbs:agent_window", "Let any free name register for some minutes.")
    window.add_argument("minutes", type=_whole(0, 60), metavar="MINUTES", help="1 to 60; 0 closes it")
    revoke = _verb(group, "revoke", "verbs:agent_revoke", "Revoke an agent: tokens, certificates, grants, connections.")
    revoke.add_argument("name", metavar="NAME", help="as `agent list` shows it")
    _named(group, "agent list")


def _skills(verbs: Any) -> None:
    group = _group(verbs, "skill", "Skills: what devices can tell and do.")
    _json(_verb(group, "list", "verbs:skill_list", "List skills with their latest values."))
    call = _json(_verb(group, "call", "verbs:skill_call", "Read a skill, or act on it."))
    call.add_argument("skill", metavar="SKILL", help="<device>.<capability>, as `skill list` shows it")
    call.add_argument("value", nargs="?", metavar="VALUE", help="on, off, a number …; none: read it, or do the job")
    call.add_argument(
        "--params", type=_word, default=LEFT_OUT, metavar="JSON", help="parameters as a JSON object instead of VALUE"
    )
    call.add_argument(
        "--timeout",
        type=_whole(0, 3_600),
        default=30,
        metavar="SECONDS",
        help="how long to wait for the end, 0 to 3600 (default 30)",
    )
    _named(group, "skill list")
    group = _group(verbs, "task", "Orders that were given by `skill call`, and what became of them.")
    orders = _json(_verb(group, "list", "task:list_", "List orders, the newest first."))
    orders.add_argument(
        "--status", type=_word, default=LEFT_OUT, metavar="WORD", help="only these, as the list says it"
    )
    orders.add_argument("--limit", type=_whole(1, 200), default=20, metavar="LINES", help="lines at most (default 20)")
    one = _json(_verb(group, "show", "task:show_", "Show one order: what was asked, said and made."))
    off = _json(_verb(group, "cancel", "task:cancel", "Call an order off; at work, the device has 10 s to stop."))
    for verb in (one, off):
        verb.add_argument("task", metavar="TASK", help="as `task list` shows it")
    _named(group, "task list")
    group = _group(verbs, "cap", "Capabilities: which agent may act on what is risky.")
    _json(_verb(group, "list", "verbs:cap_list", "List capabilities, their risk and who was granted them."))
    for name, about in (("grant", "Allow an agent to act on a capability."), ("revoke", "Take a grant back.")):
        verb = _verb(group, name, f"verbs:cap_{name}", about)
        verb.add_argument("cap", metavar="CAP", help="<device>.<capability>")
        verb.add_argument("agent", metavar="AGENT", help="name or AID")
    _named(group, "cap list")


def _queue(verbs: Any) -> None:
    group = _group(verbs, "queue", "What waits, and what was given up.")
    drops = _json(_verb(group, "drops", "queue:drops", "What was refused, expired, evicted or dropped, and why."))
    drops.add_argument(
        "--reason", type=_word, default=LEFT_OUT, metavar="WORD", help="only this reason, as the list has it"
    )
    drops.add_argument(
        "--client", type=_word, default=LEFT_OUT, metavar="NAME", help="only this client, by the name in the list"
    )
    drops.add_argument("--since", type=_word, default=LEFT_OUT, metavar="1h", help="only the last 30m, 12h, 7d")
    drops.add_argument(
        "--limit", type=_whole(1, 1_000_000), default=200, metavar="LINES", help="lines at most (default 200)"
    )


def _backup(verbs: Any) -> None:
    group = _group(verbs, "backup", "Backups: keys, databases and local settings in one file.")
    create = _json(_verb(group, "create", "backup:create", "Write a backup; the node may go on running."))
    create.add_argument(
        "file", nargs="?", type=_path, metavar="FILE", help="where to; default: a name with issuer and time, here"
    )
    verify = _json(_verb(group, "verify", "backup:verify", "Read a whole backup and say whether it is good."))
    verify.add_argument("file", type=_path, metavar="FILE", help="what `backup create` wrote")
    back = _json(_verb(group, "restore", "backup:restore_", "Put a backup in place; the node must not run."))
    back.add_argument("file", type=_path, metavar="FILE", help="what `backup create` wrote")
    back.add_argument("--force", action="store_true", help="replace the state that is there; it goes to quarantine")


def _config(verbs: Any) -> None:
    group = _group(verbs, "config", "Settings.")
    get = _json(_verb(group, "get", "settings:get", "One setting and where its value comes from."))
    get.add_argument("key", metavar="section.key", help="as `config list` shows it")
    change = _verb(group, "set", "settings:set_", "Change settings; what can change at once does.")
    change.add_argument("changes", nargs="+", metavar="KEY=VALUE", help="or KEY VALUE; an empty VALUE is a value")
    change.add_argument("--unset", action="store_true", help="drop the named keys instead")
    _json(_verb(group, "list", "settings:list_", "Every setting, its value and where that comes from."))
    _json(_verb(group, "validate", "settings:validate", "Check every file as a start would."))
    for verb in group.choices.values():
        verb.add_argument("--config", type=_path, metavar="FILE", help="instead of /etc/aun-edge/aun-edge.toml")
        verb.add_argument("--profile", type=_word, default=LEFT_OUT, metavar="NAME", help="as given to run")


def _mqtt(verbs: Any) -> None:
    group = _group(verbs, "mqtt", "The bus: publish and listen, as the operator or as a user.")
    pub = _verb(group, "pub", "mqtt:pub", "Publish one message.")
    pub.add_argument("topic", metavar="TOPIC", help="where to")
    pub.add_argument("payload", metavar="PAYLOAD", help="`-` reads standard input")
    pub.add_argument("--retain", action="store_true", help="keep it for later subscribers; empty: keep none")
    sub = _json(_verb(group, "sub", "mqtt:sub", "Print retained messages, marked, then messages as they come."))
    sub.add_argument("filters", nargs="+", metavar="FILTER", help="topic filters; + is one level, # all below")
    sub.add_argument(
        "--count", type=_whole(0, 1_000_000_000), default=0, metavar="N", help="end after N messages (default 0: never)"
    )
    sub.add_argument("--no-retained", action="store_true", help="only what comes from now on")
    user = _group(group, "user", "Users who chose their password; devices have one from `device add`.")
    add = _json(_verb(user, "add", "mqtt:user_add", "Let a user in; asks for the password, or reads it from a file."))
    add.add_argument("--admin", action="store_true", help="may use every topic")
    add.add_argument("--topics", nargs="+", default=[], metavar="FILTER", help="topic filters besides NAME/#")
    _json(_verb(user, "list", "mqtt:user_list", "List these users and their topics."))
    password = _verb(user, "password", "mqtt:user_password", "Give a user another password; the old one ends.")
    remove = _verb(user, "remove", "mqtt:user_remove", "Let a user in no more.")
    _named(user, "mqtt user list")
    for verb in (add, password, remove):
        verb.add_argument("name", metavar="NAME", help="2 to 40 of a-z 0-9 -")
    for verb in (add, password):
        verb.add_argument("--password-file", type=_path, metavar="FILE", help="its first line; `-` is standard input")
    for verb in (pub, sub):
        verb.add_argument("--qos", type=int, choices=[0, 1], default=1, help="1 by default")
        verb.add_argument(
            "--username",
            type=_word,
            default=LEFT_OUT,
            metavar="USER",
            help="speak MQTT as this user, to try its password",
        )
        verb.add_argument("--password-file", type=_path, metavar="FILE", help="the password of USER")


def _group(verbs: Any, name: str, about: str) -> Any:
    made = verbs.add_parser(name, help=about, description=about)
    made.set_defaults(help_of=made)
    return made.add_subparsers(metavar="VERB")


def _named(group: Any, listing: str) -> None:
    """The names that the verbs of a group take are those that `listing` shows."""
    for verb in group.choices.values():
        verb.set_defaults(listing=listing)


def _verb(verbs: Any, name: str, does: str, about: str) -> argparse.ArgumentParser:
    made: argparse.ArgumentParser = verbs.add_parser(name, help=about, description=about)
    _state_dir(made, default=argparse.SUPPRESS)
    made.set_defaults(does=does, help_of=made)
    return made


def _state_dir(to: argparse.ArgumentParser, *, default: object) -> None:
    to.add_argument(
        "--state-dir",
        type=_path,
        default=default,
        metavar="DIR",
        help="state directory of the node (root: /var/lib/aun-edge, others: ~/.local/state/aun-edge)",
    )


def _sources(to: argparse.ArgumentParser) -> None:
    """Where settings come from besides the usual places."""
    to.add_argument("--config", type=_path, metavar="FILE", help="read this instead of /etc/aun-edge/aun-edge.toml")
    to.add_argument(
        "--profile", type=_word, default=LEFT_OUT, metavar="NAME", help="start from a named profile, or a profile file"
    )
    to.add_argument(
        "--issuer",
        type=_word,
        default=LEFT_OUT,
        metavar="DOMAIN",
        help="what every AID here ends in; fixed at the first start",
    )
    to.add_argument("--set", action="append", default=[], metavar="section.key=value", help="one setting; repeatable")


class _LeftOut(str):
    """The empty word of an option that was left out, which nobody can type."""


LEFT_OUT = _LeftOut()


def _word(text: str) -> str:
    """Something: an empty word is a variable that a script forgot to set, not a wish for the default."""
    if not text.strip() and text is not LEFT_OUT:
        raise argparse.ArgumentTypeError("it is empty: leave the option out, or say what it is")
    return str(text)


def _whole(low: int, high: int) -> Callable[[str], int]:
    """A whole number from `low` to `high`."""

    def number(text: str) -> int:
        if not re.fullmatch(r"-?[0-9]{1,18}", text, re.ASCII) or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"{text!r} is no whole number from {low} to {high}")
        return int(text)

    return number


def _path(text: str) -> Path:
    """The path of something."""
    return Path(_word(text))


def _json(to: argparse.ArgumentParser) -> argparse.ArgumentParser:
    to.add_argument("--json", action="store_true", help="print JSON")
    return to


def verbs_of(top: argparse.ArgumentParser, path: Sequence[str] = ()) -> list[tuple[str, argparse.ArgumentParser]]:
    """Every verb with its words, in the order of declaration."""
    found = []
    for action in top._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, below in action.choices.items():
                found += verbs_of(below, [*path, name])
    return found or [(" ".join(path), top)]
