"""What is wrong with an environment: doctor."""

from __future__ import annotations

import os
import secrets
import shlex
import shutil
import sys
import time
from pathlib import Path
from typing import Annotated

import typer

from builder.base import errors, process, project
from builder.base.project import write
from builder.commands.common import AsJson, print_json
from builder.image import daemon
from builder.pages import doctorfile

CONTAINER = (
    "--pull", "never", "--network", "none", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges",
    "--memory", "2g", "--pids-limit", "64", "--env", "VETTED_DOCTOR=vetted doctor",
)  # fmt: skip
SECONDS, MOST_SAID = 120, 16 * 1024 * 1024  # for what an image's Python answers, which may be anything


def doctor_(
    python: Annotated[
        str | None,
        typer.Option(
            metavar="PATH", help="An interpreter, a virtual environment, or a site-packages folder.", show_default=False
        ),
    ] = None,
    requirements: Annotated[
        str | None, typer.Option(metavar="FILE", help="A freeze, a lock, or requirements.", show_default=False)
    ] = None,
    image: Annotated[
        str | None, typer.Option(metavar="REF", help="An image that Docker has.", show_default=False)
    ] = None,
    config: Annotated[
        list[str] | None,
        typer.Option(
            metavar="FILE",
            help="Training, accelerate or DeepSpeed configuration, or the script; may be repeated.",
            show_default=False,
        ),
    ] = None,
    launch: Annotated[
        str | None, typer.Option(metavar="COMMAND", help="How it is launched, as you type it.", show_default=False)
    ] = None,
    error: Annotated[str | None, typer.Option(metavar="TEXT", help="The error.", show_default=False)] = None,
    log: Annotated[str | None, typer.Option(metavar="FILE", help="A log of the run.", show_default=False)] = None,
    lock_of: Annotated[
        str | None, typer.Option(metavar="STACK", help="Print the lock of a stack, and nothing else.", hidden=True)
    ] = None,
    single_file: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write the doctor as one file that any Python 3.9 runs.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Diagnose an environment: what is wrong, and the fix.

    Every finding says how it is known.
    """
    # Not at the top: a bundle carries this tool, and no doctor.
    from doctor import __main__ as program
    from doctor.base import terminal
    from doctor.read.environment import UnreadableError

    if len([one for one in (python, requirements, image) if one is not None]) > 1:
        raise typer.BadParameter("name one of them", param_hint="--python, --requirements or --image")
    if single_file:
        _write(single_file, as_json)
        return
    asked = ["--json"] if as_json else []
    for option, value in (("--launch", launch), ("--error", error), ("--lock-of", lock_of)):
        asked += [f"{option}={value}"] if value is not None else []
    given = [*(("--config", path) for path in config or ()), *([("--log", log)] if log is not None else [])]
    if image is not None:
        raise typer.Exit(_in_image(image, given, asked))
    asked += [f"{option}={path}" for option, path in given]
    if requirements is not None:
        asked.append(f"--requirements={requirements}")
    elif lock_of is None:
        asked.append(f"--python={python or _usual()}")
    try:
        raise typer.Exit(program.answer(asked, "vetted doctor"))
    except UnreadableError as unreadable:
        raise errors.BadInputError(
            terminal.line(str(unreadable)), cause="another path was meant", next_step="vetted doctor --help"
        ) from unreadable


def _usual() -> str:
    """The environment that a person is in: the one that is activated, else the first Python that is not our own."""
    own = Path(sys.prefix).resolve()
    if (active := os.environ.get("VIRTUAL_ENV")) and Path(active).resolve() != own:
        return active
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        found = shutil.which("python3", path=folder) if os.path.isabs(folder) else None  # noqa: PTH117
        if found and not Path(found).absolute().is_relative_to(own):
            return found
    raise errors.BadInputError(
        "no Python is on PATH but this tool's own", next_step="vetted doctor --python PATH, or --requirements FILE"
    )


def _write(target: Path, as_json: bool) -> None:
    home = project.find()
    data = doctorfile.content(home)
    with home.holding("doctor") as scratch:
        write(target.absolute(), data, scratch)
    if as_json:
        print_json({"written": str(target), "bytes": len(data), "digest": project.sha256(data)})
    else:
        print(f"{target}: {len(data) // 1024} KB; python3 {target} runs it, wherever Python 3.9 or newer is")


def _in_image(image: str, given: list[tuple[str, str]], asked: list[str]) -> int:
    """Run the single file inside an image: the image's own Python, and nothing else of it."""
    from doctor.base import terminal

    daemon.docker()
    home = project.find()
    with home.holding("doctor") as scratch:
        script = scratch / "doctor.py"
        script.write_bytes(doctorfile.content(home))
        mounts = _mount(script, "/vetted/doctor.py")
        for place, (option, path) in enumerate(given):
            if not Path(path).is_file():
                raise errors.BadInputError(f"{path} is not a file", next_step=f"ls -l {shlex.quote(path)}")
            mounts += _mount(Path(path).absolute(), f"/vetted/{place}")
            asked = [*asked, f"{option}=/vetted/{place}"]
        name = f"vetted-doctor-{secrets.token_hex(8)}"
        argv = ["docker", "run", "--rm", "--name", name, *CONTAINER, *mounts,
                "--entrypoint", "python3", image, "/vetted/doctor.py", *asked]  # fmt: skip
        code, said, complaint = _bounded(argv, name, scratch)
    if code not in (0, 1):
        if "No such image" in complaint or "Unable to find image" in complaint:
            raise errors.BadInputError(f"Docker has no image {image}", next_step=f"docker pull {image}")
        if code in (126, 127):
            raise errors.BadInputError(
                f"{image} has no python3 to look with", next_step="vetted doctor --requirements FILE"
            )
        complaint = terminal.text((said + complaint)[-4000:])
        raise errors.from_tool(f"looking into {image}", complaint, next_step=f"docker image inspect {image}")
    terminal.write(said)
    return code


def _mount(source: Path, target: str) -> list[str]:
    """A file for a container, under any name: the value is one line of CSV."""
    quoted = str(source).replace('"', '""')
    return ["--mount", f'type=bind,"source={quoted}",target={target},readonly']


def _bounded(argv: list[str], name: str, scratch: Path) -> tuple[int, str, str]:
    """Exit code, output and complaints of a container that may say anything, for so long and so much."""
    printed = [scratch / "stdout", scratch / "stderr"]
    ended = False
    try:
        with (
            printed[0].open("wb") as out,
            printed[1].open("wb") as err,
            process.running(argv, stdout=out, stderr=err) as child,
        ):
            ends = time.monotonic() + SECONDS
            while child.poll() is None:
                large = any(one.stat().st_size > MOST_SAID for one in printed)
                if large or time.monotonic() > ends:
                    raise errors.BadInputError(
                        f"its Python printed more than {MOST_SAID // 1024**2} MB" if large else
                        f"its Python gave no answer within {SECONDS} seconds",
                        cause="python3 in this image is not a Python, or something runs whenever it starts",
                        next_step="vetted doctor --requirements FILE, with what pip freeze says in it",
                    )  # fmt: skip
                time.sleep(0.02)
            ended = True
    finally:
        if not ended:  # Docker's client is gone, its container is not
            process.run(["docker", "rm", "--force", name], timeout=60)
    texts = []
    for one in printed:
        with one.open("rb") as file:
            texts.append(file.read(MOST_SAID).decode("utf-8", "replace"))
    return child.returncode, texts[0], texts[1]
