"""Tar archives that git wrote of a tree."""

from __future__ import annotations

from pathlib import Path

from builder.base import process


def unpack(file: Path, target: Path) -> None:
    """Unpack an archive into a folder, which is made, as files of this user. Raises VettedError.

    By tar, which refuses what leads outside: Python's own filter came with 3.11.4, and Debian 12 has 3.11.2.
    """
    target.mkdir(parents=True, exist_ok=True)
    options = ["--no-same-owner", "--no-same-permissions"]
    process.check(f"unpacking {file.name}", ["tar", "--extract", *options, f"--file={file}", f"--directory={target}"])
