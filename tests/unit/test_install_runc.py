"""scripts/install-runc: Docker's configuration gets one more runtime, and keeps the rest."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from tests.conftest import ROOT

SCRIPT = ROOT / "scripts" / "install-runc"


def register(folder: Path) -> subprocess.CompletedProcess[str]:
    """The script's function, with a Docker that lists what its configuration says."""
    functions = SCRIPT.read_text().partition("\ncase ${1-} in")[0]
    config = folder / "docker" / "daemon.json"
    for old, new in (("/etc/docker/daemon.json", str(config)), ("/run/", f"{folder}/run/"), ("/var/run/", "/nowhere/")):
        functions = functions.replace(old, new)
    docker = folder / "bin" / "docker"
    docker.parent.mkdir()
    docker.write_text(f'#!/bin/sh\ncat "{config}"\n')
    docker.chmod(0o755)
    argv = ["sh", "-c", f"{functions}\nregister", "install-runc"]
    return subprocess.run(
        argv, env={"PATH": f"{docker.parent}:/usr/bin:/bin"}, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize("before", [None, {"features": {"a": True}, "runtimes": {"other": {"path": "/other"}}}])
def test_what_docker_is_configured_for_stays(tmp_path: Path, before: dict[str, dict[str, object]] | None) -> None:
    config = tmp_path / "docker" / "daemon.json"
    if before:
        config.parent.mkdir()
        config.write_text(json.dumps(before))
    done = register(tmp_path)
    assert done.returncode == 0, done.stderr
    after = json.loads(config.read_text())
    path = after["runtimes"].pop("runc-trixie")["path"]
    assert path == "/usr/local/lib/vetted-runc/runc"
    assert after == (before or {"runtimes": {}})
    assert [entry.name for entry in config.parent.iterdir()] == ["daemon.json"]
