"""The one layer of an extension: what its build context has for it, and what must not be in it."""

from __future__ import annotations

import io
import re
import tarfile
from collections.abc import Mapping
from pathlib import Path

from builder.base import errors, pins
from builder.image import overlap
from builder.lock.lockfile import Lock

SOURCE, BUILD = "own-source", "own-build"  # folders of wheels/: own source distributions, and what builds them
CONSTRAINTS = "etc/vetted/constraints.txt"
# What dpkg, the loader and the list of users say of a whole system: more packages change it.
RECORDS = re.compile(
    r"var/lib/dpkg/.*|var/cache/.*|etc/ld\.so\.cache|etc/(passwd|group|shadow|gshadow)-?|etc/subu?gid-?|etc/shells"
    r"|etc/alternatives/.*|var/lib/(systemd|pam)/.*|etc/pam\.d/.*|usr/share/info/dir"
)

# Where other layers and the suite lie, and what the loader and every Python run unasked: never a file of Debian's.
NOT_DEBIANS = re.compile(
    r"(opt|vetted|etc/vetted|usr/local/(s?bin|lib[0-9x]*|libexec)|home/vetted)(/.*)?|etc/ld\.so\.preload"
    r"|usr/lib/python3[.0-9]*/(site|user)customize(/.*|\.pyc?)"
)


def files(lock: Lock, folder: Path, description: str) -> None:
    """Write the files of the layer that no package has: what the image is, and the pins that keep it so.

    pip and uv read the pins as constraints, so an installation into a folder cannot bring another torch.
    """
    for name, text in (
        ("etc/vetted/stack.json", description),
        (CONSTRAINTS, "".join(f"{line}\n" for line in pins.lines(lock.versions))),
    ):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    for path in folder.rglob("*"):  # whatever this machine's umask is
        path.chmod(0o755 if path.is_dir() else 0o644)


def refuse(lock: Lock, archives: Mapping[str, Path]) -> None:
    """Raise BadInputError when own distributions bring what belongs to the parent, or runs unasked.

    `archives`: the files of the lock by distribution, or those of them that are here.
    """
    if not lock.own.python:
        return
    own = [path for name, path in archives.items() if name in lock.own.python and path.suffix == ".whl"]
    parent = [path for name, path in archives.items() if name in lock.versions and name not in lock.own.python]
    if wrong := overlap.findings(own, parent):
        raise errors.BadInputError(
            f"{lock.name}: own packages change what {lock.parent.name} was certified with\n{overlap.in_words(wrong)}",
            cause="a package was published with files of others, such as tests/ or a hook that patches torch",
            next_step="leave it out, or take another version of it",
        )


def debian(base: Path, whole: Path, target: Path) -> None:
    """Write what a root filesystem has more than its base, as a tar file. Raises BadInputError where it has other
    files in place of the base's, or files where other layers lie: the tar file comes last, and would win.

    Above every file come the folders that lead to it: the layer says their owners and modes again.
    """
    changed, strange = list[str](), list[str]()
    with tarfile.open(base) as old, tarfile.open(whole) as new, tarfile.open(target, "w") as layer:
        before = {_path(member.name): member for member in old}
        after = {_path(member.name): member for member in new}
        added: set[str] = set()
        for path, member in after.items():
            there = before.get(path)
            if there is not None and _same(old, there, new, member):
                continue
            if there is not None and not RECORDS.fullmatch(path) and not (there.isdir() and member.isdir()):
                changed.append(path)
            if there is None and not member.isdir() and NOT_DEBIANS.fullmatch(path):
                strange.append(path)
            added |= {path, *_above(path)}
        changed += [path for path in before.keys() - after.keys() if not RECORDS.fullmatch(path)]
        for path, member in after.items():  # in the order of the archive: a folder comes before what is in it
            if path in added:
                layer.addfile(member, new.extractfile(member) if member.isreg() else None)
    if changed:
        raise errors.BadInputError(
            f"own Debian packages change files of the base layer: {', '.join(sorted(changed)[: overlap.MOST])}",
            cause="a package diverts or replaces what another one has",
            next_step="leave it out of `debian` in [extends]",
        )
    if strange:
        raise errors.BadInputError(
            f"own Debian packages bring files where other layers have theirs: "
            f"{', '.join(sorted(strange)[: overlap.MOST])}",
            cause="the package is not Debian's own: those leave /opt and /usr/local alone",
            next_step="leave it out of `debian` in [extends]",
        )


def _path(name: str) -> str:
    return name.removeprefix("./").rstrip("/")


def _above(path: str) -> set[str]:
    return {str(folder) for folder in Path(path).parents if str(folder) != "."}


def _same(old: tarfile.TarFile, entry: tarfile.TarInfo, new: tarfile.TarFile, other: tarfile.TarInfo) -> bool:
    """Whether two members are the same but for their time."""
    for key in ("type", "mode", "uid", "gid", "linkname"):
        if getattr(entry, key) != getattr(other, key):
            return False
    if not entry.isreg():
        return True
    return entry.size == other.size and _content(old, entry) == _content(new, other)


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    return (archive.extractfile(member) or io.BytesIO()).read()
