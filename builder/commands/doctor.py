"""What is wrong with an environment: doctor."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from builder import doctorfile, engine, errors, process, project
from builder.commands.common import AsJson, print_json
from builder.project import write

CONTAINER = (
    "--pull", "never", "--network", "none", "--read-only", "--cap-drop", "ALL", "--security-opt", "no-new-privileges",
    "--env", "VETTED_DOCTOR=vetted doctor",
)  # fmt: skip


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
    """What is wrong with an environment as it is, how that is known, and the way out."""
    # Not at the top: a bundle carries this tool, and no doctor.
    from doctor import __main__ as program
    from doctor.environment import UnreadableError

    if len([one for one in (python, requirements, image) if one is not None]) > 1:
        raise typer.BadParameter("name one of them", param_hint="--python, --requirements or --image")
    if single_file:
        _write(single_file, as_json)
        return
    asked: list[str] = []
    for path in config or ():
        asked += ["--config", path]
    for option, value in (("--launch", launch), ("--error", error), ("--log", log), ("--lock-of", lock_of)):
        asked += [f"{option}={value}"] if value is not None else []
    if as_json:
        asked.append("--json")
    if image is not None:
        raise typer.Exit(_in_image(image, config or [], log, asked))
    if requirements is not None:
        asked.append(f"--requirements={requirements}")
    elif lock_of is None:
        asked.append(f"--python={python or _usual()}")
    try:
        raise typer.Exit(program.answer(asked, "vetted doctor"))
    except UnreadableError as unreadable:
        raise errors.BadInputError(
            str(unreadable), cause="another path was meant", next_step="vetted doctor --help"
        ) from unreadable


def _usual() -> str:
    """The environment that a person is in: the one that is activated, else the first Python that is not our own."""
    own = Path(sys.prefix).resolve()
    if (active := os.environ.get("VIRTUAL_ENV")) and Path(active).resolve() != own:
        return active
    for folder in os.environ.get("PATH", "").split(os.pathsep):
        found = shutil.which("python3", path=folder)
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


def _in_image(image: str, config: list[str], log: str | None, asked: list[str]) -> int:
    """Run the single file inside an image: the image's own Python, and nothing else of it."""
    engine.docker()
    home = project.find()
    with home.holding("doctor") as scratch:
        script = scratch / "doctor.py"
        script.write_bytes(doctorfile.content(home))
        mounts = ["--volume", f"{script}:/vetted/doctor.py:ro"]
        for place, path in enumerate([*config, *([log] if log else [])]):
            if not Path(path).is_file():
                raise errors.BadInputError(f"{path} is not a file", next_step=f"ls -l {path}")
            mounts += ["--volume", f"{Path(path).absolute()}:/vetted/{place}:ro"]
            asked = [
                one.replace(path, f"/vetted/{place}") if path in (one, one.partition("=")[2]) else one for one in asked
            ]
        argv = [
            "docker",
            "run",
            "--rm",
            *CONTAINER,
            *mounts,
            "--entrypoint",
            "python3",
            image,
            "/vetted/doctor.py",
            *asked,
        ]
        done = process.run(argv)
    if done.returncode not in (0, 1):
        if "No such image" in done.stderr or "Unable to find image" in done.stderr:
            raise errors.BadInputError(f"Docker has no image {image}", next_step=f"docker pull {image}")
        if done.returncode in (126, 127):
            raise errors.BadInputError(
                f"{image} has no python3 to look with", next_step="vetted doctor --requirements FILE"
            )
        raise errors.from_tool(f"looking into {image}", done.output, next_step=f"docker image inspect {image}")
    print(done.stdout, end="")
    return done.returncode
