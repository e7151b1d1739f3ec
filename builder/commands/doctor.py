"""What is wrong with an environment: doctor."""

from __future__ import annotations

import os
import re
import secrets
import shlex
import shutil
import sys
import time
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import typer

from builder.base import errors, ownership, process, project, quantities
from builder.base.project import write
from builder.base.text import word
from builder.commands import usage
from builder.commands.common import AsJson, print_json
from builder.image import daemon
from builder.pages import doctorfile

CONTAINER = (
    "--pull", "never", "--network", "none", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges",
    "--memory", "2g", "--pids-limit", "64",
)  # fmt: skip
SECONDS, OUTPUT = 120, 16 * 1024 * 1024  # limits on what an image's Python answers, which may be anything
QUOTED = 4000  # characters of the output of a container that failed

PathsArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[PATH]...", help="A log, an environment, a list of packages or a configuration.", show_default=False
    ),
]
PythonOption = Annotated[
    str | None,
    typer.Option(
        metavar="PATH", help="An interpreter, a virtual environment, or a site-packages folder.", show_default=False
    ),
]
RequirementsOption = Annotated[
    str | None, typer.Option(metavar="FILE", help="A freeze, a lock, or requirements.", show_default=False)
]
ImageOption = Annotated[str | None, typer.Option(metavar="REF", help="An image that Docker has.", show_default=False)]
ConfigOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FILE",
        help="Training, accelerate or DeepSpeed configuration, or the script; may be repeated.",
        show_default=False,
    ),
]
LaunchOption = Annotated[
    str | None, typer.Option(metavar="COMMAND", help="The launch command, as you type it.", show_default=False)
]
ErrorOption = Annotated[
    str | None, typer.Option(metavar="TEXT", help="The error, as it was printed.", show_default=False)
]
LogOption = Annotated[
    list[str] | None, typer.Option(metavar="FILE", help="A log of the run; may be repeated.", show_default=False)
]
LockOption = Annotated[
    str | None, typer.Option(metavar="STACK", help="Print the lock of a stack, and nothing else.", hidden=True)
]
AllOption = Annotated[bool, typer.Option("--all", help="Print every finding in full.", show_default=False)]
MeasureOption = Annotated[
    bool,
    typer.Option(
        "--measure", help="Also run the quick probes there: about a minute; writes nothing there.", show_default=False
    ),
]
MeasureAllOption = Annotated[
    bool, typer.Option("--measure-all", help="Also run the long probes there: some minutes.", show_default=False)
]
DeviceOption = Annotated[
    Literal["cpu", "cuda"] | None,
    typer.Option(help="What --measure runs on. Default: cuda where torch and the machine have it.", show_default=False),
]
FileOption = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="Write the doctor as one file that any Python 3.9 runs.", show_default=False),
]


DIAGNOSIS = (
    "paths", "python", "requirements", "image", "config", "launch", "error", "log", "measure", "measure_all", "device",
    "everything",
)  # fmt: skip


class Answer(NamedTuple):
    """The exit code and the output of a container."""

    code: int
    stdout: str
    stderr: str


