"""A git repository of a test: its commits have the day that the test says."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from tests import parts


def git(folder: Path, *argv: str, day: str = "2026-11-01") -> None:
    """Run git without any configuration of this machine."""
    roles = ("AUTHOR", "COMMITTER")
    who = {f"GIT_{role}_{what}": "a@b.example" for role in roles for what in ("NAME", "EMAIL")}
    days = {f"GIT_{role}_DATE": f"{day}T00:00:00Z" for role in roles}
    nobody = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    subprocess.run(
        [parts.git(), "-C", folder, *argv], env={**os.environ, **who, **days, **nobody}, check=True, capture_output=True
    )


def commit(folder: Path, path: Path, day: str = "2026-11-01") -> None:
    git(folder, "add", "--force", str(path))
    git(folder, "commit", "--quiet", "--message", "certified", day=day)
