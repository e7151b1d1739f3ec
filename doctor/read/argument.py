"""What a path on the command line is, by what is in it: a log, an environment, a list or a configuration."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from doctor.read import contents, files, interpreters
from doctor.read.files import UnreadableError

ENVIRONMENTS = ("python", "requirements")  # the options that name an environment
WORDS = {"python": "an environment", "requirements": "a list of packages", "config": "a configuration", "log": "a log"}
SAMPLE, END = 1024 * 1024, 64 * 1024  # bytes of the beginning and of the end that are looked at
LARGEST = 8 * 1024 * 1024  # bytes of the largest list; more than that is a log
PROGRAMS = (b"\x7fELF", b"MZ", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")
INSIDE = ("pyvenv.cfg", "conda-meta")  # of the folder of an environment
USUAL = (".venv", "venv", "env")  # environments in the folder of a project


class Given(NamedTuple):
    """A path, and the option that it stands for: python, requirements, config or log."""

    option: str
    path: str

    def __str__(self) -> str:
        return f"{self.path} ({WORDS[self.option]})"


class Sources(NamedTuple):
    """Everything that was named, by options and by paths. At most one environment."""

    environment: Given | None
    configurations: list[str]
    logs: list[str]
    paths: list[Given]  # those without an option, and what each was taken for


class UndecidedError(UnreadableError):
    """A path that may be several things, or is none of them; the message names the options that say which."""


def merged(
    paths: Sequence[str], python: str | None, requirements: str | None, configurations: Sequence[str],
    logs: Sequence[str],
) -> Sources:  # fmt: skip
    """What options and paths name together. Raises UnreadableError for a path that is none, and two environments."""
    given = [of(path) for path in paths]
    named = [Given(option, path) for option, path in (("python", python), ("requirements", requirements)) if path]
    environments = list(dict.fromkeys([*named, *(each for each in given if each.option in ENVIRONMENTS)]))
    if len(environments) > 1:
        raise UnreadableError(
            f"{' and '.join(map(str, environments[:2]))} both say what is installed: name one of them; "
            "what a list leaves out, the environment itself has"
        )
    return Sources(
        environments[0] if environments else None,
        [*configurations, *(each.path for each in given if each.option == "config")],
        [*logs, *(each.path for each in given if each.option == "log")],
        given,
    )


def of(path: str) -> Given:
    """What a path is. Raises UnreadableError where it cannot be read, and UndecidedError."""
    if files.is_folder(path):
        return _of_folder(path)
    if not files.exists(path):
        if interpreters.INTERPRETER.fullmatch(path) and shutil.which(path):
            return Given("python", path)
        raise UnreadableError(f"{path} does not exist")
    try:
        with files.opened(path) as file:
            size = os.fstat(file.fileno()).st_size
            head = file.read(SAMPLE)
            file.seek(max(size - END, len(head)))
            tail = file.read(END)
    except OSError as error:
        raise UnreadableError(f"{path}: {files.why(error)}") from error
    if head.startswith((*PROGRAMS, b"#!")) and interpreters.INTERPRETER.fullmatch(Path(path).name):
        return Given("python", path)
    if head.startswith(PROGRAMS):
        raise UndecidedError(f"{path} is a program whose name is no Python's; if it is one: --python {path}")
    if odd := files.not_text(head[:END]):
        raise UnreadableError(f"{path} {odd}")
    if size > LARGEST:
        return Given("log", path)
    whole = size <= SAMPLE
    option, looks = contents.kind(head.decode("utf-8-sig", "replace"), tail.decode("utf-8", "replace"), whole=whole)
    if option:
        return Given(option, path)
    raise UndecidedError(f"{path} {looks}")


def _of_folder(path: str) -> Given:
    try:
        inside = set(files.names(path)[0])
    except OSError as error:
        raise UnreadableError(f"{path}: {files.why(error)}") from error
    root = Path(path)
    if (
        inside.intersection(INSIDE)
        or root.name in ("site-packages", "dist-packages")
        or any(name.endswith((".dist-info", ".egg-info")) for name in inside)
        or any(files.matching(root / library, "python3*") for library in ("lib", "lib64"))
        or files.is_folder(root / "Lib" / "site-packages")
    ):
        return Given("python", path)
    own = next((name for name in USUAL if files.exists(root / name / "pyvenv.cfg")), None)
    if own is not None:
        raise UndecidedError(f"{path} is a folder of a project, and no environment; {root / own} is one: name that")
    raise UndecidedError(
        f"{path} is a folder, and no environment: it has neither pyvenv.cfg nor conda-meta, and no packages; "
        f"if it is one: --python {path}"
    )
