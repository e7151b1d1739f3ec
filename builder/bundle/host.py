"""The host's own packages: which ones it has, and links to their files."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from builder.base import process

SCRIPT = Path(__file__).parent / "scripts" / "host_distributions.py"


@dataclass(frozen=True)
class HostDistribution:
    """A distribution of the host. `files`, relative to `folder`, is None where the host keeps no list of them."""

    name: str
    version: str
    folder: Path
    files: tuple[str, ...] | None

    @property
    def identity(self) -> list[str]:
        return [self.name, self.version, str(self.folder)]


def distributions(host: Path, names: Sequence[str]) -> list[HostDistribution]:
    """Those of these distributions that the host has, at any version. `host`: its interpreter."""
    result = process.check("listing the host's packages", [str(host), "-E", str(SCRIPT), *names])
    return [
        HostDistribution(name, version, Path(folder), tuple(files) if files is not None else None)
        for name, version, folder, files in json.loads(result.stdout)
    ]


def link(distribution: HostDistribution, environment: Path, site_packages: Path) -> None:
    """Link the files of a distribution of the host into an environment; a file that is there already stays."""
    for file in distribution.files or ():
        source = Path(os.path.normpath(distribution.folder / file))
        inside = Path(os.path.normpath(file))
        if inside.is_absolute() or not source.is_file():
            continue
        if ".." not in inside.parts:
            target = site_packages / inside
        elif source.parent.name == "bin" and not _is_script(source):
            target = environment / "bin" / source.name  # a program; a script would start the host's interpreter
        else:
            continue
        if not os.path.lexists(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(source)


def _is_script(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(2) == b"#!"
