"""`python -m doctor`, `python doctor.py`: arguments in, an answer out.

0 nothing is known to be wrong · 1 something is · 2 usage · 3 a file or folder that was named cannot be read ·
130 interrupted.
"""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Callable, Optional

from doctor.answer import commands, diagnose, nearest, report, search, shell, together
from doctor.base import terminal
from doctor.case import Case
from doctor.know import cuda, data
from doctor.read import (
    argument,
    context,
    damage,
    files,
    interpreters,
    machine,
    mention,
    pythons,
    requirements,
    suite,
    symptoms,
)
from doctor.read.argument import Given
from doctor.read.context import RunContext
from doctor.read.environment import Environment, Problem
from doctor.read.files import UnreadableError
from doctor.read.machine import Machine
from doctor.read.suite import Result

DESCRIPTION = """\
Finds what is known to be wrong with an environment for GRPO training, without importing any of it; with --measure it
also runs Vetted's probes there. A PATH is a log, an environment, a list of packages or a configuration, by what is in
it. Without an environment it looks at the one that the log names, else at that of the Python that runs it."""
Usual = Callable[[], Optional[Environment]]


class NoEnvironmentError(UnreadableError):
    """None was named, and there is no usual one."""


def main(arguments: Sequence[str] | None = None) -> int:
    """The program: prints an answer or an error, returns the exit code."""
    try:
        code = answer(arguments)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader of the output is gone; what is buffered still goes somewhere at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:  # such as during a measurement, whose suite ends with this process
        terminal.write("doctor: interrupted\n", sys.stderr)
        return 130
    except UnreadableError as error:
        if "--json" in (sys.argv[1:] if arguments is None else arguments):
            print(terminal.as_json({"error": {"what": str(error), "exit_code": 3}}))
        else:
            terminal.write(f"doctor: {terminal.line(str(error))}\n", sys.stderr)
        return 3


def answer(
    arguments: Sequence[str] | None = None,
    script: str | None = None,
    own_programs: str = "",
    usual: Usual = pythons.of_this_process,
) -> int:
    """Print the answer; the exit code, 0 or 1. Raises UnreadableError.

    `script`: the command that runs the doctor, for the commands in the answer. `own_programs`: a folder that is on PATH
    only for this program. `usual`: the environment that is looked at where none is named; None where there is none.
    """
    options = _parser().parse_intermixed_args(arguments)
    if options.lock_of:
        return _print_lock(options.lock_of)
    case = _case(options, usual)
    if options.measure or options.measure_all:
        case.measured = _measure(case, options.device, options.measure_all)
    findings = diagnose.findings(case)
    # `pip freeze` leaves pip out: only an environment that was read can lack it.
    pip = "pip" in case.environment.packages or not case.environment.folders
    user = shell.here(script or _own_command(), own_programs, pip)
    joint = together.find(case, findings, user)
    commands.add(case, findings, user)
    stack = nearest.find(case, user)
    search.add(case, findings, stack, user)
    if options.json:
        print(terminal.as_json(report.as_json(case, findings, stack, joint)))
    else:
        terminal.write(report.text(case, findings, stack, joint, everything=options.all))
    return 1 if any(finding.sure or finding.apart for finding in findings) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="doctor", description=DESCRIPTION)
    parser.add_argument("paths", metavar="PATH", nargs="*",
                        help="a log, an environment, a list of packages or a configuration")  # fmt: skip
    place = parser.add_mutually_exclusive_group()
    place.add_argument(
        "--python", metavar="PATH", help="an interpreter, a virtual environment, or a site-packages folder"
    )
    place.add_argument("--requirements", metavar="FILE", help="a freeze, a lock, or a list of requirements")
    parser.add_argument("--config", metavar="FILE", action="append", default=[],
                        help="a training, accelerate or DeepSpeed configuration, or the script")  # fmt: skip
    parser.add_argument("--launch", metavar="COMMAND", default="", help="the launch command, as you type it")
    parser.add_argument("--error", metavar="TEXT", default="", help="the error, as it was printed")
    parser.add_argument("--log", metavar="FILE", action="append", default=[],
                        help="a log of the run, of any size")  # fmt: skip
    parser.add_argument("--measure", action="store_true",
                        help="also run the quick probes there: about a minute; nothing is written there")  # fmt: skip
    parser.add_argument("--measure-all", action="store_true", help="also run the long probes: some minutes")
    parser.add_argument("--device", choices=("cpu", "cuda"),
                        help="what --measure runs on (default: cuda where torch and the machine have it)")  # fmt: skip
    parser.add_argument("--lock-of", metavar="STACK", help="print the lock of a stack, and nothing else")
    parser.add_argument("--all", action="store_true", help="print every finding in full, also those that hardly matter")
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")
    return parser


