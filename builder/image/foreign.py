"""The root filesystem for another platform than amd64, made without running one of its programs.

Debian's packages set themselves up with scripts, which would have to run on that platform. What they write is the same
on each: users, the bundle of certificates, links to default programs. So the amd64 base is taken, which the same
packages made at the same versions, and the files of amd64's packages are replaced by those of the other platform's.
"""

from __future__ import annotations

import copy
import io
import re
import shutil
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Set
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from builder.base import errors, process, seal
from builder.base.project import Project, sha256, sha256_file
from builder.base.text import word
from builder.image import rootfs
from builder.lock import debian, lockfile
from builder.lock.lockfile import Entry, Lock

RECIPE = 1  # raise it when what is below changes: the same packages then make other bytes
MERGED = re.compile(r"(bin|sbin|lib|lib32|lib64|libx32)(/|$)")  # folders that are links into /usr
# What is amd64's alone: its names, and the folders of its other ABIs, which are empty.
NATIVE = re.compile(r"x86[_-]64|^(usr/)?lib(32|64|x32)(/|$)")
# What dpkg and the loader know of amd64's packages. The loader looks into Debian's folders without a cache too.
RECORDS = re.compile(r"var/lib/dpkg/(status|arch|info/(?!format$).+)|etc/ld\.so\.cache")
BYTECODE = re.compile(r"(?P<folder>.*/)__pycache__/(?P<module>[^/.]+)\.[^/]+\.pyc")


@dataclass(frozen=True)
class Member:
    """A file, folder or link of an archive."""

    header: tarfile.TarInfo
    archive: tarfile.TarFile | None = None
    text: bytes = b""

    def content(self) -> bytes:
        """The bytes of a file; the target of a symbolic link."""
        if self.header.issym():
            return self.header.linkname.encode()
        file = self.archive.extractfile(self.header) if self.archive else None
        return file.read() if file else self.text


Tree = dict[str, Member]


def make(project: Project, native: Lock, lock: Lock, base: Path, scratch: Path, *, fresh: bool = False) -> Path:
    """The root filesystem of a lock for another platform, from the one of its amd64 lock (`native`, `base`).

    It is a tar file below the state, and is made only when the packages or this recipe change, unless `fresh`.
    """
    content = f"root filesystem for {lock.platform.name}, recipe {RECIPE}, of {_packages(lock)}"
    target = base.with_name(f"{base.stem}.{sha256(content.encode()).removeprefix('sha256:')[:16]}.tar")
    sealed = target.with_suffix(".seal")
    if target.is_file() and not fresh and seal.intact(sealed, content, sha256_file(target)):
        return target
    _refuse_other_versions(native, lock)
    work = scratch / "foreign"
    work.mkdir()
    with ExitStack() as stack:
        layers = Layers(stack, work)
        ours = layers.tree(_only(debian.fetch(project, native, scratch), lock))
        theirs = layers.tree(_only(debian.fetch(project, lock, scratch), native))
        both = layers.tree(debian.fetch(project, lock, scratch, _shared(native, lock)).values())
        tree = _replaced(layers.read(base), ours.keys() - both.keys(), both.keys(), theirs)
        tree |= _database(debian.fetch(project, lock, scratch), lock.platform.name, layers)
        partial = work / "rootfs.tar"
        _pack(tree, partial, lock.epoch)
    sealed.unlink(missing_ok=True)
    partial.replace(target)
    seal.put(sealed, content, sha256_file(target), scratch)
    shutil.rmtree(work)
    return target


def _packages(lock: Lock) -> str:
    return " ".join(f"{entry.name}={entry.version}:{entry.sha256}" for entry in lock.debian)


def _shared(native: Lock, lock: Lock) -> list[str]:
    """The packages that are the same file on both platforms."""
    return [entry.name for entry in lock.debian if entry in native.debian]


def _only(files: Mapping[Entry, Path], other: Lock) -> list[Path]:
    return [path for entry, path in files.items() if entry not in other.debian]


def _refuse_other_versions(native: Lock, lock: Lock) -> None:
    known = {entry.name: lockfile.source_version(entry.version) for entry in native.debian}
    for entry in lock.debian:
        if known.get(entry.name, lockfile.source_version(entry.version)) != lockfile.source_version(entry.version):
            raise errors.BadInputError(
                f"{entry.name} is {entry.version} on {lock.platform.name}, and {known[entry.name]} on amd64",
                cause="the base layers were locked on different days",
                next_step=f"vetted lock {word(lock.name)} --upgrade debian",
            )


class Layers:
    """The archives that are open while a tree is made of their members."""

    def __init__(self, stack: ExitStack, work: Path) -> None:
        self.stack = stack
        self.work = work

    def read(self, path: Path) -> Tree:
        archive = self.stack.enter_context(tarfile.open(path))  # noqa: SIM115
        return {_path(header.name): Member(header, archive) for header in archive}

    def tree(self, packages: Iterable[Path]) -> Tree:
        """The files of packages, at their places below a merged /usr."""
        tree: Tree = {}
        for package in packages:
            files = self.read(self.unpacked(package, "--fsys-tarfile"))
            tree |= {_merged(path): member for path, member in files.items()}
        return tree

    def unpacked(self, package: Path, part: str) -> Path:
        """A part of a package as a tar file."""
        target = self.work / f"{package.stem}{part}.tar"
        if not target.exists():
            with target.open("wb") as file, process.running(["dpkg-deb", part, str(package)], stdout=file) as child:
                code = child.wait()
            if code != 0:
                raise errors.StorageError(f"{package} cannot be unpacked", next_step=f"rm {word(package)}")
        return target


