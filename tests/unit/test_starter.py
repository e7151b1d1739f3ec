"""A forked command is what a started one is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests import starter
from tests.commands import spawn
from tests.conftest import ROOT

PROGRAM = """\
import atexit, os, signal, sys
atexit.register(print, "at exit")
print(__name__, sys.argv[1:], sys.stdin.read(), os.getcwd(), sorted(os.environ), "builder" in sys.modules)
print(signal.getsignal(signal.SIGINT) is signal.default_int_handler, file=sys.stderr)
{end}
"""


@pytest.mark.parametrize(
    "end", ["", "sys.exit(3)", "sys.exit('why')", "1 / 0", "sys.stdout.flush(); os.kill(os.getpid(), signal.SIGKILL)"]
)
def test_it_prints_and_ends_as_one_that_was_started(tmp_path: Path, end: str) -> None:
    (tmp_path / "program.py").write_text(PROGRAM.format(end=end))
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "OWN": "1"}
    with spawn(["-m", "program", "a", "b"], tmp_path, **env) as child:
        out, err = child.communicate()
    code, forked_out, forked_err = starter.run("program", ["a", "b"], tmp_path, {**os.environ, **env})
    assert (code, forked_out) == (child.returncode, out)
    assert forked_err.splitlines()[-1:] == err.splitlines()[-1:]


def test_what_python_reads_at_its_start_needs_a_start(monkeypatch: pytest.MonkeyPatch) -> None:
    ours = {**os.environ, "PYTHONPATH": str(ROOT)}
    assert starter.usable({**ours, "OWN": "1"})
    assert not starter.usable({**ours, "PYTHONIOENCODING": "ascii"})
    assert not starter.usable({**ours, "LC_ALL": "C"})
    monkeypatch.setenv("PYTHONIOENCODING", "ascii")  # of this process, when the other has started
    assert not starter.usable({**os.environ, "PYTHONPATH": str(ROOT)})
