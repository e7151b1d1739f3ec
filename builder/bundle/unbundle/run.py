"""Check, unpack and run a bundle on a host without a network: python3 run.pyz [--to FOLDER] [--background | --status].

It needs Python 3.10 or newer, and nothing else. Interrupt it at any moment, and run it again when more parts have
arrived: it continues where it stopped.
Exit codes: 0 certified, or every requested probe passed - 1 the answer is no - 2 usage - 3 parts are missing, or the
run has not ended - 4 another machine or Python - 6 disk or permission.
"""

from __future__ import annotations

import argparse
import errno
import os
import platform
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from . import interpreter, parts, verifier, work
from .manifest import Manifest, read_manifest
from .stop import INTERRUPTED, STORAGE, UNFIT, StopError, say


def run(arguments: Sequence[str], folder: Path) -> int:
    """Check, unpack, install; then the verifier replaces this process."""
    parser = argparse.ArgumentParser(prog="run.pyz", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: the stack's")
    parser.add_argument("--to", type=Path, help="where everything is written; default: vetted-STACK in this folder")
    parser.add_argument("--probe", action="append", default=[], help="only this probe; issues no certificate")
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--background", action="store_true", help="return when all parts are there; the rest goes on")
    how.add_argument("--status", action="store_true", help="say how far a run is")
    parser.add_argument("--lock", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    manifest = read_manifest(folder)
    to = (options.to or Path(f"vetted-{manifest.stack}")).absolute()
    if options.status:
        return work.status(to)
    _check_host(manifest)
    if options.device == "cuda" and manifest.device == "cpu":
        parser.error(f"{manifest.stack} is a cpu stack: its lock holds no CUDA")
    lock = work.hold(to) if options.lock is None else options.lock
    short = manifest.digest[:12]
    work.remove_others(to, short)
    root, kept = to / f"bundle-{short}", to / f"parts-{short}"
    if not root.is_dir():
        parts.collect(folder, manifest, kept)
    if options.background:
        work.background(to, lock, arguments)
        return 0
    if not root.is_dir():
        parts.unpack(kept, manifest, root)
    shutil.rmtree(kept, ignore_errors=True)
    words = ["--device", options.device or manifest.device]
    words += [word for path in _packages() for word in ("--host", path)]
    words += [word for probe in options.probe for word in ("--probe", probe)]
    words += ["--json"] if options.json else []
    return _become_verifier(manifest, to, root, words, lock)


def _become_verifier(manifest: Manifest, to: Path, root: Path, words: Sequence[str], lock: int) -> NoReturn:
    """Install the stack's Python and the verifier, which takes over this process and the lock."""
    short = manifest.digest[:12]
    environment = verifier.clean_environment(to)
    base = Path(sys.executable)
    if manifest.carried:
        base = interpreter.install(root, to / f"python-{short}", manifest.python)
        environment |= interpreter.variables(to / f"python-{short}")
    python = verifier.install(root, to / f"verifier-{short}", base, environment, lock)
    os.set_inheritable(lock, True)
    os.chdir(root)
    os.execve(python, [str(python), "-m", "builder", "run-bundle", "--python", str(base), *words], environment)


def _check_host(manifest: Manifest) -> None:
    here = "{}.{}".format(*sys.version_info[:2])
    if not manifest.carried and here != manifest.python:
        raise StopError(
            UNFIT,
            f"this is Python {here}; the bundle's files are for Python {manifest.python}",
            next_step=f"python{manifest.python} {sys.argv[0]}, or make the bundle without --python",
        )
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise StopError(
            UNFIT, f"the bundle's files are for Linux on x86_64, not {sys.platform} on {platform.machine()}"
        )


def _packages() -> list[str]:
    """The folders of this Python's packages, whose files the bundle may leave out: those that `look` reads."""
    return [path for path in sys.path[1:] if any(Path(path).glob("*.dist-info"))]


def main() -> None:
    try:
        sys.exit(run(sys.argv[1:], Path(sys.argv[0]).absolute().parent))
    except StopError as error:
        say(f"vetted: {error.text}")
        sys.exit(error.code)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        say(f"vetted: {error.filename or 'a file'}: {error.strerror or error}")
        say("next: " + ("free some space, or name" if full else "name") + " a folder that can be written with --to")
        sys.exit(STORAGE)
    except KeyboardInterrupt:
        say("vetted: interrupted; the same command continues where it stopped")
        sys.exit(INTERRUPTED)
