from __future__ import annotations

import os
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

from edge.cli.sdk_profile import write_sdk_profile

ROOT = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
WS, HTTP = "ws://127.0.0.1:9010/aun", "http://127.0.0.1:9010"


def rows(folder: Path, aid: str) -> dict[str, str]:
    with closing(sqlite3.connect(folder / "AIDs" / aid / "aun.db")) as conn:
        return dict(conn.execute("SELECT key, value FROM metadata_kv"))


def sourced(folder: Path) -> dict[str, str]:
    """What a program started after `. DIR/env` sees."""
    shell = subprocess.run(
        ["/bin/sh", "-c", '. "$1"/env && exec env -0', "sh", str(folder)],
        env={},
        capture_output=True,
        text=True,
        check=True,
    )
    return dict(line.split("=", 1) for line in shell.stdout.split("\0") if "=" in line)


def test_the_profile_has_root_gateway_and_environment(tmp_path: Path) -> None:
    folder = tmp_path / "a profile"
    write_sdk_profile(folder, "alice.edge.test", WS, HTTP, ROOT)
    assert (folder / "CA" / "root" / "trust-roots.pem").read_text() == ROOT
    assert rows(folder, "alice.edge.test") == {"gateway_url": f'"{WS}"'}
    found = sourced(folder)
    assert found["AUN_NAMESERVICE_URL"] == HTTP
    assert found["AUN_DATA_ROOT"] == str(folder)
    assert found["AUN_CLI_CONFIG"] == str(folder / "cli.toml")
    assert "SSL_CERT_FILE" not in found
    assert (folder / "env").stat().st_mode & 0o777 == 0o600


def test_a_second_agent_shares_the_folder_and_a_second_time_moves_the_gateway(tmp_path: Path) -> None:
    root = tmp_path / "root.pem"
    root.write_text(ROOT)
    write_sdk_profile(tmp_path / "p", "alice.edge.test", WS, HTTP, root)
    write_sdk_profile(tmp_path / "p", "bobby.edge.test", WS, HTTP, str(root))
    write_sdk_profile(tmp_path / "p", "alice.edge.test", "ws://10.0.0.1:1/aun", HTTP, root)
    assert rows(tmp_path / "p", "alice.edge.test") == {"gateway_url": '"ws://10.0.0.1:1/aun"'}
    assert rows(tmp_path / "p", "bobby.edge.test") == {"gateway_url": f'"{WS}"'}
    assert not [name for name in os.listdir(tmp_path / "p") if name.endswith(".new")]


def test_a_tls_gateway_brings_its_ca(tmp_path: Path) -> None:
    tls = ROOT.replace("AAAA", "BBBB")
    write_sdk_profile(tmp_path, "a.x", "wss://gateway.x:9443/aun", "https://gateway.x:9443", ROOT, tls)
    assert Path(sourced(tmp_path)["SSL_CERT_FILE"]).read_text() == tls
