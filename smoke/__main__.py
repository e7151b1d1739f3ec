"""Run the suite: read a request from standard input, run its probes, write events to standard output.

    python -I -S smoke/__main__.py --python STACK/bin/python < request

The supervisor does not trust the stack: it runs isolated, without site-packages, in an interpreter that the caller
chooses. `--python` is the interpreter of the stack, which runs the probes; `--user` runs them as another user.
`python -m smoke` uses one interpreter for both.

Exit status: 0 when every probe was run and reported, whatever its outcome; 3 for a bad request; 1 when the caller
disconnected (closed standard input or output).
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

if not __package__:  # started as a file: an isolated interpreter finds modules in the standard library only
    sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from smoke import probe
from smoke.run import linux, request
from smoke.run.guard import guarded
from smoke.run.runner import Supervisor
from smoke.run.zygote import Stack, account

BAD_REQUEST = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m smoke", description=__doc__)
    parser.add_argument("--list", action="store_true", help="print the probes as JSON and exit")
    parser.add_argument("--probes", type=Path, default=probe.PROBES, metavar="DIR", help="another folder of probes")
    parser.add_argument("--python", default=sys.executable, metavar="FILE", help="the interpreter of the stack")
    parser.add_argument("--user", type=account, metavar="UID:GID", help="run the probes as this user; needs root")
    options = parser.parse_args(arguments)
    try:
        files = probe.discover(options.probes)
    except probe.BadProbeError as error:
        print(f"smoke: {error}", file=sys.stderr)
        return BAD_REQUEST
    if options.list:
        print(json.dumps([file.describe() for file in files.values()], indent=2))
        return 0
    linux.hide()  # a probe may run as the same user
    return guarded(lambda directory: _serve(files, Stack(options.python, options.user), directory))


def _serve(files: Mapping[str, probe.ProbeFile], stack: Stack, directory: Path) -> int:
    events = os.dup(1)
    os.dup2(2, 1)  # standard output is for events only
    try:
        parsed = request.parse(request.read_line(0), files)
    except request.BadRequestError as error:
        print(f"smoke: {error}", file=sys.stderr)
        return BAD_REQUEST
    Supervisor(parsed, directory, 0, events, stack).run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