def _case(options: argparse.Namespace, usual: Usual) -> Case:
    sources = argument.merged(options.paths, options.python, options.requirements, options.config, options.log)
    run = _context(sources.configurations, options.launch)
    errors = [symptoms.plain(options.error)] if options.error else []
    errors += [symptoms.read(log) for log in sources.logs]
    error = "\n".join(errors)
    if sources.environment is None:
        environment = _unnamed(error, run, usual)
    else:
        alone = not (error or sources.configurations or options.launch)
        environment = _named(sources.environment, run, alone)
    local = sources.environment is None or sources.environment.option == "python"
    here = machine.inspect(environment.include, avoid=environment.program_folders) if local else Machine()
    return Case(environment, run, here, error, data.load(), given=sources.paths)


def _named(source: Given, run: RunContext, alone: bool) -> Environment:
    """The environment that was named. A Python that does not answer is a fact; `alone`: there is no other to judge."""
    if source.option == "requirements":
        return requirements.of_file(source.path)
    try:
        return pythons.of_path(source.path)
    except interpreters.SilentError as error:
        if alone:
            raise
        return _silent(error, run)


def _silent(error: interpreters.SilentError, run: RunContext) -> Environment:
    """What is known of the environment of a Python that does not answer."""
    run.silent = Problem(str(error.executable), error.what)
    return Environment(f"nothing of {error.executable}, which does not answer")


def _unnamed(error: str, run: RunContext, usual: Usual) -> Environment:
    """The usual environment, unless the error is of another one on this machine."""
    other, run.unreadable = mention.of_error(error)
    try:
        own = usual()
    except interpreters.SilentError as silent:
        own = _silent(silent, run) if error and other is None else None
        if other is None and own is None:
            raise
    except UnreadableError:
        if other is None:
            raise
        own = None
    if own is not None and any(mention.has(own, folder) for folder in symptoms.package_folders(error)):
        run.unreadable = None
        return own
    if other is None and own is None:
        raise NoEnvironmentError("no environment was named, and there is no usual one: --python PATH")
    return other or own  # type: ignore[return-value]


def _measure(case: Case, device: str | None, everything: bool) -> list[Result]:
    """Run the suite in the environment of the case. Raises UnreadableError where there is none, or it does not run."""
    environment = case.environment
    if not environment.executable:
        raise UnreadableError(f"--measure needs a Python to run, and {environment.title} names none: --python PATH")
    on_gpu = bool(case.machine.gpus and cuda.of_torch(environment))
    versions = {package.published or name: package.version for name, package in environment.packages.items()}
    with terminal.Progress(sys.stderr) as progress:
        return suite.run(
            environment.executable, versions, device or ("cuda" if on_gpu else "cpu"),
            lambda done, every, probe: progress.show(f"measuring: {done} of {every} probes done, now {probe}"),
            everything=everything,
        )  # fmt: skip


def _context(configurations: Sequence[str], launch: str) -> RunContext:
    """What configurations and the launch command state. The later file wins, and a file wins over the command."""
    run = RunContext()
    for path in configurations:
        text, whole = _text(path)
        stated = context.read(text)
        damaged = damage.of(path, text) if whole else ""
        if damaged:  # what it says all the same is what was meant
            run.damaged.append(Problem(path, damaged))
        elif not stated.facts and not stated.flags:
            run.blank.append(Problem(path, "has no setting that the doctor knows"))
        run.facts.update(stated.facts)
        run.flags.update(stated.flags)
    if launch:
        stated = context.read(launch)
        run.facts.update(stated.facts)
        run.flags = {**stated.flags, **run.flags}
    return run


def _text(path: str) -> tuple[str, bool]:
    """The text of a configuration, and whether it is all of it."""
    try:
        content, more = files.head(path, context.LARGEST)
    except OSError as error:
        raise UnreadableError(f"{path}: {files.why(error)}") from error
    odd = files.not_text(content[: symptoms.SAMPLE])
    if odd:
        raise UnreadableError(f"{path} {odd}")
    return content.decode("utf-8-sig", "replace"), not more


def _print_lock(name: str) -> int:
    stacks = data.stacks()
    lock = nearest.lock_of(stacks, name)
    if lock is None:
        raise UnreadableError(f"there is no stack {name}; there are {', '.join(stack['name'] for stack in stacks)}")
    print(lock, end="")
    return 0


def _own_command() -> str:
    """The command that runs this very program."""
    if os.environ.get("VETTED_DOCTOR"):
        return os.environ["VETTED_DOCTOR"]
    own = sys.argv[0]
    return shlex.join([sys.executable, *(["-m", "doctor"] if Path(own).name == "__main__.py" else [own])])


if __name__ == "__main__":
    sys.exit(main())
