"""Measured evidence of suite and images: data under docs/evidence/, from which the documents' tables are made."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

from builder.base import machine, reading, sources
from builder.base.project import Project, write


def path(project: Project, name: str) -> Path:
    return project.root / "docs" / "evidence" / f"{name}.json"


def record(project: Project, name: str, command: str, measured: dict[str, Any], scratch: Path) -> Path:
    """Write down what was measured of the suite, with its hash."""
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


def read(project: Project, name: str) -> dict[str, Any] | None:
    """What was recorded, or None. Raises BadInputError when the file is damaged."""
    where = project.relative(path(project, name))
    try:
        return reading.json_object(path(project, name), where, f"git checkout {where}")
    except FileNotFoundError:
        return None
