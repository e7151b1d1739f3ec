"""`docker compose` in a folder that has a compose.yaml, and the runs that it leaves there."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import termios
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tests.engine.conftest import Workshop


def compose(
    shop: Workshop | Path,
    *argv: str,
    cwd: Path | None = None,
    files: Sequence[Path] = (),
    env: Mapping[str, str] | None = None,
) -> subprocess.Popen[str]:
    """`docker compose` of a folder, typed in another folder. `files`: compose files besides the one there."""
    root = shop if isinstance(shop, Path) else shop.root
    where = cwd or root
    named = [word for file in (root / "compose.yaml", *files) for word in ("--file", str(file))]
    return subprocess.Popen(
        ["docker", "compose", *named, *argv],
        cwd=where, env={**os.environ, "PWD": str(where), **(env or {})}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip


def run(
    shop: Workshop | Path,
    service: str,
    *argv: str,
    cwd: Path | None = None,
    files: Sequence[Path] = (),
    env: Mapping[str, str] | None = None,
) -> tuple[int, str]:
    """Run a service to its end; returns its exit status and output."""
    with compose(shop, "run", "--rm", service, *argv, cwd=cwd, files=files, env=env) as child:
        output, _ = child.communicate()
    return child.returncode, output


def typed(root: Path, *argv: str, files: Sequence[Path] = (), env: Mapping[str, str] | None = None) -> tuple[int, str]:
    """Run a service as a person does who types in a terminal; returns its exit status and what the terminal showed."""
    named = [word for file in (root / "compose.yaml", *files) for word in ("--file", str(file))]
    terminal, end = pty.openpty()
    termios.tcsetwinsize(end, (40, 120))  # bars of progress have no place in a terminal without a size
    with subprocess.Popen(
        ["docker", "compose", *named, "run", "--rm", *argv],
        cwd=root, env={**os.environ, "PWD": str(root), **(env or {})}, stdin=end, stdout=end, stderr=end,
    ) as child:  # fmt: skip
        os.close(end)
        shown = bytearray()
        with suppress(OSError):  # the end of a terminal is an error
            while chunk := os.read(terminal, 65536):
                shown += chunk
    os.close(terminal)
    return child.returncode, shown.decode(errors="replace")


def train(shop: Workshop | Path, *argv: str, cwd: Path | None = None) -> tuple[int, str]:
    return run(shop, "train", *argv, cwd=cwd)


def runs(shop: Workshop | Path) -> list[Path]:
    root = shop if isinstance(shop, Path) else shop.root
    return sorted(path for path in (root / "runs").iterdir() if path.is_dir() and not path.name.startswith("."))


def rows(run: Path) -> list[dict[str, float]]:
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [row for row in map(json.loads, lines) if "reward" in row]
