"""Seconds that the import of a module takes, with bytecode and without: run in an image, by `benchmarks.extended`.

`python imported.py OWN MODULE` prints them as JSON. Only what the packages of OWN (names, with commas) bring is
compiled anew: all else that the module imports is there before. The seconds are the processor's, which a busy machine
changes little.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import subprocess
import sys
from contextlib import suppress

TIMES = 3  # the shortest of as many


def main(own: str, module: str) -> None:
    """Print the seconds with bytecode, and those without."""
    names = _run("others", own, module)
    kinds = ("with", "without")
    print(json.dumps({kind: min(float(_run(kind, own, module, names)) for _ in range(TIMES)) for kind in kinds}))


def _run(kind: str, own: str, module: str, names: str = "") -> str:
    argv = [sys.executable, __file__, kind, own, module]
    done = subprocess.run(argv, input=names, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[-1]


def others(own: str, module: str) -> list[str]:
    """The modules that an import brings along which are not of the own packages."""
    importlib.import_module(module)
    names = own.split(",")
    theirs = {
        top
        for top, distributions in importlib.metadata.packages_distributions().items()
        if not any(name.lower().replace("_", "-").replace(".", "-") in names for name in distributions)
    } | sys.stdlib_module_names
    return [name for name in sys.modules if name.partition(".")[0] in theirs]


def seconds(module: str, *, bytecode: bool) -> float:
    """The processor's seconds of an import, after all that is named on standard input."""
    for name in json.load(sys.stdin):
        with suppress(Exception):
            importlib.import_module(name)
    if not bytecode:
        sys.pycache_prefix = "/nonexistent"
    begin = os.times()
    importlib.import_module(module)
    end = os.times()
    return round(end.user + end.system - begin.user - begin.system, 2)


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["others", own, module]:
            print(json.dumps(others(own, module)))
        case ["with" | "without" as kind, _, module]:
            print(seconds(module, bytecode=kind == "with"))
        case [own, module]:
            main(own, module)
