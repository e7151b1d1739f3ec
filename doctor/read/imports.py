"""What the sources of a distribution import from others: by their lines, which takes a hundredth of parsing them.

A line in a docstring looks the same, so what is read here is a candidate; doctor/read/guards.py parses its file.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from doctor.read import files
from doctor.read.distributions import Package

RECORD = 16 * 1024 * 1024  # bytes of a RECORD
LARGEST = 4 * 1024 * 1024  # bytes of a source file
MOST_BYTES = 512 * 1024 * 1024  # bytes of all source files of a distribution
LONGEST = 20_000  # characters of the names of one import
MOST_FILES = 20_000  # source files of a distribution
INDENT = 400  # characters before "import" on its line
FORMAT = 1  # of the cache
# What a wheel carries for its developers is not imported by a run.
ASIDE = re.compile(
    r"(?:^|/)(?:tests?|testing|examples?|benchmarks?|docs?|_?vendor(?:ed)?|third_party|conftest)(?:/|\.py$)"
)
FROM = re.compile(rb"[ \t]*from[ \t]+([A-Za-z_][\w.]*)[ \t]+import[ \t]*")
PLAIN = re.compile(rb"[ \t]*import[ \t]+([^\n;#\\]{1,400})")
NAME = re.compile(r"([A-Za-z_]\w*)")
DOTTED = re.compile(r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*")

# module: name ("" for the module alone): the files that import it
Imports = dict[str, dict[str, list[str]]]


class Line(NamedTuple):
    """A name that a line imports from a module; "" for the module alone."""

    module: str
    name: str


class Sources(NamedTuple):
    """The Python files of a distribution, relative to its folder, and the top-level modules that it brings."""

    python: list[str]
    tops: set[str]
    digest: str  # of its RECORD; "" where a file has another size than its RECORD says


def sources(package: Package) -> Sources | None:
    """The sources of a distribution, by its RECORD; None where it has none, as an editable installation."""
    if package.folder is None or package.info is None:
        return None
    record = files.text(package.info / "RECORD", RECORD)
    python: list[str] = []
    tops: set[str] = set()
    edited = False
    for line in record.splitlines():
        name, _, rest = line.partition(",")
        if name.startswith(("/", '"')) or ".." in name.split("/") or not name.endswith((".py", ".so", ".pyd")):
            continue
        top = name.partition("/")[0]
        tops.add(top.partition(".")[0])
        if name.endswith(".py") and len(python) < MOST_FILES:
            python.append(name)
            edited = edited or not _has_size(package.folder / name, rest.rpartition(",")[2])
    if not python:
        return None
    return Sources(python, tops, "" if edited else hashlib.sha256(record.encode()).hexdigest())


def of_package(package: Package, own: Sources, cache: Path | None = None) -> Imports:
    """All that the sources of a distribution import from other distributions."""
    kept = cache / f"{own.digest}.json" if cache is not None and own.digest else None
    known = _load(kept) if kept is not None else None
    if known is not None:
        return known
    imports = _read(package, own)
    if kept is not None:
        _save(kept, imports)
    return imports


def cache_folder() -> Path:
    """Where what was read of each wheel is kept, by the hash of its RECORD."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")  # noqa: PTH111
    return Path(home) / "vetted" / f"imports-{FORMAT}"


def lines(content: bytes) -> Iterator[Line]:
    """Every name that a line of a source imports from an absolute module."""
    place = 0
    while True:
        place = content.find(b"import", place)
        if place < 0:
            return
        begin = content.rfind(b"\n", max(place - INDENT, 0), place) + 1
        place += 6
        if begin == 0 and place > INDENT:
            continue
        match = FROM.match(content, begin)
        if match is not None and match.end() >= place:
            names, place = _names(content, match.end())
            for name in names:
                yield Line(match[1].decode(), name)
            continue
        match = PLAIN.match(content, begin)
        if match is not None:
            for part in match[1].decode("utf-8", "replace").split(","):
                dotted = DOTTED.match(part.strip())
                if dotted is not None:
                    yield Line(dotted.group(), "")


def _names(content: bytes, place: int) -> tuple[list[str], int]:
    """The names of `from x import`, which begin at a place, and where they end."""
    if content[place : place + 1] == b"(":
        end = content.find(b")", place, place + LONGEST)
        end, text = (end, content[place + 1 : end]) if end >= 0 else (place, b"")
    else:
        end = begin = place
        while begin - place < LONGEST:  # a backslash continues the line
            end = content.find(b"\n", begin, begin + LONGEST)
            if end < 0 or content[end - 1 : end] != b"\\":
                break
            begin = end + 1
        end = end if end >= 0 else min(begin + LONGEST, len(content))
        text = content[place:end].replace(b"\\\n", b" ")
    plain = re.sub(r"#[^\n]*", "", text.decode("utf-8", "replace")).partition(";")[0]
    matches = (NAME.match(part.strip()) for part in plain.split(","))
    return [match.group() for match in matches if match is not None], end


def _read(package: Package, own: Sources) -> Imports:
    assert package.folder is not None
    imports: Imports = {}
    left = MOST_BYTES
    for file in own.python:
        if ASIDE.search(file) or left <= 0:
            continue
        try:
            content, more = files.head(package.folder / file, LARGEST)
        except OSError:
            continue
        left -= len(content)
        if more:
            continue
        for line in set(lines(content)):
            if line.module.partition(".")[0] not in own.tops:
                imports.setdefault(line.module, {}).setdefault(line.name, []).append(file)
    return imports


def _has_size(path: Path, stated: str) -> bool:
    """Is a file as large as its RECORD says? Without a stated size it cannot be told: then it counts as edited."""
    try:
        return os.stat(path).st_size == int(stated)  # noqa: PTH116
    except (OSError, ValueError):
        return False


def _load(path: Path) -> Imports | None:
    try:
        content, more = files.head(path, LARGEST)
        known = json.loads(content) if not more else None
    except (OSError, ValueError, RecursionError):
        return None
    good = isinstance(known, dict) and all(
        isinstance(names, dict)
        and all(isinstance(paths, list) and all(isinstance(file, str) for file in paths) for paths in names.values())
        for names in known.values()
    )
    return known if good else None


def _save(path: Path, imports: Imports) -> None:
    """Keep what was read; a cache that cannot be written is none."""
    part = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.write_text(json.dumps(imports, sort_keys=True, separators=(",", ":")), encoding="utf-8")
        part.replace(path)
    except OSError:
        pass