def doctor_(
    context: typer.Context,
    paths: PathsArgument = None,
    python: PythonOption = None,
    requirements: RequirementsOption = None,
    image: ImageOption = None,
    config: ConfigOption = None,
    launch: LaunchOption = None,
    error: ErrorOption = None,
    log: LogOption = None,
    measure: MeasureOption = False,
    measure_all: MeasureAllOption = False,
    device: DeviceOption = None,
    lock_of: LockOption = None,
    single_file: FileOption = None,
    everything: AllOption = False,
    as_json: AsJson = False,
) -> None:
    """Diagnose an environment: what is wrong, and the fix.

    What is in a PATH decides what it is. Every finding says how it is known.
    """
    if sum(place is not None for place in (python, requirements, image)) > 1:
        raise typer.BadParameter("name one of them", param_hint="--python, --requirements or --image")
    if not measure and not measure_all:
        usage.refuse(context, ("device",), "goes with --measure or --measure-all")
    if single_file:
        usage.refuse(context, (*DIAGNOSIS, "lock_of"), "does not go with --single-file, which diagnoses nothing")
        _write(single_file, as_json)
        return
    if lock_of is not None:
        usage.refuse(context, DIAGNOSIS, "does not go with --lock-of, which prints a lock and diagnoses nothing")
    arguments = [*(["--json"] if as_json else []), *(["--all"] if everything else [])]
    if measure or measure_all:
        if image is not None:
            raise errors.BadInputError(
                "--measure runs probes, and --image looks into a container that may write nothing",
                next_step=f"{_command()} --single-file doctor.py; then, in a container: python3 doctor.py --measure",
            )
        arguments += ["--measure-all" if measure_all else "--measure", *([f"--device={device}"] if device else [])]
    for option, value in (("--launch", launch), ("--error", error), ("--lock-of", lock_of)):
        arguments += [f"{option}={value}"] if value is not None else []
    paths = [f"./{path}" if path.startswith("-") else path for path in paths or ()]
    files = [*(("--config", path) for path in config or ()), *(("--log", path) for path in log or ())]
    if image is not None:
        raise typer.Exit(_in_image(image, [*files, *_for_image(paths)], arguments))
    arguments += [f"{option}={path}" for option, path in files]
    for option, place in (("--requirements", requirements), ("--python", python)):
        arguments += [f"{option}={place}"] if place is not None else []
    raise typer.Exit(_here([*arguments, *paths]))


def _command() -> str:
    """The command that runs the doctor, as the user's shell has it: `./vetted` is not on PATH."""
    return f"{shlex.quote(os.environ.get('VETTED_COMMAND') or 'vetted')} doctor"


def _here(arguments: list[str]) -> int:
    """Run the doctor in this process."""
    # Not at the top: a bundle carries this tool, and no doctor.
    from doctor import __main__ as program
    from doctor.base import terminal
    from doctor.read import pythons
    from doctor.read.environment import Environment
    from doctor.read.files import UnreadableError

    def usual() -> Environment | None:
        return pythons.of_path(place) if (place := _usual_python()) else None

    try:
        return program.answer(arguments, _command(), str(Path(sys.prefix) / "bin"), usual)
    except program.NoEnvironmentError as none:
        raise errors.BadInputError(
            "the only Python on PATH is this tool's own",
            next_step=f"{_command()} --python PATH, or --requirements FILE",
        ) from none
    except UnreadableError as unreadable:
        raise errors.BadInputError(
            terminal.line(str(unreadable)), cause="another path was meant", next_step=f"{_command()} --help"
        ) from unreadable


def _for_image(paths: list[str]) -> list[tuple[str, str]]:
    """Paths as options of the doctor in a container. Raises BadInputError for an environment: the image is one."""
    from doctor.base import terminal
    from doctor.read import argument
    from doctor.read.files import UnreadableError

    try:
        known = [argument.of(path) for path in paths]
    except UnreadableError as unreadable:
        raise errors.BadInputError(terminal.line(str(unreadable)), next_step=f"{_command()} --help") from unreadable
    if own := next((each for each in known if each.option in argument.ENVIRONMENTS), None):
        raise errors.BadInputError(
            terminal.line(f"{own} and the image both say what is installed"),
            next_step=f"{_command()} {word(own.path)}, or --image without it",
        )
    return [(f"--{each.option}", each.path) for each in known]


def _usual_python() -> str | None:
    """The environment that is active, else the first Python on PATH that is not this tool's own."""
    own = Path(sys.prefix).resolve()
    if (active := os.environ.get("VIRTUAL_ENV")) and Path(active).resolve() != own:
        return active
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        executable = shutil.which("python3", path=folder) if os.path.isabs(folder) else None  # noqa: PTH117
        if executable and not Path(executable).absolute().is_relative_to(own):
            return executable
    return None


