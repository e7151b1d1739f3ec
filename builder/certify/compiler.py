"""The C compiler of a host: Triton builds a module with it for each kernel that it starts on a GPU."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from builder.base import errors, process
from builder.lock.lockfile import Lock

LONGEST = 1000  # characters of what a compiler prints
CAUSE = "Triton compiles a C module for each kernel, with a C compiler and Python.h"


def require(lock: Lock, prepared: Path) -> None:
    """Raise MissingToolError unless the host can build a C module for the environment's Python.

    TRL 1.16 uses Triton in every loss. The image has the compiler and Python's headers.
    """
    compiler = _chosen() or next(filter(shutil.which, ("gcc", "clang")), None)
    look = "import sysconfig; print(sysconfig.get_path('include'))"
    answer = process.check("looking for Python.h", [str(prepared / "bin" / "python"), "-I", "-S", "-c", look])
    headers, package = Path(answer.stdout.strip()), f"python{lock.stack.python}-dev"
    missing = [] if compiler else ["gcc"]
    missing += [] if (headers / "Python.h").is_file() else [package]
    if missing or compiler is None:
        raise _error(f"this machine lacks {' and '.join(missing)}", f"apt-get install {' '.join(missing)}")
    with tempfile.TemporaryDirectory() as folder:
        target = ["-shared", "-fPIC", "-o", str(Path(folder, "module.so"))]
        done = process.run([compiler, *target, f"-I{headers}", "-include", "Python.h", "-x", "c", os.devnull])
    if done.returncode != 0:
        failure = done.stderr.strip()[-LONGEST:]
        raise _error(
            f"this machine cannot compile a C module\n{failure}", f"apt-get install --reinstall gcc libc6-dev {package}"
        )


def _chosen() -> str | None:
    """The compiler that CC names. Triton starts it as one program, never with arguments. Raises MissingToolError."""
    chosen = os.environ.get("CC")
    if chosen and not shutil.which(chosen):
        raise _error(
            f"CC is {chosen!r}, and there is no such program", "unset CC, or name one program without arguments"
        )
    return chosen or None


def _error(what: str, next_step: str) -> errors.MissingToolError:
    return errors.MissingToolError(what, cause=CAUSE, next_step=f"{next_step}, or run with --engine docker")
