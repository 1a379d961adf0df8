"""CPU of our MQTT engine per delivered message beside Debian's Mosquitto, the same load on both, interleaved.

Ours answers with password, ACL and a sink that keeps every message; Mosquitto lets everybody do everything. The
generator runs on one core, the broker on the other.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SECONDS = os.environ.get("AUN_EDGE_BENCH_MQTT_SECONDS", "2")
ROUNDS = int(os.environ.get("AUN_EDGE_BENCH_MQTT_ROUNDS", "3"))
MOSQUITTO = shutil.which("mosquitto") or "/usr/sbin/mosquitto"

SPARSE = ("--window", "50", "--inflight", "1")
LOADS: tuple[tuple[str, tuple[str, ...], str, float, str], ...] = (
    ("1 to 1, QoS 0, 64 B, bursts", ("--scenario", "p2p", "--qos", "0"), "us_per_out", 0.5, "bursts ≤ 0.5 ×"),
    ("1 to 1, QoS 0, 1 KiB, bursts", ("--scenario", "p2p", "--size", "1024"), "us_per_out", 0.5, "bursts ≤ 0.5 ×"),
    ("50 to 1, QoS 0, 64 B, bursts", ("--scenario", "fanin"), "us_per_out", 0.5, "bursts ≤ 0.5 ×"),
    ("1 to 50, QoS 0, 64 B, per copy", ("--scenario", "fanout"), "us_per_out", 0.5, "fan-out ≤ 0.5 ×"),
    ("1 to 1, QoS 1, 64 B, bursts", ("--scenario", "p2p", "--qos", "1"), "us_per_out", 0.5, "bursts ≤ 0.5 ×"),
    ("50 to 1, QoS 1, 64 B, bursts", ("--scenario", "fanin", "--qos", "1"), "us_per_out", 0.5, "bursts ≤ 0.5 ×"),
    ("1 to 50, QoS 1, 64 B, per copy", ("--scenario", "fanout", "--qos", "1"), "us_per_out", 0.5, "fan-out ≤ 0.5 ×"),
    ("50 to 1, QoS 0, one per wake-up", ("--scenario", "fanin", *SPARSE), "us_per_out", 1.5, "sparse ≤ 1.5 ×"),
    (
        "50 to 1, QoS 1, one per wake-up",
        ("--scenario", "fanin", "--qos", "1", *SPARSE),
        "us_per_out",
        1.5,
        "sparse ≤ 1.5 ×",
    ),
)

Row = dict[str, Any]


def run() -> list[Row]:
    """All figures; the median of the rounds."""
    rows = [_ratio(*load) for load in LOADS]
    with _ours() as (port, pid):
        rows.append(_absolute("KB per idle connection", "KB", _load(port, pid, *_IDLE)["kb_per_conn"], 10, "≤ 10 KB"))
        churn = _load(port, pid, "--scenario", "connect")
        rows.append(_absolute("CPU per connect + disconnect", "µs", churn["cpu_us_each"], 300, "≤ 300 µs"))
    rows.append(_slow_consumer())
    rows.append(_flooded_pair())
    return rows


_IDLE = ("--scenario", "idle", "--connections", "500", "--subscribe")


def _ratio(what: str, load: tuple[str, ...], figure: str, bar: float, words: str) -> Row:
    """One load on both, round by round."""
    mine, theirs = [], []
    with _mosquitto() as (their_port, their_pid), _ours() as (port, pid):
        for _ in range(ROUNDS):
            theirs.append(_load(their_port, their_pid, *load)[figure])
            mine.append(_load(port, pid, *load)[figure])
    value, beside = statistics.median(mine), statistics.median(theirs)
    return {
        "what": what,
        "value": value,
        "unit": "µs",
        "beside": beside,
        "beside_what": "Mosquitto",
        "budget": words,
        "ok": value <= bar * beside,
    }


def _absolute(what: str, unit: str, value: float, bar: float, words: str) -> Row:
    return {"what": what, "value": value, "unit": unit, "budget": words, "ok": value <= bar}


def _load(port: int, pid: int, *arguments: str) -> dict[str, Any]:
    """Run the generator on the other core; what it says."""
    command = [sys.executable, str(HERE / "_mqtt_load.py"), "--port", str(port), "--pid", str(pid)]
    command += ["--user", "bench", "--password", "bench", "--duration", SECONDS, *arguments]
    with _on_core(1, command, stdout=subprocess.PIPE) as process:
        out, _ = process.communicate(timeout=120)
    found: dict[str, Any] = json.loads(out)
    if "error" in found:
        raise RuntimeError(found["error"])
    return found


@contextlib.contextmanager
def _on_core(core: int, command: list[str], **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(command, **options)
    cores = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(process.pid, {cores[core % len(cores)]})
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(10)
        if process.stdout is not None:
            process.stdout.close()


@contextlib.contextmanager
def _ours() -> Iterator[tuple[int, int]]:
    folder = tempfile.mkdtemp(prefix="bench-mqtt-")
    environment = {**os.environ, "PYTHONPATH": str(HERE.parent.parent)}
    command = [sys.executable, str(HERE / "_mqtt_server.py"), folder]
    try:
        with _on_core(0, command, stdout=subprocess.PIPE, env=environment) as process:
            assert process.stdout is not None
            yield int(process.stdout.readline()), process.pid
    finally:
        shutil.rmtree(folder)


@contextlib.contextmanager
def _mosquitto() -> Iterator[tuple[int, int]]:
    """Debian's, unlimited in flight and in queues: with its defaults it drops what the generator waits for."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as conf:
        conf.write(f"listener {port} 127.0.0.1\nallow_anonymous true\n")
        conf.write("max_inflight_messages 0\nmax_queued_messages 0\n")
        conf.flush()
        with _on_core(0, [MOSQUITTO, "-c", conf.name], stderr=subprocess.DEVNULL) as process:
            _wait_for(port)
            yield port, process.pid


