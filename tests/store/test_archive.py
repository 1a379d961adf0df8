from __future__ import annotations

import gzip
import io
import json
import os
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from edge.store import archive
from edge.store.archive import About, Damaged, Manifest

SEED = os.urandom(40_000)
ABOUT = About(version="0.1", issuer="edge.test", made_us=7, incarnation=2, migrations={"node": ["meta-001"]})


def silent(name: str, done: int, total: int) -> None:
    pass


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of a node's state, as far as an archive is concerned."""
    made = tmp_path / "copy"
    for name, content in {"identity/pki/seed": SEED, "store/node.db": b"rows" * 9000, "ports.json": b"{}"}.items():
        (made / name).parent.mkdir(parents=True, exist_ok=True)
        (made / name).write_bytes(content)
    return made


@pytest.fixture
def packed(folder: Path, tmp_path: Path) -> Path:
    archive.write(folder, ABOUT, tmp_path / "a.backup", silent)
    return tmp_path / "a.backup"


def unpack(file: Path, to: Path) -> Manifest:
    to.mkdir()
    return archive.extract(file, to, silent)


def test_what_was_packed_comes_out_again(packed: Path, folder: Path, tmp_path: Path) -> None:
    manifest = unpack(packed, tmp_path / "out")
    assert (manifest.issuer, manifest.incarnation, manifest.migrations) == ("edge.test", 2, {"node": ["meta-001"]})
    assert [entry.name for entry in manifest.files] == ["identity/pki/seed", "ports.json", "store/node.db"]
    for entry in manifest.files:
        assert (tmp_path / "out" / entry.name).read_bytes() == (folder / entry.name).read_bytes()
        assert (tmp_path / "out" / entry.name).stat().st_mode & 0o777 == 0o600
    assert packed.stat().st_mode & 0o777 == 0o600
    assert archive.read_manifest(packed) == manifest


def test_helper_files_of_a_database_stay_out(folder: Path, tmp_path: Path) -> None:
    (folder / "store" / "node.db-shm").write_bytes(b"x")
    manifest = archive.write(folder, ABOUT, tmp_path / "b.backup", silent)
    assert "store/node.db-shm" not in [entry.name for entry in manifest.files]


def test_an_existing_file_is_never_overwritten(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    with pytest.raises(FileExistsError):
        archive.write(folder, ABOUT, tmp_path / "mine", silent)
    assert (tmp_path / "mine").read_text() == "precious"


def test_a_pack_that_fails_leaves_nothing(folder: Path, tmp_path: Path) -> None:
    def fail(name: str, done: int, total: int) -> None:
        if name == "packing":
            raise OSError("no room")

    with pytest.raises(OSError, match="no room"):
        archive.write(folder, ABOUT, tmp_path / "c.backup", fail)
    assert [path.name for path in tmp_path.iterdir()] == ["copy"]


def test_every_flipped_byte_is_noticed_or_harmless(packed: Path, folder: Path, tmp_path: Path) -> None:
    whole, noticed = packed.read_bytes(), 0
    places = range(0, len(whole), len(whole) // 60)
    for number, place in enumerate(places):
        packed.write_bytes(whole[:place] + bytes([whole[place] ^ 0x55]) + whole[place + 1 :])
        try:
            unpack(packed, tmp_path / f"flipped-{number}")
        except Damaged:
            noticed += 1
        else:
            assert (tmp_path / f"flipped-{number}" / "identity/pki/seed").read_bytes() == SEED
    assert noticed > len(places) * 0.9


@pytest.mark.parametrize("part", [0, 1, 10, 1000, 20_000, -1])
def test_a_shortened_file_is_noticed(packed: Path, tmp_path: Path, part: int) -> None:
    packed.write_bytes(packed.read_bytes()[:part])
    with pytest.raises(Damaged):
        unpack(packed, tmp_path / "out")


def remade(file: Path, change: Callable[[dict[str, Any], dict[str, bytes]], None]) -> None:
    """The archive again, with its manifest and its files changed by somebody who knows the format."""
    with tarfile.open(file) as tar:
        files = {member.name: (tar.extractfile(member) or io.BytesIO()).read() for member in tar}
    manifest = json.loads(files.pop("manifest.json"))
    change(manifest, files)
    with gzip.open(file, "wb") as out, tarfile.open(fileobj=out, mode="w") as tar:  # type: ignore[arg-type]
        for name, content in {"manifest.json": json.dumps(manifest).encode(), **files}.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))


def renamed(to: str) -> Callable[[dict[str, Any], dict[str, bytes]], None]:
    def change(manifest: dict[str, Any], files: dict[str, bytes]) -> None:
        manifest["files"][0]["name"] = to
        first = next(iter(files))
        content = {name if name != first else to: body for name, body in files.items()}
        files.clear()
        files.update(content)

    return change


@pytest.mark.parametrize(
    "name", ["../escape", "identity/../../escape", "/etc/passwd", "run/ctl.sock", "identity", "store/other.db", ""]
)
def test_a_name_that_is_no_part_of_a_node_is_refused(packed: Path, tmp_path: Path, name: str) -> None:
    remade(packed, renamed(name))
    with pytest.raises(Damaged):
        unpack(packed, tmp_path / "out")
    assert not (tmp_path / "escape").exists()
    assert list((tmp_path / "out").iterdir()) == []


def _swap(manifest: dict[str, Any], files: dict[str, bytes]) -> None:
    files["ports.json"] = b"[]"


def _missing(manifest: dict[str, Any], files: dict[str, bytes]) -> None:
    del files["store/node.db"]


def _more(manifest: dict[str, Any], files: dict[str, bytes]) -> None:
    files["identity/extra"] = b"x"


def _format(manifest: dict[str, Any], files: dict[str, bytes]) -> None:
    manifest["format"] = 2


def _shape(manifest: dict[str, Any], files: dict[str, bytes]) -> None:
    manifest["files"] = "all"


def _many(manifest: dict[str, Any], files: dict[str, bytes]) -> None:
    manifest["files"] *= 4000


@pytest.mark.parametrize("change", [_swap, _missing, _more, _format, _shape, _many])
def test_a_file_that_is_not_exactly_its_manifest_is_refused(packed: Path, tmp_path: Path, change: Any) -> None:
    remade(packed, change)
    with pytest.raises(Damaged):
        unpack(packed, tmp_path / "out")


def test_something_else_is_no_backup(tmp_path: Path) -> None:
    (tmp_path / "photo").write_bytes(os.urandom(5000))
    with pytest.raises(Damaged, match="no backup"):
        archive.read_manifest(tmp_path / "photo")
    with tarfile.open(tmp_path / "other.tgz", "w:gz") as tar:
        tar.addfile(tarfile.TarInfo("README"))
    with pytest.raises(Damaged, match="does not begin with a manifest"):
        archive.read_manifest(tmp_path / "other.tgz")
