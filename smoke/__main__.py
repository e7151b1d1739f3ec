"""`python -m smoke`: read a request from standard input, run its probes, write events to standard output.

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

from smoke import probe, request
from smoke.guard import guarded
from smoke.runner import Supervisor

BAD_REQUEST = 3


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m smoke", description=__doc__)
    parser.add_argument("--list", action="store_true", help="print the probes as JSON and do nothing else")
    parser.add_argument("--probes", type=Path, default=probe.PROBES, metavar="DIR", help="another directory of probes")
    options = parser.parse_args(arguments)
    try:
        known = probe.discover(options.probes)
    except probe.BadProbeError as error:
        print(f"smoke: {error}", file=sys.stderr)
        return BAD_REQUEST
    if options.list:
        print(json.dumps([found.describe() for found in known.values()], indent=2))
        return 0
    return guarded(lambda directory: _serve(known, directory))


def _serve(known: Mapping[str, probe.Found], directory: Path) -> int:
    events = os.dup(1)
    os.dup2(2, 1)  # standard output carries events and nothing else
    try:
        asked = request.parse(_read_line(0), known)
    except request.BadRequestError as error:
        print(f"smoke: {error}", file=sys.stderr)
        return BAD_REQUEST
    Supervisor(asked, directory, 0, events).run()
    return 0


def _read_line(descriptor: int) -> str:
    """Read up to the end of the line, or of the input. Unbuffered: what follows is waited for, not read."""
    line = b""
    while not line.endswith(b"\n") and (chunk := os.read(descriptor, 65536)):
        line += chunk
    return line.decode(errors="replace")


if __name__ == "__main__":
    sys.exit(main())
