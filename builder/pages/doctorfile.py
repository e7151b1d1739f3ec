"""The doctor as a single file: an archive that Python runs under any name, with `packaging` and the suite inside."""

from __future__ import annotations

import importlib.util
import io
import zipfile
from pathlib import Path

from builder.base import errors
from builder.base.project import Project

MAIN = "import sys\nfrom doctor.__main__ import main\nsys.exit(main())\n"
FIRST = b"#!/usr/bin/env python3\n"
EPOCH = (1980, 1, 1, 0, 0, 0)


def content(project: Project) -> bytes:
    """The archive: the same bytes for the same sources. Raises BadInputError before `vetted render` wrote the data."""
    folder = project.root / "doctor"
    if not (folder / "know" / "data.json").is_file():
        raise errors.BadInputError("doctor/know/data.json does not exist", next_step="vetted render")
    files = {path.relative_to(project.root).as_posix(): path for path in _sources(folder)}
    files |= {path.relative_to(project.root).as_posix(): path for path in sorted(project.smoke.rglob("*.py"))}
    files |= {f"packaging/{path.name}": path for path in sorted(_packaging().glob("*.py"))}
    buffer = io.BytesIO()
    buffer.write(FIRST)
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in [
            ("__main__.py", MAIN.encode()),
            *((name, path.read_bytes()) for name, path in files.items()),
        ]:
            entry = zipfile.ZipInfo(name, EPOCH)
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return buffer.getvalue()


def is_one(content: bytes) -> bool:
    """Whether a file is such an archive, of any version."""
    return content.startswith(FIRST) and b"doctor/__main__.py" in content


def _sources(folder: Path) -> list[Path]:
    return sorted(
        path
        for path in folder.rglob("*")
        if path.suffix in (".py", ".json", ".jsonl", ".gz") and "__pycache__" not in path.parts
    )


def _packaging() -> Path:
    spec = importlib.util.find_spec("packaging")
    assert spec is not None and spec.origin is not None
    return Path(spec.origin).parent
