"""Commands that are killed in the middle of their work: what must not live on, and that the next one succeeds."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

from builder.certify import engine
from tests.engine.conftest import Workshop


def containers() -> list[str]:
    listed = subprocess.run(
        ["docker", "ps", "--all", "--quiet", "--filter", f"label={engine.RUN_LABEL}"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return listed.stdout.split()


def processes(folder: Path) -> list[str]:
    """The command lines of processes that work in or from a folder."""
    lines = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            inside = str((entry / "cwd").readlink()).startswith(str(folder))
        except OSError:
            continue
        if inside or str(folder) in line:
            lines.append(line)
    return lines


def killed_while(workshop: Workshop, argv: tuple[str, ...], program: str) -> None:
    """SIGKILL to a command while a program works for it: nothing lives on. tests/unit/test_kills.py has the renames."""
    with workshop.start(*argv) as child:
        while not any(program in line for line in processes(workshop.root)):
            assert child.poll() is None, f"ended before {program} ran"
            time.sleep(0.02)
        child.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 20
    while (alive := processes(workshop.root)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert alive == []
    assert str(workshop.root) not in Path("/proc/mounts").read_text()


def succeeds(workshop: Workshop, argv: tuple[str, ...]) -> None:
    """The next run does the work, and leaves nothing half-written."""
    done = workshop.vetted(*argv)
    assert done.returncode == 0, done.stdout + done.stderr
    assert workshop.partial_files() == []
