"""`python -m doctor`, `python doctor.py`: arguments, the question, the answer.

0 nothing is known to be wrong · 1 something is · 2 usage · 3 what was named cannot be read.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence

from doctor.answer import commands, diagnose, nearest, report
from doctor.base import terminal
from doctor.case import Case
from doctor.know import data
from doctor.read import context, environment, files, machine, symptoms
from doctor.read.environment import UnreadableError

SAYS = """\
Looks at an environment for GRPO training as it is, without importing it, and says what is known to be wrong.
Without --python and --requirements: at the environment of the Python that runs it."""


def main(arguments: Sequence[str] | None = None) -> int:
    try:
        return answer(arguments)
    except BrokenPipeError:  # whoever read has seen enough
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123, SIM115
        return 1
    except UnreadableError as error:
        if "--json" in (sys.argv[1:] if arguments is None else arguments):
            print(json.dumps({"error": {"what": str(error), "exit_code": 3}}))
        else:
            terminal.write(f"doctor: {terminal.line(str(error))}\n", sys.stderr)
        return 3


def answer(arguments: Sequence[str] | None = None, script: str | None = None) -> int:
    """Print the answer to what is asked; the exit code. Raises UnreadableError. `script`: how this is called again."""
    asked = _parser().parse_args(arguments)
    if asked.lock_of:
        return _lock_of(asked.lock_of)
    case = _case(asked)
    found = diagnose.findings(case)
    commands.add(case, found)
    best = nearest.find(case, script or _script())
    if asked.json:
        print(json.dumps(report.as_json(case, found, best), indent=2))
    else:
        terminal.write(report.text(case, found, best))
    return 1 if any(one.sure for one in found) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="doctor", description=SAYS)
    what = parser.add_mutually_exclusive_group()
    what.add_argument(
        "--python", metavar="PATH", help="an interpreter, a virtual environment, or a site-packages folder"
    )
    what.add_argument("--requirements", metavar="FILE", help="a freeze, a lock, or a list of requirements")
    parser.add_argument("--config", metavar="FILE", action="append", default=[],
                        help="a training, accelerate or DeepSpeed configuration, or the script")  # fmt: skip
    parser.add_argument("--launch", metavar="COMMAND", default="", help="how it is launched, as you type it")
    parser.add_argument("--error", metavar="TEXT", default="", help="the error, as it was printed")
    parser.add_argument("--log", metavar="FILE", help="a log of the run, of any size")
    parser.add_argument("--lock-of", metavar="STACK", help="print the lock of a stack, and nothing else")
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")
    return parser


def _case(asked: argparse.Namespace) -> Case:
    if asked.requirements:
        seen, here = environment.of_requirements(asked.requirements), False
    elif asked.python:
        seen, here = environment.of_python(asked.python), True
    else:
        seen, here = environment.of_this_process(), True
    known = context.Context()
    for path in asked.config:
        told = context.read(_text(path))
        known.known.update(told.known)
        known.flags.update(told.flags)
    if asked.launch:
        told = context.read(asked.launch)
        known.known.update(told.known)
        known.flags = {**told.flags, **known.flags}
    said: list[str] = [symptoms.plain(asked.error)] if asked.error else []
    if asked.log:
        said.append(symptoms.read(asked.log))
    looked = machine.look(seen.include, avoid=seen.programs) if here else machine.Machine()
    return Case(seen, known, looked, "\n".join(said), *map(data.read, data.FILES))


def _text(path: str) -> str:
    try:
        return files.head(path, context.LARGEST)[0].decode("utf-8", "replace")
    except OSError as error:
        raise UnreadableError(f"{path}: {files.why(error)}") from error


def _lock_of(name: str) -> int:
    known = data.read("data.json")
    lock = nearest.lock_of(known, name)
    if lock is None:
        raise UnreadableError(
            f"there is no stack {name}; there are {', '.join(one['name'] for one in known['stacks'])}"
        )
    print(lock, end="")
    return 0


def _script() -> str:
    """How this very program is called again."""
    if os.environ.get("VETTED_DOCTOR"):
        return os.environ["VETTED_DOCTOR"]
    own = sys.argv[0]
    if os.path.basename(own) == "__main__.py":  # noqa: PTH119
        return environment.running([sys.executable, "-m", "doctor"])
    return environment.running([sys.executable, own])


if __name__ == "__main__":
    sys.exit(main())
