"""A write-ahead log with a damaged place: what that hides, and what is done with the log before anybody writes.

SQLite takes the first frame that it cannot verify for the end of the log and says ok; what lies behind it is in
`edge.store.wal`. Such a log is copied to `<state>/quarantine/`; where the database is better off without it, it is
moved there.
"""

from __future__ import annotations

import logging
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

from edge.store import wal
from edge.store.connection import PAGE, primary
from edge.store.room import free
from edge.system.files import sync_directory

logger = logging.getLogger(__name__)

CHECK_OCTETS = 32 << 20
"""A larger file is not read whole after an unclean stop: the start must stay quick. Damage shows when it is read."""
KEEP_FREE_OCTETS = 16 << 20
"""A copy of a damaged log leaves so much room to the node that is to start."""


class Damage(NamedTuple):
    """What damage to a log does: it hides so many commits (0: none, or unknown). `aside`: the database is better off
    without it; `spared`: none of them is lost, the database has them all."""

    commits: int = 0
    aside: bool = False
    spared: bool = False


def look(path: Path) -> Damage:
    """What a damaged place of a file's log hides, before anybody opens the file."""
    try:
        done = wal.brought_in(path)
        frames = _readable(path)
        cut = wal.cut_off(path, frames, PAGE)
    except (OSError, sqlite3.Error) as error:
        logger.debug("%s: its log cannot be looked at: %s", path.name, error)
        return Damage()
    if done == cut.log and done.frames > frames:
        return Damage(max(1, cut.commits), aside=True, spared=True)
    return Damage(cut.commits, aside=cut.commits > 0 and _better_alone(path))


def keep(path: Path, quarantine: Path, stamp: str, damage: Damage) -> Damage:
    """Keep a damaged log in a folder of its own, before anybody writes to it; what of `damage` is so then.

    A copy, when there is room for one; the log itself when the database is better off without it, because with what
    can be read of it SQLite would put old pages in the place of new ones.
    """
    log, folder = Path(f"{path}-wal"), quarantine / f"{path.stem}-log-{stamp}"
    try:
        if not damage.aside and free(path.parent) < log.stat().st_size + KEEP_FREE_OCTETS:
            logger.error("%s: no room for a copy of its damaged log", path.name)
            return damage
        folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        if damage.aside:
            Path(f"{path}-shm").unlink(missing_ok=True)
            log.replace(folder / log.name)
            sync_directory(folder)
            sync_directory(path.parent)
        else:
            shutil.copyfile(log, folder / log.name)
    except OSError as error:
        logger.error("%s: its damaged log cannot be kept: %s", path.name, error)
        return damage if not damage.aside or _dropped(log) else Damage(damage.commits)
    logger.error("%s: its damaged log is in %s", path.name, folder)
    return damage


def _dropped(log: Path) -> bool:
    """A log that nobody needs and that cannot be kept is removed; whether that is done."""
    try:
        log.unlink(missing_ok=True)
    except OSError as error:
        logger.error("%s: it cannot be removed: %s", log.name, error)
        return False
    return True


def bring_in(conn: sqlite3.Connection, path: Path) -> None:
    """Bring in what of a damaged log can be read, and begin it anew: the rest is declared once, not at each start."""
    try:
        conn.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    except sqlite3.Error as error:
        logger.error("%s: its damaged log stays: %s", path.name, error)


def _readable(path: Path) -> int:
    """How many frames of its log SQLite reads. Raises `OSError`, `sqlite3.Error`."""
    index = wal.Index(path)
    try:
        with closing(sqlite3.connect(_uri(path, "mode=ro"), uri=True)) as conn:
            try:
                conn.execute("SELECT count(*) FROM sqlite_master").fetchone()
            except sqlite3.Error as error:
                if primary(error) != sqlite3.SQLITE_CORRUPT:
                    raise
                logger.debug("%s with what can be read of its log: %s", path.name, error)
            return index.state().frames
    finally:
        index.close()


def _uri(path: Path, how: str) -> str:
    return f"{path.absolute().as_uri()}?{how}"


def _better_alone(path: Path) -> bool:
    """Whether a database is sound by itself and not with what can be read of its log: some of what comes later in that
    is in the database already. A large one is not looked at."""
    if path.stat().st_size > CHECK_OCTETS:
        return False
    return not _sound(_uri(path, "mode=ro")) and _sound(_uri(path, "immutable=1"))


def _sound(uri: str) -> bool:
    """Whether SQLite finds nothing wrong. Reads only: a connection that may write brings the log in when it ends."""
    try:
        with closing(sqlite3.connect(uri, uri=True)) as conn:
            return bool(conn.execute("PRAGMA integrity_check(1)").fetchall() == [("ok",)])
    except sqlite3.Error as error:
        logger.debug("%s: %s", uri, error)
        return False
