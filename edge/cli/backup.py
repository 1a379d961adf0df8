"""`aun-edge backup`: write, check and put back the whole state of a node (design D18)."""

from __future__ import annotations

import os
import sys
import tempfile
from argparse import Namespace
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from edge import __version__
from edge.cli import show
from edge.cli.bar import Bar
from edge.cli.client import Control
from edge.cli.failure import Exit, Failure, NotRunning
from edge.contract.time import wall_us
from edge.store import archive, restore, snapshot, swap
from edge.store.archive import Damaged, Manifest
from edge.store.schema import MIGRATIONS
from edge.system.clock import SystemClock
from edge.system.files import DirectoryInUse, StateLock

KEYS = "It holds every key of this node: keep it where nobody else can read it."


def create(options: Namespace) -> int:
    """One file with everything."""
    if options.file is not None and options.file.exists():
        raise Failure(f"{options.file} is already there", next_step="name another file, or move this one away")
    with _failures(options.file, writes=True), Bar(sys.stderr) as bar:
        try:
            file, made = _of_running(options, bar)
        except NotRunning:
            file, made = _of_resting(options, bar)
    if options.json:
        show.as_json({"file": str(file.absolute()), **_facts(made)})
    else:
        print(f"written: {file} ({max(1, round(file.stat().st_size / 1e3))} kB)\n{KEYS}")
        print(f"  next: aun-edge backup verify {file}")
    return Exit.OK


def _of_running(options: Namespace, bar: Bar) -> tuple[Path, Manifest]:
    """The node makes the copy and keeps it as long as we listen; packing it is our work, not the node's."""
    for step in Control(options.state_dir).stream("backup.create"):
        if folder := step.get("folder"):
            return _pack(options, Path(folder), step["made_us"], bar)
        bar(step["name"], step["done"], step["total"])
    raise NotRunning(options.state_dir)


def _of_resting(options: Namespace, bar: Bar) -> tuple[Path, Manifest]:
    """Nobody writes: copy the files ourselves."""
    if not (options.state_dir / "identity").is_dir():
        raise Failure(f"there is no node in {options.state_dir}", next_step="name its directory with --state-dir")
    with _locked(options.state_dir):
        swap.finish(options.state_dir)
        made_us = wall_us(SystemClock(0))
        with tempfile.TemporaryDirectory(prefix="backup-", dir=options.state_dir / "run") as scratch:
            copy = Path(scratch) / "copy"
            snapshot.make(options.state_dir, copy, bar)
            return _pack(options, copy, made_us, bar)


def _pack(options: Namespace, copy: Path, made_us: int, bar: Bar) -> tuple[Path, Manifest]:
    about = restore.about(copy, __version__, made_us)
    if not about.issuer:
        raise Failure(f"the node in {options.state_dir} has no identity yet", next_step="aun-edge init")
    moment = datetime.fromtimestamp(made_us / 1e6, UTC).strftime("%Y%m%dT%H%M%SZ")
    file = options.file or Path(f"aun-edge-{about.issuer}-{moment}.backup")
    return file, archive.write(copy, about, file, bar)


def verify(options: Namespace) -> int:
    """Every byte of it."""
    beside = options.file.absolute().parent
    place = beside if os.access(beside, os.W_OK) else None  # the usual place for such files may be small
    with (
        _failures(options.file),
        Bar(sys.stderr) as bar,
        tempfile.TemporaryDirectory(prefix=".aun-edge-verify-", dir=place) as scratch,
    ):
        made = restore.verify(options.file, Path(scratch), MIGRATIONS, bar)
    if options.json:
        show.as_json(_facts(made))
    else:
        facts = {name: value for name, value in _facts(made).items() if name not in ("made_us", "migrations")}
        show.facts({**facts, "made": show.moment(made.made_us)})
        print("the backup is good")
    return Exit.OK


def restore_(options: Namespace) -> int:
    """The present state goes to quarantine, the backup's comes in its place."""
    state_dir: Path = options.state_dir
    for folder in (state_dir, state_dir / "run"):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with _locked(state_dir), _failures(options.file):
        swap.finish(state_dir)
        if not options.force and any((state_dir / name).exists() for name in ("identity/pki", "store/node.db")):
            why = f"there is a node in {state_dir}; a restore replaces it"
            again = f"aun-edge backup restore --force {options.file} --state-dir {state_dir}"
            raise Failure(why, next_step=f"{again} keeps it in quarantine")
        with Bar(sys.stderr) as bar:
            done = restore.restore(options.file, state_dir, MIGRATIONS, bar)
    if options.json:
        show.as_json(done)
        return Exit.OK
    print(f"{done.issuer} is as it was at {show.moment(done.made_us)}; numbers go on in incarnation {done.incarnation}")
    if done.aside:
        print(f"the state before is in {done.aside}")
    print("What was revoked or forgotten since must be revoked again; what was added since must be added again;")
    print("an agent that changed its key since must be revoked and added.")
    print(f"  next: aun-edge run --state-dir {state_dir}")
    return Exit.OK


def _facts(made: Manifest) -> dict[str, Any]:
    facts: dict[str, Any] = msgspec.to_builtins(made)
    return {**facts, "files": len(made.files), "bytes": made.octets}


@contextmanager
def _locked(state_dir: Path) -> Iterator[None]:
    """As the node of this directory."""
    try:
        lock = StateLock(state_dir / "run" / "lock")
    except DirectoryInUse:
        why = f"a node runs on {state_dir}"
        raise Failure(why, next_step="stop it first; if it does not answer: aun-edge doctor") from None
    except FileNotFoundError:
        raise Failure(f"there is no node in {state_dir}", next_step="name its directory with --state-dir") from None
    try:
        yield
    finally:
        lock.close()


@contextmanager
def _failures(file: Path | None, *, writes: bool = False) -> Iterator[None]:
    """What went wrong, in words; `writes` when the file is to be made."""
    try:
        yield
    except Damaged as error:
        raise Failure(f"{file} is not used: {error}", next_step="take another backup") from None
    except FileExistsError as error:
        raise Failure(f"{error}", next_step="name another file") from None
    except PermissionError:
        raise
    except FileNotFoundError as error:
        if file is None or file.exists():
            raise Failure(f"{file or 'the backup'}: {error}", next_step="aun-edge doctor") from None
        if not file.absolute().parent.is_dir():
            raise Failure(f"there is no directory {file.parent}", next_step="make it, or name another") from None
        if writes:
            raise Failure(f"{file} cannot be made there", next_step="name another place") from None
        raise Failure(
            f"there is no file {file}", next_step="name the one that `aun-edge backup create` wrote"
        ) from None
    except IsADirectoryError:
        raise Failure(f"{file} is a directory", next_step="name the file of a backup") from None
    except OSError as error:
        raise Failure(f"{file or 'the backup'}: {error.strerror or error}", next_step="aun-edge doctor") from None
