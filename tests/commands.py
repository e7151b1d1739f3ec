"""Commands in a process of their own, and what they answer."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import starter
from tests.conftest import ROOT

# Imports every command, as a program for `python -c`.
EVERYTHING = "from builder import cli; [cli.load(name) for name in (*cli.COMMANDS, *cli.HIDDEN)]"


@dataclass(frozen=True)
class Answer:
    """What a command answered."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


def spawn(argv: Sequence[str], cwd: Path, **env: str) -> subprocess.Popen[str]:
    """Start this Python with the project's packages importable."""
    return subprocess.Popen(
        [sys.executable, *argv],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(ROOT), **env},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_interruptible,
    )


def _interruptible() -> None:
    """What a shell runs in the background ignores interrupts, and so would all that it starts: these tests too."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def vetted(root: Path, *argv: str, **env: str) -> Answer:
    """Run the real command in a process of its own; whatever it says, it must not be a traceback."""
    whole = {**os.environ, "PYTHONPATH": str(ROOT), **env}
    if starter.usable(whole):
        answer = Answer(*starter.run("builder", argv, root, whole))
    else:
        with spawn(["-m", "builder", *argv], root, **env) as child:
            out, err = child.communicate()
        answer = Answer(child.returncode, out, err)
    assert "Traceback" not in answer.err, answer.err
    return answer
