"""The node's incarnation and a mark per file, kept outside the databases in `identity/incarnation` (design D18).

SQLite says "ok" after losing a WAL. So each file carries a generation (one row, written at checkpoints, at a clean
stop and at most once a minute, never by a hot commit), and this file remembers the newest one, the salts of the WAL
it was written to, how many frames that WAL had, and whether the file was closed cleanly. At start a file whose
generation is behind, whose WAL is gone after an unclean stop, or is shorter than it was, has lost commits that
somebody may have seen: the incarnation goes up by one, so that no number is given out twice, and the gap is
declared. So it is when the WAL is damaged and goes on behind that place (`edge.store.wal`). What a WAL loses otherwise
between two marks, and an older copy of the whole directory, show only when a reader knows a number above our head
(`leap`, see `sightings`).
"""

from __future__ import annotations

import logging
import threading
from pathlib import Path

import msgspec

from edge.store.wal import State
from edge.system.files import write_atomic

log = logging.getLogger(__name__)

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class Mark(msgspec.Struct, frozen=True):
    """What a file was like when it was last known to be whole. `suspect`: its medium has failed since."""

    generation: int
    salt: str = ""
    frames: int = 0
    clean: bool = False
    suspect: bool = False


class Found(msgspec.Struct, frozen=True):
    """What a file is like now. `wal`: was there a WAL file before it was opened? `cut`: how many commits, at least, are
    behind a damaged place of it; `spared`: it was damaged, but the database has all of it."""

    generation: int
    incarnation: int
    state: State
    wal: bool
    cut: int = 0
    spared: bool = False


class _Record(msgspec.Struct):
    incarnation: int = 0
    boot: int = 0
    boot_id: str = ""
    marks: dict[str, Mark] = {}


class Marks:
    """The file `identity/incarnation`. Without a path it is only remembered (tests, tools)."""

    def __init__(self, path: Path | None = None, incarnation: int = 0) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._lost = False
        self._record = _Record(incarnation=incarnation)
        self.begun = -1
        """The incarnation that began in this run because a reader showed a number above our head."""

    @classmethod
    def load(cls, path: Path) -> Marks:
        """Read the file, or begin one. A damaged one counts as lost: the databases know what it said at least."""
        marks = cls(path)
        try:
            marks._record = msgspec.json.decode(path.read_bytes(), type=_Record)
        except FileNotFoundError:
            marks._lost = True
        except (msgspec.MsgspecError, UnicodeDecodeError):
            marks._lost = True
            path.replace(path.with_name(f"{path.name}.damaged"))
        return marks

    @property
    def incarnation(self) -> int:
        """The upper part of every number given out now."""
        return self._record.incarnation

    @property
    def boot(self) -> int:
        """The number of this boot of the box (0 before `begin_boot`)."""
        return self._record.boot

    @property
    def boot_id(self) -> str:
        """The kernel's own name for it."""
        return self._record.boot_id

    def begin_boot(self, boot_id: str) -> int:
        """The number of this boot: one more than the last if the kernel started again since.

        On a full disk it is remembered until the next mark takes it along: nothing can be stamped with it before.
        """
        with self._lock:
            if not boot_id or boot_id != self._record.boot_id or not self._record.boot:
                self._record.boot += 1
                self._record.boot_id = boot_id
                self._try_save()
            return self._record.boot

    def renumber_boot(self, boot: int) -> None:
        """The databases know a later boot than this file did."""
        with self._lock:
            self._record.boot = boot
            self._try_save()

    def doubt(self, name: str, found: Found) -> str:
        """Why file `name` may have lost commits; empty when it has not."""
        mark = self._record.marks.get(name)
        if found.incarnation > self._record.incarnation:
            return "the incarnation file is older than the database"
        if found.cut:
            return "its WAL is damaged"
        if mark is None:
            return "the incarnation file is gone" if self._lost and found.generation else ""
        if found.generation < mark.generation:
            return "the file is behind its mark"
        if mark.clean or found.spared:
            return ""
        if not found.wal:
            return "its WAL is gone"
        if mark.frames and not found.state.frames:
            return "its WAL is empty"
        if found.state.salt.hex() == mark.salt and found.state.frames < mark.frames:
            return "its WAL is shorter than marked"
        return ""

    def mark(self, name: str) -> Mark | None:
        """The mark of file `name`; None before its first one."""
        return self._record.marks.get(name)

    def bump(self, at_least: int = 0) -> int:
        """A new incarnation, on disk when this returns: after restore, salvage or doubt."""
        with self._lock:
            return self._begin(at_least)

    def leap(self, at_least: int) -> int:
        """`bump` because a reader showed a number of incarnation `at_least`. Counts in memory even if it raises."""
        with self._lock:
            self.begun = max(self._record.incarnation, at_least) + 1
            return self._begin(at_least)

    def _begin(self, at_least: int) -> int:
        self._record.incarnation = max(self._record.incarnation, at_least) + 1
        self._save()
        return self._record.incarnation

    def put(self, name: str, mark: Mark) -> None:
        """Remember a mark; on disk when this returns. Blocks."""
        with self._lock:
            self._record.marks[name] = mark
            self._save()

    def _try_save(self) -> None:
        try:
            self._save()
        except OSError as error:
            log.error("the number of this boot cannot be written yet: %s", error)

    def _save(self) -> None:
        if self._path is not None:
            write_atomic(self._path, msgspec.json.encode(self._record) + b"\n")


def kernel_boot_id() -> str:
    """The kernel's name for this boot; empty where it has none."""
    try:
        return BOOT_ID.read_text().strip()
    except OSError:
        return ""
