"""Run a command's Python code in a forked process, in place of a new interpreter.

The forked process has the packages imported already, which saves the fifteen seconds that each new interpreter of a
launcher would need. The code is the command's own, from its entry point on.
"""

from __future__ import annotations

import os
import runpy
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from smoke.run.gpus import Use


def forked(work: Callable[[], Any]) -> int:
    """Call `work` in a forked process, and return the exit status that a program would have, negative for a signal.

    Its output, tracebacks included, goes to the output of this process.
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
        result = work()
        status = result if isinstance(result, int) else 0
    except SystemExit as error:
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
        status = error.code if isinstance(error.code, int) else int(error.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status & 0xFF)


class Interpreter:
    """A replacement for subprocess.Popen in launchers that start `python SCRIPT ARGUMENTS`: it forks instead.

    `on_gpu`: a script that allocates nothing on the first GPU has failed.
    """

    def __init__(self, command: Sequence[str], env: Mapping[str, str] | None = None, *, on_gpu: bool = False) -> None:
        interpreter, *arguments = map(str, command)
        if os.path.realpath(interpreter) != os.path.realpath(sys.executable) or arguments[0].startswith("-"):
            raise ValueError(f"not a script that this interpreter runs: {command}")

        def script() -> None:
            if env is not None:
                os.environ.clear()
                os.environ.update(env)
            sys.argv = arguments
            sys.path.insert(0, str(Path(arguments[0]).parent))
            use = Use(0) if on_gpu else None
            runpy.run_path(arguments[0], run_name="__main__")
            if use is not None:
                use.require()

        self.args = command
        self.returncode = forked(script)

    def wait(self) -> int:
        """The exit status: the script has ended already."""
        return self.returncode