def _path(name: str) -> str:
    return name.removeprefix("./").rstrip("/")


def _merged(path: str) -> str:
    return f"usr/{path}" if MERGED.match(path) else path


def _replaced(base: Tree, ours: Set[str], both: Set[str], theirs: Tree) -> Tree:
    """The base with the files of one platform's packages (`ours`) replaced by those of the other's (`theirs`).

    What the packages for every platform have (`both`) stays, and so does what scripts made, if it is not amd64's alone.
    """
    tree: Tree = {}
    for path, member in base.items():
        if RECORDS.fullmatch(path) or _is_stale(path, base, ours, theirs):
            continue
        if path not in theirs:
            if path in both or not (path in ours or NATIVE.search(path)):
                tree[path] = member
        elif theirs[path].header.isdir():  # here it may be a link: /bin, /var/run
            tree[path] = member
        else:
            tree[path] = _with_mode(theirs[path], member.header.mode)
    for path, member in theirs.items():
        if path not in base and path not in ours and not rootfs.left_out(path):
            tree[path] = _with_mode(member, member.header.mode & ~0o6000)
    for path in list(tree):
        while path := path.rpartition("/")[0]:
            tree.setdefault(path, base.get(path) or theirs[path])
    return tree


def _is_stale(path: str, base: Tree, ours: Set[str], theirs: Tree) -> bool:
    """Whether a file is the bytecode of a module that the other platform does not have, or has with other content."""
    match = BYTECODE.fullmatch(path)
    if match is None:
        return False
    source = f"{match['folder']}{match['module']}.py"
    if source not in ours:
        return False
    return source not in theirs or theirs[source].content() != base[source].content()


def _with_mode(member: Member, mode: int) -> Member:
    header = copy.copy(member.header)
    header.mode = mode
    return Member(header, member.archive)


def _database(packages: Mapping[Entry, Path], platform: str, layers: Layers) -> Tree:
    """What dpkg would have written of these packages: scanners read there what an image has."""
    status, tree = [], {}
    for entry, package in sorted(packages.items(), key=lambda item: item[0].name):
        control = process.check(f"reading {entry.name}", ["dpkg-deb", "--field", str(package)]).stdout.rstrip()
        first, _, rest = control.partition("\n")
        status.append(f"{first}\nStatus: install ok installed\n{rest}\n")
        same = re.search(r"^Multi-Arch: same$", control, re.MULTILINE)
        stem = f"var/lib/dpkg/info/{entry.name}{f':{platform}' if same else ''}"
        with tarfile.open(layers.unpacked(package, "--fsys-tarfile")) as archive:
            paths = [f"/{header.name.removeprefix('./').rstrip('/')}" for header in archive]
        tree[f"{stem}.list"] = _file("".join(f"{'/.' if path == '/' else path}\n" for path in paths))
        for path, member in layers.read(layers.unpacked(package, "--ctrl-tarfile")).items():
            if member.header.isfile() and path != "control":
                tree[f"{stem}.{path}"] = member
    return {
        "var/lib/dpkg/status": _file("\n".join(status)),
        "var/lib/dpkg/arch": _file(f"{platform}\n"),
        **tree,
    }


def _file(text: str) -> Member:
    header = tarfile.TarInfo()
    header.size, header.mode = len(text.encode()), 0o644
    return Member(header, text=text.encode())


def _pack(tree: Tree, target: Path, epoch: int) -> None:
    with tarfile.open(target, "w") as archive:
        for path, member, link in _in_order(tree):
            header = copy.copy(member.header)
            header.name = path if path == "." else f"./{path}"
            header.uname = header.gname = ""
            header.mtime = min(int(header.mtime), epoch) if member.archive else epoch
            header.pax_headers = {}
            if link is not None:
                header.type, header.size, header.linkname = tarfile.LNKTYPE, 0, f"./{link}"
            elif header.islnk() or header.isfile():
                content = member.content()
                header.type, header.size, header.linkname = tarfile.REGTYPE, len(content), ""
                archive.addfile(header, io.BytesIO(content))
                continue
            archive.addfile(header)


def _in_order(tree: Tree) -> Iterator[tuple[str, Member, str | None]]:
    """Every member by its path. Of hard links to one file, the first is the file, and the others link to it."""
    first: dict[str, str] = {}
    for path in sorted(tree):
        member = tree[path]
        root = _merged(_path(member.header.linkname)) if member.header.islnk() else path
        if member.header.islnk() or member.header.isfile():
            link = first.setdefault(root, path)
            yield path, member, None if link == path else link
        else:
            yield path, member, None
