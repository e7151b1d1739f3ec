"""Earlier certificates of a stack: the versions of its certificate files that git has."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from builder.base import errors, process
from builder.certify import certificate

# Programs that the repository configures are not started.
GIT = ("git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-c", "log.showSignature=false", "-C")
MOST = 100  # versions that are read of one stack
LARGEST = 4 << 20  # bytes; a certificate has 70 kB
COMMIT = re.compile(r"\x01(?P<commit>[0-9a-f]{40,64}) (?P<day>[0-9-]{10})")
# A file with this path at this commit, in the answers of `git cat-file --batch`.
HEADER = re.compile(rb"[0-9a-f]{40,64} blob (?P<size>[0-9]+)")


@dataclass(frozen=True)
class Version:
    """A certificate file as one commit left it. `day`: of the commit."""

    name: str  # of the file, without .json
    commit: str
    day: str
    content: bytes


def is_shallow(root: Path) -> bool:
    """Does a repository lack its older commits, as CI's do? Without git or a repository, nothing is lacking."""
    with suppress(errors.VettedError):
        return process.run([*GIT, str(root), "rev-parse", "--is-shallow-repository"]).stdout.strip() == "true"
    return False


def versions(folder: Path, scratch: Path) -> list[Version]:
    """Every version of the certificate files in a folder, the newest first. Empty without git or a repository."""
    if not folder.is_dir():
        return []
    with suppress(errors.VettedError):
        return list(_read(folder, list(_committed(folder))[:MOST], scratch))
    return []


def _committed(folder: Path) -> Iterator[tuple[str, str, str]]:
    """Commit, its day, and the path of a certificate that it wrote."""
    log = [
        "log",
        f"--max-count={MOST}",
        "--format=%x01%H %cs",
        "--name-only",
        "--diff-filter=AM",
        "--",
        ":(glob)*.json",
    ]
    commit = day = ""
    for line in process.check("git log", [*GIT, str(folder), *log]).stdout.splitlines():
        if match := COMMIT.fullmatch(line):
            commit, day = match["commit"], match["day"]
        elif line and certificate.NAME.fullmatch(Path(line).stem):
            yield commit, day, line


def _read(folder: Path, committed: list[tuple[str, str, str]], scratch: Path) -> Iterator[Version]:
    names, contents = scratch / "names", scratch / "contents"
    names.write_text("".join(f"{commit}:{path}\n" for commit, _, path in committed), encoding="utf-8")
    with (
        names.open("rb") as request,
        contents.open("wb") as answers,
        process.running([*GIT, str(folder), "cat-file", "--batch"], stdin=request, stdout=answers) as child,
    ):
        child.wait()
    with contents.open("rb") as objects:
        for commit, day, path in committed:
            match = HEADER.fullmatch(objects.readline().rstrip(b"\n"))
            if match is None:  # a shallow clone lacks it
                continue
            content = objects.read(int(match["size"]))
            objects.read(1)
            if len(content) <= LARGEST:
                yield Version(Path(path).stem, commit, day, content)
