"""Backups read back: check a copy of a node's state, give it a new incarnation, put it in place (design D18)."""

from __future__ import annotations

import errno
import shutil
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import msgspec

from edge.contract.gap import Gap
from edge.contract.store import INCARNATION_SHIFT
from edge.contract.time import Clock
from edge.store import archive, migrate, opening, snapshot, swap
from edge.store.archive import About, Damaged, Manifest
from edge.store.connection import open_reader, open_writer
from edge.store.keyring import Identity, IdentityError
from edge.store.marks import Mark, Marks, kernel_boot_id
from edge.store.migration import Migration
from edge.store.snapshot import DATABASES, FOLDERS, Progress
from edge.store.swap import give_to_owner
from edge.store.unit import WriteUnit
from edge.system.clock import SystemClock
from edge.system.files import sync_directory

REASON = "restored"
ROOM = 64 << 20
"""Bytes that stay free beside an unpacked copy."""
MOST_INCARNATIONS = (1 << 53 - INCARNATION_SHIFT) - 1


class Restored(msgspec.Struct, frozen=True):
    """What came of a restore; `aside` is where the state before it lies ("": there was none)."""

    issuer: str
    version: str
    made_us: int
    incarnation: int
    aside: str


def about(copy: Path, version: str, made_us: int) -> About:
    """What a manifest says beside the names of the files. Raises `OSError`."""
    issuer = copy / "identity" / "pki" / "issuer"
    databases = {name: copy / "store" / f"{name}.db" for name in DATABASES}
    return About(
        version=version,
        issuer=issuer.read_text().strip() if issuer.exists() else "",
        made_us=made_us,
        incarnation=_incarnation(copy),
        migrations={name: _seen(path) for name, path in databases.items() if path.exists()},
    )


def _seen(path: Path) -> list[str]:
    try:
        return _migrations(path)
    except sqlite3.Error as error:
        raise OSError(errno.EIO, f"{path.name} cannot be read: {error}") from None


def check(copy: Path, manifest: Manifest, known: Sequence[Migration]) -> None:
    """Can a node of this release start with this copy? Reads every page. Raises `Damaged`.

    `known` are the migrations of this release.
    """
    try:
        identity = Identity(copy / "identity" / "pki", 0)
    except IdentityError as error:
        raise Damaged(f"its identity cannot be used: {error}") from None
    if identity.issuer != manifest.issuer:
        raise Damaged(f"its identity is {identity.issuer}, its manifest says {manifest.issuer}")
    for name in DATABASES:
        path = copy / "store" / f"{name}.db"
        if not path.exists():
            continue
        try:
            verdict = _integrity(path)
            _check_release(path, name, known)
        except sqlite3.DatabaseError as error:
            raise Damaged(f"{path.name} cannot be read: {error}") from None
        if verdict != "ok":
            raise Damaged(f"{path.name} is damaged: {verdict}")


def verify(file: Path, scratch: Path, known: Sequence[Migration], progress: Progress) -> Manifest:
    """Unpack an archive into the empty folder `scratch` and check it. Raises `Damaged`; `OSError` without room."""
    _room_for(archive.read_manifest(file), scratch)
    manifest = archive.extract(file, scratch, progress)
    check(scratch, manifest, known)
    return manifest


def restore(file: Path, state_dir: Path, known: Sequence[Migration], progress: Progress) -> Restored:
    """Put an archive's state in place; the caller holds the lock of the state directory. Blocks.

    Raises `Damaged`; `OSError` when there is no room. Either way the state is the old one then.
    """
    staging = state_dir / swap.STAGING
    shutil.rmtree(staging, ignore_errors=True)
    staging.mkdir(mode=0o700)
    try:
        manifest = verify(file, staging, known, progress)
        for name in ("store", *FOLDERS):
            (staging / name).mkdir(mode=0o700, exist_ok=True)
        incarnation = _begin_anew(staging, state_dir, manifest)
        (staging / swap.ASIDE).write_text(_aside(state_dir))
        give_to_owner(staging, state_dir)
        snapshot.sync_tree(staging)
        staging.rename(state_dir / swap.READY)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    sync_directory(state_dir)
    aside = swap.finish(state_dir)
    return Restored(manifest.issuer, manifest.version, manifest.made_us, incarnation, str(aside or ""))


def _begin_anew(staging: Path, state_dir: Path, manifest: Manifest) -> int:
    """A higher incarnation than this state or the present one ever had, and the gap in both ledgers."""
    marks = Marks.load(staging / "identity" / "incarnation")
    incarnation = marks.bump(max(manifest.incarnation, _incarnation(staging), _incarnation(state_dir)))
    if incarnation > MOST_INCARNATIONS:
        raise Damaged(f"its incarnation {manifest.incarnation} is the last one that numbers have room for")
    clock = SystemClock(marks.begin_boot(kernel_boot_id()))
    for name in DATABASES:
        path = staging / "store" / f"{name}.db"
        if path.exists():
            marks.put(name, _numbered(path, name, incarnation, clock, manifest))
    return incarnation


def _numbered(path: Path, name: str, incarnation: int, clock: Clock, manifest: Manifest) -> Mark:
    conn = open_writer(path)
    try:
        generation = opening.get(conn, "generation") + 1
        conn.execute("BEGIN IMMEDIATE")
        opening.put(conn, "incarnation", incarnation)
        opening.put(conn, "generation", generation)
        at = clock.now()
        WriteUnit(conn, at, clock, incarnation).lose(Gap("*", name, 0, 0, 1, REASON, "backup", at))
        conn.execute("COMMIT")
        conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    except sqlite3.Error as error:
        raise OSError(errno.EIO, f"{path.name}: {error}") from None
    finally:
        conn.close()
    return Mark(generation, clean=True)


def _incarnation(folder: Path) -> int:
    """The highest incarnation that a state directory knows of, in its file or in its databases."""
    try:
        file = msgspec.json.decode((folder / "identity" / "incarnation").read_bytes())
        found = [int(file["incarnation"])]
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, KeyError, TypeError, ValueError):
        found = [0]
    for name in DATABASES:
        path = folder / "store" / f"{name}.db"
        if path.exists():
            found.append(_number(path))
    return max(found)


def _number(path: Path) -> int:
    try:
        conn = open_reader(path)
        try:
            return opening.get(conn, "incarnation")
        finally:
            conn.close()
    except sqlite3.Error:  # a damaged file is one reason to restore
        return 0


def _integrity(path: Path) -> str:
    conn = open_reader(path)
    try:
        [(verdict,)] = conn.execute("PRAGMA integrity_check(1)").fetchall()
        return str(verdict)
    finally:
        conn.close()


def _check_release(path: Path, name: str, known: Sequence[Migration]) -> None:
    conn = open_reader(path)
    try:
        migrate.check(conn, known, name)
    except migrate.Unusable as error:
        raise Damaged(str(error).partition("\n")[0]) from None
    finally:
        conn.close()


def _migrations(path: Path) -> list[str]:
    conn = open_reader(path)
    try:
        return sorted(migrate.seen(conn))
    finally:
        conn.close()


def _aside(state_dir: Path) -> str:
    """A name in the quarantine that nobody has yet."""
    number = 1
    while (state_dir / "quarantine" / f"before-restore-{number}").exists():
        number += 1
    return f"before-restore-{number}"


def _room_for(manifest: Manifest, folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < manifest.octets + ROOM:
        wanted = f"{(manifest.octets + ROOM) >> 20} MiB are needed, {free >> 20} MiB are free"
        raise OSError(errno.ENOSPC, wanted, str(folder))
