"""The verifier: the project's own tool, installed from the bundle into a small environment of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from collections.abc import Mapping
from pathlib import Path

from .parts import CHUNK
from .stop import NO, STORAGE, StopError, say

# Variables that would change which files are installed, or what Python imports.
NOT_PASSED = ("UV_", "PIP_", "VETTED_", "PYTHON", "VIRTUAL_ENV", "CONDA_")


def clean_environment(to: Path) -> dict[str, str]:
    """The environment without NOT_PASSED; everything is written below `to`."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(NOT_PASSED)}
    return {
        **kept,
        "UV_OFFLINE": "1",
        "UV_NO_CONFIG": "1",
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_CACHE_DIR": str(to / "cache"),
        "VETTED_STATE": str(to),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def install(root: Path, final: Path, base: Path, environment: Mapping[str, str], lock: int) -> Path:
    """Install it from the bundle alone, for the Python `base`; returns its interpreter."""
    python = final / "bin" / "python"
    partial = final.with_name(f"{final.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    if final.is_dir():
        return python
    say("installing the verifier")
    partial.mkdir(parents=True)
    uv = partial / "uv"
    tool = root / "tool"
    wheels = sorted(tool.glob("uv-*.whl"))
    if not wheels:
        raise StopError(NO, "the bundle has no verifier", "it was not made by `vetted bundle`")
    with zipfile.ZipFile(wheels[0]) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".data/scripts/uv"))
        with archive.open(name) as packed, uv.open("wb") as file:
            shutil.copyfileobj(packed, file, CHUNK)
    uv.chmod(0o755)
    venv = partial / "venv"
    for argv in (
        ["venv", "--no-project", "--relocatable", "--python", str(base), str(venv)],
        [
            *("pip", "sync", "--python", str(venv / "bin" / "python"), "--no-index", "--find-links", str(tool)),
            *("--require-hashes", "--only-binary", ":all:", str(tool / "requirements.txt")),
        ],
    ):
        # It holds the lock too: when this process is killed, the next run waits for it.
        result = subprocess.run(
            [str(uv), "--quiet", *argv], env=dict(environment), pass_fds=(lock,), capture_output=True, text=True
        )
        if result.returncode != 0:
            full = "No space left" in result.stderr
            raise StopError(
                STORAGE if full else NO,
                "installing the verifier failed\n" + "\n".join(result.stderr.strip().splitlines()[-12:]),
                "the disk is full" if full else "",
                "free some space, or name another disk with --to" if full else "",
            )
    venv.rename(final)
    shutil.rmtree(partial)
    return python
