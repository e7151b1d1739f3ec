"""Reading files that a person, a merge or a stranger may have spoiled: what they hold, or BadInputError that says why
not. None makes the tool wait, fill the memory, or end in a traceback."""

from __future__ import annotations

import json
import os
import stat
import tomllib
from pathlib import Path
from typing import Any

from builder.base import errors, quantities

LARGEST = 64 << 20  # bytes; far more than any file that is read whole
WRITTEN = 1 << 20  # bytes of what a person writes by hand


def content(path: Path, where: str, next_step: str = "", most: int = LARGEST) -> bytes:
    """A file's bytes; `where` is how a person would name it. Raises BadInputError; OSError when it cannot be opened."""
    # Without O_NONBLOCK, a named pipe is waited for until somebody writes to it.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise errors.BadInputError(
                f"{where} is not a file", cause="a folder, a pipe or a device in its place", next_step=f"ls -ld {where}"
            )
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(most + 1)
    finally:
        os.close(descriptor)
    if len(data) > most:
        raise errors.BadInputError(
            f"{where} is larger than {quantities.size(most)}",
            cause="another file was copied to this place",
            next_step=next_step or f"ls -l {where}",
        )
    return data


def text(path: Path, where: str, next_step: str = "", most: int = LARGEST) -> str:
    """A file's text. Raises BadInputError; OSError when it cannot be opened."""
    try:
        return content(path, where, next_step, most).decode()
    except UnicodeDecodeError as error:
        raise errors.BadInputError(
            f"{where}: not UTF-8 text: {error}", next_step=next_step or f"correct {where}"
        ) from error


def parse_toml(said: str, where: str, next_step: str = "") -> dict[str, Any]:
    """TOML as a table. Raises BadInputError."""
    try:
        return tomllib.loads(said)
    except (ValueError, RecursionError) as error:
        raise errors.BadInputError(f"{where}: not TOML: {error}", next_step=next_step or f"correct {where}") from error


def json_object(path: Path, where: str, next_step: str = "") -> dict[str, Any]:
    """The object that a JSON file holds. Raises BadInputError; OSError when it cannot be opened."""
    try:
        read = json.loads(text(path, where, next_step))
    except (ValueError, RecursionError) as error:
        raise errors.BadInputError(f"{where}: not JSON: {error}", next_step=next_step or f"correct {where}") from error
    if not isinstance(read, dict):
        raise errors.BadInputError(f"{where}: not an object", next_step=next_step or f"correct {where}")
    return read
