"""Readers of files that a person, a merge or a stranger may have damaged.

Their content, or BadInputError that says why not: no file makes the tool hang, fill the memory or end in a traceback.
"""

from __future__ import annotations

import json
import os
import stat
import tomllib
from pathlib import Path
from typing import Any

from builder.base import errors, quantities
from builder.base.text import word

LARGEST = 64 << 20  # bytes; far more than any file that is read completely
WRITTEN = 1 << 20  # bytes of what a person writes by hand


def content(path: Path, where: str, next_step: str = "", most: int = LARGEST) -> bytes:
    """The bytes of a file; `where` is its name in messages. Raises BadInputError; OSError when it cannot be opened."""
    # Without O_NONBLOCK, opening a named pipe waits until another process writes to it.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise errors.BadInputError(
                f"{where} is not a file",
                cause="a folder, a pipe or a device has its name",
                next_step=f"ls -ld {word(where)}",
            )
        with open(descriptor, "rb", closefd=False) as file:
            data = file.read(most + 1)
    finally:
        os.close(descriptor)
    if len(data) > most:
        raise errors.BadInputError(
            f"{where} is larger than {quantities.size(most)}",
            cause="another file was copied here",
            next_step=next_step or f"ls -l {word(where)}",
        )
    return data


def text(path: Path, where: str, next_step: str = "", most: int = LARGEST) -> str:
    """The text of a file. Raises BadInputError; OSError when it cannot be opened."""
    try:
        return content(path, where, next_step, most).decode()
    except UnicodeDecodeError as error:
        raise errors.BadInputError(
            f"{where}: not UTF-8 text: {error}", next_step=next_step or f"correct {word(where)}"
        ) from error


def parse_toml(content: str, where: str, next_step: str = "") -> dict[str, Any]:
    """TOML as a table. Raises BadInputError."""
    try:
        return tomllib.loads(content)
    except (ValueError, RecursionError) as error:
        raise errors.BadInputError(
            f"{where}: not TOML: {error}", next_step=next_step or f"correct {word(where)}"
        ) from error


def json_object(path: Path, where: str, next_step: str = "") -> dict[str, Any]:
    """The object in a JSON file. Raises BadInputError; OSError when it cannot be opened."""
    try:
        document = json.loads(text(path, where, next_step))
    except (ValueError, RecursionError) as error:
        raise errors.BadInputError(
            f"{where}: not JSON: {error}", next_step=next_step or f"correct {word(where)}"
        ) from error
    if not isinstance(document, dict):
        raise errors.BadInputError(f"{where}: not an object", next_step=next_step or f"correct {word(where)}")
    return document
