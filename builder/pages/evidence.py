"""Measured evidence of suite and images: data under docs/evidence/, from which the documents' tables are made."""

from __future__ import annotations

import datetime
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from builder.base import errors, machine, reading, sources
from builder.base.project import Project, write
from builder.base.text import word
from builder.pages.records import File

SHOWN = 3  # errors of a file that are shown


T = TypeVar("T", bound=File)


def path(project: Project, name: str) -> Path:
    return project.root / "docs" / "evidence" / f"{name}.json"


def record(project: Project, name: str, command: str, measured: Mapping[str, object], scratch: Path) -> Path:
    """Write a measurement of the suite, with the suite's digest."""
    return store(project, name, {**head(command), "suite": sources.digest(project.smoke), **measured}, scratch)


def head(command: str) -> dict[str, str]:
    """The date, the machine, and the command that measured."""
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": machine.hardware("cpu").hardware_class,
        "command": command,
    }


def store(project: Project, name: str, document: dict[str, Any], scratch: Path) -> Path:
    target = path(project, name)
    write(target, json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False) + "\n", scratch)
    return target


def read(project: Project, model: type[T]) -> T | None:
    """The record of this kind; None when nothing was measured yet. Raises BadInputError when the file is damaged."""
    file = path(project, model.FILE)
    where = project.relative(file)
    restore = f"git checkout {word(where)}"
    try:
        return model.model_validate(reading.json_object(file, where, restore))
    except FileNotFoundError:
        return None
    except ValidationError as error:
        wrong = [
            f"{where}: `{'.'.join(map(str, detail['loc']))}`: {detail['msg']}"
            for detail in error.errors(include_url=False)[:SHOWN]
        ]
        raise errors.BadInputError(
            "\n".join(wrong), cause="the file was edited, or a merge left its marks", next_step=restore
        ) from error
