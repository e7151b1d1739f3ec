"""The doctor as a process of its own, and an environment for it to look at."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT
from tests.unit.doctor.kit import install

LIMIT = 60  # seconds after which it hangs; all of these take about one


def ask(*argv: str, memory: int = 1500) -> tuple[int, str, str]:
    """The doctor as a process of its own, with so many megabytes of address space: exit code, output, complaints."""
    limited = ["/bin/sh", "-c", f'ulimit -v {memory * 1024}; exec "$@"', "sh", sys.executable, "-m", "doctor", *argv]
    done = subprocess.run(limited, cwd=ROOT, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout, done.stderr


def venv(folder: Path, settings: str = "home = /usr/bin\nversion = 3.11.2\n") -> Path:
    """A virtual environment with one package."""
    (folder / "bin").mkdir(parents=True)
    (folder / "pyvenv.cfg").write_text(settings)
    install(folder / "lib" / "python3.11" / "site-packages", "trl", "1.0.0")
    return folder
