"""The suite's command: reads a request from standard input, runs its probes, writes events to standard output.

    python -I -S smoke/__main__.py --python STACK/bin/python < request

The supervisor trusts nothing of the stack: it runs isolated, without site-packages, in an interpreter of the caller's
choice. `--python` is the stack's own interpreter, which runs the probes; `--user` gives them another user than the
supervisor's. `python -m smoke` runs both in the same interpreter.

Exit status: 0 when every probe was run and reported, whatever came of it; 3 for a bad request; 1 when the caller
went away (standard input or output was closed).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

if not __package__:  # started as a file: an isolated interpreter looks for modules in the standard library alone
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from smoke import probe
from smoke.run import linux, request
from smoke.run.guard import guarded
from smoke.run.runner import Supervisor
from smoke.run.zygote import Stack

BAD_REQUEST = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m smoke", description=__doc__)
    parser.add_argument("--list", action="store_true", help="print the probes as JSON and do nothing else")
    parser.add_argument("--probes", type=Path, default=probe.PROBES, metavar="DIR", help="another directory of probes")
    parser.add_argument("--python", default=sys.executable, metavar="FILE", help="the stack's interpreter")
    parser.add_argument("--user", type=_user, metavar="UID:GID", help="who runs the probes; needs root")
    options = parser.parse_args(arguments)
    try:
        known = probe.discover(options.probes)
    except probe.BadProbeError as error:
        print(f"smoke: {error}", file=sys.stderr)
        return BAD_REQUEST
    if options.list:
        print(json.dumps([found.describe() for found in known.values()], indent=2))
        return 0
    linux.hide()  # a probe may run as the same user
    return guarded(lambda directory: _serve(known, Stack(options.python, options.user), directory))


def _user(text: str) -> tuple[int, int]:
    uid, _, gid = text.partition(":")
    return int(uid), int(gid)


def _serve(known: Mapping[str, probe.Found], stack: Stack, directory: Path) -> int:
    events = os.dup(1)
    os.dup2(2, 1)  # standard output carries events and nothing else
    try:
        asked = request.parse(_read_line(0), known)
    except request.BadRequestError as error:
        print(f"smoke: {error}", file=sys.stderr)
        return BAD_REQUEST
    Supervisor(asked, directory, 0, events, stack).run()
    return 0


def _read_line(descriptor: int) -> str:
    """Read up to the end of the line, or of the input. Unbuffered: what follows is waited for, not read."""
    line = b""
    while not line.endswith(b"\n") and (chunk := os.read(descriptor, 65536)):
        line += chunk
    return line.decode(errors="replace")


if __name__ == "__main__":
    sys.exit(main())
