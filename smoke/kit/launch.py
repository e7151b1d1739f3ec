"""Running a command's own Python code in a forked process, where the user's shell would start an interpreter.

What a command imports was imported already by the process that is forked: that saves the fifteen seconds that every
new interpreter of a launcher would take. The code that runs is the command's own, from its entry point on.
"""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn


def forked(work: Callable[[], Any]) -> int:
    """Call `work` in a forked process, and return the exit status that a program of its own would have ended with.

    Negative for a signal. What it prints, a traceback too, goes where this process prints.
    """
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    pid = os.fork()
    if pid == 0:
        _become(work)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _become(work: Callable[[], Any]) -> NoReturn:
    status = 1
    try:
        answer = work()
        status = answer if isinstance(answer, int) else 0
    except SystemExit as ending:
        if isinstance(ending.code, str):
            print(ending.code, file=sys.stderr)
        status = ending.code if isinstance(ending.code, int) else int(ending.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status & 0xFF)


class Interpreter:
    """Stands in for subprocess.Popen where a launcher starts `python SCRIPT ARGUMENTS`: the script runs forked."""

    def __init__(self, command: Sequence[str], env: Mapping[str, str] | None = None) -> None:
        interpreter, *arguments = map(str, command)
        if os.path.realpath(interpreter) != os.path.realpath(sys.executable) or arguments[0].startswith("-"):
            raise ValueError(f"not a script that this interpreter runs: {command}")

        def script() -> None:
            if env is not None:
                os.environ.clear()
                os.environ.update(env)
            sys.argv = arguments
            sys.path.insert(0, str(Path(arguments[0]).parent))
            runpy.run_path(arguments[0], run_name="__main__")

        self.args = command
        self.returncode = forked(script)

    def wait(self) -> int:
        """It has ended already."""
        return self.returncode
