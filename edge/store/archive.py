"""One file that holds a copy of a node's state: a gzipped tar whose first member names every other with its SHA-256.

The manifest comes first, so that a reader knows what must follow before it writes anything; whatever is not exactly
that is `Damaged`. The file holds every key of the node: it is made 0600 and belongs where keys belong.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import os
import tarfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO

import msgspec

from edge.contract.errors import EdgeError
from edge.contract.wire import JsonLimits, decode, dumps, loads
from edge.store.snapshot import DATABASES, FILES, FOLDERS, Progress
from edge.system.files import sync_directory

FORMAT = 1
MANIFEST = "manifest.json"
MANIFEST_OCTETS = 4 << 20
ENTRIES = 10_000
CHUNK = 1 << 18
PADDING = 1 << 16
"""More than this follows no last member of a tar."""
_TOP = frozenset((*FILES, *(f"store/{name}.db" for name in DATABASES)))
_LEVEL = 1
"""Compression: most of what it can save for a fifth of the time."""


class Damaged(Exception):
    """The archive is not what it says it is, or nothing that this release can read: says what and where."""


class Entry(msgspec.Struct, frozen=True):
    """One file of the archive. `name` is its path in the state directory."""

    name: str
    size: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What an archive is. `made_us` is µs since 1970 UTC; `migrations` are those that each database had seen."""

    format: int
    version: str
    issuer: str
    made_us: int
    incarnation: int
    migrations: dict[str, list[str]]
    files: list[Entry]

    @property
    def octets(self) -> int:
        """Bytes of all files, unpacked."""
        return sum(entry.size for entry in self.files)


class About(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a manifest that the files themselves do not tell."""

    version: str
    issuer: str
    made_us: int
    incarnation: int
    migrations: dict[str, list[str]]


def write(folder: Path, about: About, to: Path, progress: Progress) -> Manifest:
    """Pack a snapshot. `to` appears whole and durable, or not at all; it is never overwritten. Blocks.

    Raises `OSError` (`FileExistsError`).
    """
    if to.exists():
        raise FileExistsError(f"{to} is already there")
    names = sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())
    entries = [_entry(folder / name, name, progress) for name in names if _belongs(name)]
    facts = msgspec.structs.asdict(about)
    manifest = Manifest(format=FORMAT, files=entries, **facts)
    fresh = to.with_name(f".{to.name}.{os.getpid()}.new")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            _pack(file, folder, manifest, progress)
            file.flush()
            os.fsync(file.fileno())
        os.link(fresh, to)  # unlike a rename it never replaces what somebody else has put there meanwhile
    finally:
        fresh.unlink(missing_ok=True)
    sync_directory(to.parent)
    return manifest


def _entry(path: Path, name: str, progress: Progress) -> Entry:
    digest, size = hashlib.sha256(), path.stat().st_size
    done = 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            done += len(chunk)
            progress(f"reading {name}", done, size)
    return Entry(name, done, digest.hexdigest())


def _pack(file: IO[bytes], folder: Path, manifest: Manifest, progress: Progress) -> None:
    with tarfile.open(fileobj=file, mode="w:gz", compresslevel=_LEVEL, format=tarfile.USTAR_FORMAT) as tar:
        raw = dumps(manifest)
        tar.addfile(_member(MANIFEST, len(raw)), io.BytesIO(raw))
        done = 0
        for entry in manifest.files:
            with (folder / entry.name).open("rb") as source:
                tar.addfile(_member(entry.name, entry.size), source)
            done += entry.size
            progress("packing", done, manifest.octets)


def _member(name: str, size: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mode = size, 0o600
    return member


def read_manifest(file: Path) -> Manifest:
    """What an archive says it is. Raises `Damaged`, `OSError`."""
    with _reading(file) as (tar, _):
        return _manifest(tar)


def extract(file: Path, to: Path, progress: Progress) -> Manifest:
    """Unpack into the empty folder `to`, comparing every byte with the manifest. Blocks.

    Raises `Damaged`; `OSError` when `to` cannot be written.
    """
    with _reading(file) as (tar, rest):
        manifest = _manifest(tar)
        done = 0
        for entry in manifest.files:
            _unpack(tar, entry, to)
            done += entry.size
            progress("unpacking", done, manifest.octets)
        if tar.next() is not None or len(rest.read(PADDING)) == PADDING:  # at its end gzip compares its checksum
            raise Damaged("it holds more than its manifest names")
    return manifest


@contextmanager
def _reading(file: Path) -> Iterator[tuple[tarfile.TarFile, gzip.GzipFile]]:
    """The members, one after the other, and the stream below them. What either finds wrong is `Damaged`."""
    with file.open("rb") as source:
        try:
            with gzip.GzipFile(fileobj=source) as rest, tarfile.open(fileobj=rest, mode="r|") as tar:
                yield tar, rest
        except (tarfile.TarError, zlib.error, EOFError, gzip.BadGzipFile) as error:
            raise Damaged(f"it is no backup, or damaged: {error}") from None


def _manifest(tar: tarfile.TarFile) -> Manifest:
    member = tar.next()
    if member is None or member.name != MANIFEST or not member.isreg() or member.size > MANIFEST_OCTETS:
        raise Damaged("it does not begin with a manifest")
    source = tar.extractfile(member)
    raw = source.read(MANIFEST_OCTETS) if source is not None else b""
    try:
        loads(raw, JsonLimits(octets=MANIFEST_OCTETS))
        manifest = decode(raw, Manifest)
    except EdgeError as error:
        raise Damaged(f"its manifest cannot be read: {error.message}") from None
    if manifest.format != FORMAT:
        raise Damaged(f"it has format {manifest.format}; this release reads {FORMAT}")
    if len(manifest.files) > ENTRIES:
        raise Damaged(f"its manifest names over {ENTRIES} files")
    for entry in manifest.files:
        _check_name(entry)
    return manifest


def _check_name(entry: Entry) -> None:
    if not _belongs(entry.name) or entry.size < 0:
        raise Damaged(f"its manifest names {entry.name[:80]!r}, which is no part of a node")


def _belongs(name: str) -> bool:
    """Is this the path of a part of a node's state? (A database's helper files are none.)"""
    parts = PurePosixPath(name).parts
    return name in _TOP or (len(parts) > 1 and parts[0] in FOLDERS and ".." not in parts)


def _unpack(tar: tarfile.TarFile, entry: Entry, to: Path) -> None:
    member = tar.next()
    if member is None or member.name != entry.name or not member.isreg() or member.size != entry.size:
        raise Damaged(f"{entry.name} is missing, or not what the manifest says")
    source = tar.extractfile(member)
    if source is None:
        raise Damaged(f"{entry.name} has no content")
    path = to / entry.name
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    digest, left = hashlib.sha256(), entry.size
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        while left and (chunk := source.read(min(CHUNK, left))):
            digest.update(chunk)
            file.write(chunk)
            left -= len(chunk)
    if left or digest.hexdigest() != entry.sha256:
        raise Damaged(f"{entry.name} has another checksum than the manifest says")