def _wait_for(port: int) -> None:
    until = time.monotonic() + 5
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
            return
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.02)


def _slow_consumer() -> Row:
    """Memory that a subscriber costs which never reads: 2 000 messages of 1 KiB a second for 8 s."""
    with _ours() as (port, pid):
        with _client(port, "slow") as slow:
            slow.sendall(b"\x82\x0b\x00\x01\x00\x06slow/+\x00")
            _read(slow, 5)
            before = _rss_kb(pid)
            _load(
                port,
                pid,
                "--scenario",
                "p2p",
                "--size",
                "1024",
                "--rate",
                "2000",
                "--duration",
                "8",
                "--prefix",
                "slow/",
            )
            grown = (_rss_kb(pid) - before) / 1024
    return _absolute("memory grown by a slow consumer", "MB", round(grown, 1), 8, "≤ 8 MB")


def _flooded_pair() -> Row:
    """Round trips of a quiet pair while another client floods: the 99th percentile, on both brokers."""
    with _mosquitto() as (port, _):
        beside = _trips(port)
    with _ours() as (port, _):
        row = _absolute("quiet pair beside a flood, p99", "ms", _trips(port), 50, "≤ 50 ms")
    return {**row, "beside": beside, "beside_what": "Mosquitto"}


def _trips(port: int) -> float:
    """Milliseconds."""
    with _client(port, "quiet") as quiet:
        quiet.sendall(b"\x82\x08\x00\x01\x00\x03q/q\x00")
        _read(quiet, 5)
        command = [sys.executable, str(HERE / "_mqtt_load.py"), "--port", str(port), "--user", "bench"]
        command += ["--password", "bench", "--scenario", "blast", "--duration", "4"]
        with _on_core(1, command, stdout=subprocess.PIPE):
            time.sleep(0.5)
            trips = []
            for _ in range(150):
                began = time.perf_counter()
                quiet.sendall(b"\x30\x06\x00\x03q/qx")
                _read(quiet, 8)
                trips.append(time.perf_counter() - began)
                time.sleep(0.02)
    return round(sorted(trips)[int(len(trips) * 0.99)] * 1000, 1)


@contextlib.contextmanager
def _client(port: int, name: str) -> Iterator[socket.socket]:
    with socket.create_connection(("127.0.0.1", port), timeout=10) as sock:
        body = b"\x00\x04MQTT\x04\xc2\x00\x00" + bytes((0, len(name))) + name.encode() + b"\x00\x05bench\x00\x05bench"
        sock.sendall(b"\x10" + bytes((len(body),)) + body)
        assert _read(sock, 4) == b"\x20\x02\x00\x00"
        yield sock


def _read(sock: socket.socket, octets: int) -> bytes:
    found = b""
    while len(found) < octets:
        part = sock.recv(octets - len(found))
        if not part:
            raise ConnectionError("closed")
        found += part
    return found


def _rss_kb(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1])
    raise ProcessLookupError(pid)
