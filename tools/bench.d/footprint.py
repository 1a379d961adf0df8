"""What the node takes before it does anything: import time, cold start, memory, installed size.

Memory is read `AUN_EDGE_BENCH_SECONDS` (60) after the ready line, beside a process that imports the same libraries.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.support.process import NodeProcess

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = (
    "asyncio sqlite3 ssl logging.handlers msgspec starlette.applications starlette.routing uvicorn uvicorn.config "
    "uvicorn.server httptools websockets.server uvloop cryptography.x509 cryptography.hazmat.primitives.asymmetric.ec"
)
"""The bare import set: what the node stands on, doing nothing."""

IDLE = "import sys, time, {modules}; print('ready', flush=True); sys.stdin.read()"

Row = dict[str, Any]


def run() -> list[Row]:
    """All figures."""
    seconds = float(os.environ.get("AUN_EDGE_BENCH_SECONDS", "60"))
    with tempfile.TemporaryDirectory() as scratch:
        return [*_imports(), *_starts_and_memory(Path(scratch), seconds), *_size(Path(scratch))]


def _imports() -> list[Row]:
    bare = _fastest("import " + ", ".join(LIBRARIES.split()))
    node = _fastest("import edge.node")
    return [{"what": "import edge.node", "value": node, "unit": "ms", "beside": bare, "beside_what": "bare import set"}]


def _fastest(script: str, times: int = 7) -> float:
    """ms of the fastest run, interpreter start taken off."""

    def once(text: str) -> float:
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", text], check=True, cwd=ROOT)
        return (time.perf_counter() - began) * 1000

    return min(once(script) for _ in range(times)) - min(once("pass") for _ in range(times))


def _starts_and_memory(scratch: Path, seconds: float) -> list[Row]:
    node = NodeProcess(scratch / "state")
    first = node.start() * 1000
    node.stop()
    starts = []
    for _ in range(5):
        starts.append(node.start() * 1000)
        node.stop()
    with node, _idle() as bare:
        asked = min(_seconds(lambda: node.cli("status")) for _ in range(7)) * 1000
        time.sleep(seconds)
        ours, theirs = _memory(node.pid), _memory(bare.pid)
    warm = min(starts)
    rows: list[Row] = [
        {"what": "first start to ready (makes keys and databases)", "value": first, "unit": "ms"},
        {"what": "cold start to ready", "value": warm, "unit": "ms", "budget": "≤ 800 ms", "ok": warm <= 800},
        {"what": "aun-edge status", "value": asked, "unit": "ms", "budget": "≤ 150 ms", "ok": asked <= 150},
    ]
    for name, budget in (("private", 42), ("rss", 62), ("pss", 0)):
        row = {"what": f"{name} memory after {seconds:.0f} s idle", "value": ours[name], "unit": "MiB"}
        row |= {"beside": theirs[name], "beside_what": "bare import set"}
        if budget:
            row |= {"budget": f"≤ {budget} MB", "ok": ours[name] * 1.048576 <= budget}
        rows.append(row)
    return rows


def _seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


def _idle() -> subprocess.Popen[bytes]:
    modules = ", ".join(LIBRARIES.split())
    process = subprocess.Popen(
        [sys.executable, "-c", IDLE.format(modules=modules)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def _memory(pid: int) -> dict[str, float]:
    """MiB of a process: private (clean + dirty), resident, proportional."""
    found = {}
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
        name, _, rest = line.partition(":")
        found[name] = int(rest.split()[0]) / 1024
    return {"private": found["Private_Clean"] + found["Private_Dirty"], "rss": found["Rss"], "pss": found["Pss"]}


def _size(scratch: Path) -> list[Row]:
    """A virtual environment without extras, and what of it is not Python's own installer."""
    venv = scratch / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    source = scratch / "source"
    shutil.copytree(ROOT / "edge", source / "edge", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, source)
    install = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(source)]
    subprocess.run([str(venv / "bin" / "python"), *install], check=True, stderr=subprocess.DEVNULL)
    whole = _octets(venv)
    tools = sum(
        _octets(path) for path in venv.glob("lib/*/site-packages/*") if path.name.startswith(("pip", "setuptools"))
    )
    return [
        {"what": "virtual environment without extras", "value": whole / 1e6, "unit": "MB"},
        {"what": "of it the node and its libraries", "value": (whole - tools) / 1e6, "unit": "MB"},
    ]


def _octets(path: Path) -> int:
    return sum(one.stat().st_size for one in path.rglob("*") if one.is_file() and not one.is_symlink())
