"""The rows of a dataset in JSON lines: is each an object, has each column one type, is there a prompt?"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from runtime.check import Check
from runtime.config.names import nearest

LARGEST = 32 * 1024 * 1024  # bytes that are read; the check takes a second, not minutes
PROMPTS = ("grpo", "rloo")  # trainers that need a column `prompt`


def look(file: Path, name: str, script: str, columns: set[str]) -> Iterator[Check]:
    """Checks of a file, which is called `name` in messages. Adds the names of its columns to `columns`."""
    if check := _broken(file, name, columns):
        yield check
    elif not columns:
        yield Check("stop", f"{name} is empty", 'give lines such as {"prompt": "2 + 2 ="}')
    elif script in PROMPTS and "prompt" not in columns:
        close = nearest("prompt", columns)
        message = f"{name} has no column prompt; it has {', '.join(sorted(columns))}"
        yield Check("stop", message, f"rename {close} to prompt" if close else "name the text to complete prompt")


def _broken(file: Path, name: str, columns: set[str]) -> Check | None:
    kinds: dict[str, tuple[str, int]] = {}
    read = 0
    try:
        with file.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                read += len(line)
                if read > LARGEST:
                    return None
                if not line.strip():
                    continue
                row = json.loads(line)
                if not isinstance(row, dict):
                    return Check(
                        "stop", f"{name}:{number}: this line is no JSON object", 'such as {"prompt": "2 + 2 ="}'
                    )
                columns.update(row)
                if message := _changed(row, number, kinds):
                    return Check("stop", f"{name}:{number}: {message}", "a column has one type")
    except OSError as error:
        return Check("stop", f"{name} cannot be read: {error.strerror}", f"chmod a+r {name}")
    except (ValueError, RecursionError) as error:
        return Check("stop", f"{name}:{number}: this line is not JSON: {error}", "give one JSON object a line")
    return None


def _changed(row: dict[str, Any], number: int, kinds: dict[str, tuple[str, int]]) -> str:
    """What is wrong if a column has another type than in an earlier row. `kinds`: column -> its type, and the row."""
    for column, value in row.items():
        kind = _kind(value)
        first, where = kinds.setdefault(column, (kind, number)) if kind else ("", 0)
        if kind != first:
            return f"{column} is {kind} here, and {first} in line {where}"
    return ""


def _kind(value: Any) -> str:
    """The type as Arrow sees it; empty for null."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true or false"
    for kind, words in ((str, "text"), (dict, "an object"), (list, "a list")):
        if isinstance(value, kind):
            return words
    return "a number"