def _write(target: Path, as_json: bool) -> None:
    home = project.find()
    data = doctorfile.content(home)
    ownership.refuse(target, doctorfile.is_one, "name another file with --single-file")
    with home.holding(".doctor") as scratch:
        write(target.absolute(), data, scratch)
    if as_json:
        print_json({"written": str(target), "bytes": len(data), "digest": project.sha256(data)})
    else:
        print(f"{target}: {quantities.size(len(data))}; run it with Python 3.9 or newer: python3 {target}")


def _in_image(image: str, files: list[tuple[str, str]], arguments: list[str]) -> int:
    """Run the single file in a container of the image: the image's own Python, and nothing else of it."""
    from doctor.base import terminal

    if image.startswith("-"):
        raise errors.BadInputError(f"{image} is no name of an image", next_step="docker images")
    daemon.docker()
    home = project.find()
    with home.holding(".doctor") as scratch:
        script = scratch / "doctor.py"
        script.write_bytes(doctorfile.content(home))
        mounts = _mount(script, "/vetted/doctor.py")
        for place, (option, path) in enumerate(files):
            if not Path(path).is_file():
                raise errors.BadInputError(f"{path} is not a file", next_step=f"ls -l {word(path)}")
            name = re.sub(r"[^\w.-]", "_", Path(path).name)  # its suffix says how a configuration is read
            mounts += _mount(Path(path).absolute(), f"/vetted/{place}/{name}")
            arguments = [*arguments, f"{option}=/vetted/{place}/{name}"]
        container = f"vetted-doctor-{secrets.token_hex(8)}"
        argv = ["docker", "run", "--rm", "--name", container, *CONTAINER,
                "--env", f"VETTED_DOCTOR={_command()}", *mounts,
                "--entrypoint", "python3", image, "/vetted/doctor.py", *arguments]  # fmt: skip
        answer = _run(argv, container, scratch)
    if answer.code in (0, 1):
        terminal.write(answer.stdout)
        return answer.code
    if "No such image" in answer.stderr or "Unable to find image" in answer.stderr:
        raise errors.BadInputError(f"Docker has no image {image}", next_step=f"docker pull {word(image)}")
    if "invalid reference format" in answer.stderr:
        raise errors.BadInputError(f"{image} is no name of an image", next_step="docker images")
    if answer.code in (126, 127):
        raise errors.BadInputError(f"{image} has no python3", next_step=f"{_command()} --requirements FILE")
    output = terminal.text((answer.stdout + answer.stderr)[-QUOTED:])
    raise errors.from_tool(f"looking into {image}", output, next_step=f"docker image inspect {word(image)}")


def _mount(source: Path, target: str) -> list[str]:
    """A read-only file for a container; the path may have any name, because the value is one line of CSV."""
    quoted = str(source).replace('"', '""')
    return ["--mount", f'type=bind,"source={quoted}",target={target},readonly']


def _run(argv: list[str], container: str, scratch: Path) -> Answer:
    """Run a container within limits of time and output. Raises BadInputError beyond them."""
    outputs = [scratch / "stdout", scratch / "stderr"]
    ended = False
    try:
        with (
            outputs[0].open("wb") as stdout,
            outputs[1].open("wb") as stderr,
            process.running(argv, stdout=stdout, stderr=stderr) as child,
        ):
            deadline = time.monotonic() + SECONDS
            while child.poll() is None:
                large = any(path.stat().st_size > OUTPUT for path in outputs)
                if large or time.monotonic() > deadline:
                    raise errors.BadInputError(
                        f"its Python printed more than {quantities.size(OUTPUT)}" if large else
                        f"its Python gave no answer within {SECONDS} seconds",
                        cause="python3 in this image is not a Python, or something runs whenever it starts",
                        next_step=f"{_command()} --requirements FILE, with the output of pip freeze",
                    )  # fmt: skip
                time.sleep(0.02)
            ended = True
    finally:
        if not ended:  # Docker's client is gone, its container is not
            process.run(["docker", "rm", "--force", container], timeout=60)
    return Answer(child.returncode, *(_text(path) for path in outputs))


def _text(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(OUTPUT).decode("utf-8", "replace")
