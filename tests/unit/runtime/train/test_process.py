"""How a run ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.train import process
from tests.conftest import ROOT

# The script of a run, as far as its end goes: it says that it works, and ends at the file, or never.
POLITE = "import pathlib, time; print('step', flush=True)\nwhile not pathlib.Path('.stop').exists(): time.sleep(0.01)"
DEAF = "import time; print('step', flush=True); time.sleep(600)"
CLUMSY = POLITE + "\nraise SystemExit(3)"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize(
    ("script", "signals", "code"), [(POLITE, 1, process.INTERRUPTED), (DEAF, 2, process.INTERRUPTED), (CLUMSY, 1, 3)]
)
def test_asked_once_a_run_ends_by_itself_and_asked_twice_at_once(
    tmp_path: Path, script: str, signals: int, code: int, number: int
) -> None:
    (tmp_path / ".stop").touch()  # an earlier run was killed
    run = f"process.run([sys.executable, '-c', {script!r}], pathlib.Path('.stop'), os.environ)"
    command = f"import os, sys, pathlib; from runtime.train import process; process.AGAIN = 0; sys.exit({run})"
    with subprocess.Popen(
        [sys.executable, "-c", command], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as child:  # fmt: skip
        assert child.stdout is not None and child.stderr is not None
        assert child.stdout.readline() == "step\n"
        child.send_signal(number)
        assert child.stderr.readline() == "\n"
        assert child.stderr.readline().startswith("vetted: ending with a checkpoint after this step")
        if signals == 2:
            child.send_signal(number)
        assert child.wait(timeout=30) == code
    assert not (tmp_path / ".stop").exists()


def test_a_run_that_is_left_alone_ends_as_its_script_does(tmp_path: Path) -> None:
    assert process.run([sys.executable, "-c", "raise SystemExit(7)"], tmp_path / ".stop", os.environ) == 7
    out_of_memory = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    assert process.run([sys.executable, "-c", out_of_memory], tmp_path / ".stop", os.environ) == 137
