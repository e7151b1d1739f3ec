"""OPA's own engine, installed from opa.txt for the tests that ask it; what is not there skips them, or fails in CI."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from builder.base import machine
from tests import parts

REQUIREMENTS = Path(__file__).with_name("opa.txt")
PYTHON = "3.14"  # that it declares to need
CHANGED = "Hash mismatch"


def installed(folder: Path) -> Path:
    """A folder with the engine, to be put on Python's path. A file that is not the locked one fails the test."""
    argv = [
        machine.uv_binary(), "pip", "install", "--quiet", "--target", str(folder), "--python", sys.executable,
        "--python-version", PYTHON, "--no-deps", "--only-binary=:all:", "--require-hashes", "-r", str(REQUIREMENTS),
    ]  # fmt: skip
    env = {**os.environ, **machine.uv_environment()}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    assert CHANGED not in done.stderr, done.stderr
    parts.need("OPA's engine", done.returncode == 0, f"a package index has to offer it\n{done.stderr[-600:]}")
    return folder
