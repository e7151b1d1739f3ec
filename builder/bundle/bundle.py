"""A bundle: everything that a GPU host without a network needs to install a stack and earn its certificate.

It is one archive, cut into parts that can be carried one by one, with a manifest of their checksums and an entry
script (unbundle.py). The same lock, suite and tool give the same bytes; what was downloaded is kept by its hash, so
an interrupted `vetted bundle` goes on where it was.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import re
import shutil
import tarfile
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from builder.base import errors, reading, sources
from builder.base.project import Project, sha256_file, write
from builder.bundle import offline as bundled
from builder.bundle import unbundle
from builder.bundle.offline import Carried, Contents
from builder.image import render
from builder.intent.stack import Stack
from builder.lock import archives, debian, index, lockfile
from builder.lock.index import File
from builder.lock.lockfile import Entry, Lock

Report = Callable[[str], None]

TOOL = Path(__file__).parents[1]
ENTRY = "run.py"
DOWNLOADS = archives.FOLDER
OLDEST_PYTHON = (3, 11)  # that the verifier, which is this tool, runs on
CHUNK = 1 << 20
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


@dataclass(frozen=True)
class Made:
    """A bundle that was written."""

    folder: Path
    contents: Contents
    digest: str
    parts: int
    size: int


def parse_size(text: str) -> int:
    """60M in bytes; K, M and G are powers of 1024. Raises ValueError."""
    match = re.fullmatch(r"([0-9]{1,12})([KMG]?)i?B?", text.strip(), re.IGNORECASE)
    size = int(match[1]) * UNITS[match[2].upper()] if match else 0
    if size < 1024:
        raise ValueError(f"{text!r} is not a size such as 60M, of at least 1K")
    return size


def parse_have(text: str, where: str) -> dict[str, str]:
    """Normalised name to version, from `pip freeze` or `uv pip freeze`. Raises BadInputError.

    What has no version there (an editable install, a URL) is not known to be the locked one, so it counts for nothing.
    """
    have: dict[str, str] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        line = line.partition(" #")[0].strip()
        if not line or line.startswith(("#", "-")):
            continue
        try:
            requirement = Requirement(line)
        except InvalidRequirement as error:
            raise errors.BadInputError(
                f"{where}, line {number}: not what `pip freeze` prints: {line[:80]!r}",
                cause="the file holds something else, or other output got into it",
                next_step="on the host: python3 -m pip freeze > freeze.txt",
            ) from error
        pinned = [one.version for one in requirement.specifier if one.operator in ("==", "===")]
        if len(pinned) == 1 and len(requirement.specifier) == 1:
            have[canonicalize_name(requirement.name)] = pinned[0]
    return have


def read_have(path: Path) -> dict[str, str]:
    again = "on the host: python3 -m pip freeze > freeze.txt"
    try:
        return parse_have(reading.text(path, str(path), again), str(path))
    except FileNotFoundError as error:
        raise errors.BadInputError(f"{path} does not exist", next_step=again) from error


def left_out(lock: Lock, have: Mapping[str, str]) -> list[str]:
    """What the host has at the locked version and nothing patches: a patch never touches a host's own file."""
    patched = {canonicalize_name(patch.package) for patch in lock.stack.patch}
    return [e.name for e in lock.python if have.get(e.name) == e.version and e.name not in patched]


def make(
    project: Project,
    lock: Lock,
    output: Path,
    scratch: Path,
    part_size: int,
    python: str,
    have: Mapping[str, str],
    report: Report,
) -> Made:
    """Write the bundle of a lock into a folder that is empty or holds an earlier bundle."""
    if tuple(int(part) for part in python.split(".")) < OLDEST_PYTHON:
        raise errors.BadInputError(
            f"a bundle for Python {python} cannot be made: what runs there needs {'.'.join(map(str, OLDEST_PYTHON))}",
            next_step=f"install python{lock.stack.python} on the host, and leave --python out",
        )
    _check_output(output)
    stack = lock.stack.model_copy(update={"python": python})
    without = left_out(lock, have)
    entries = [entry for entry in lock.python if entry.name not in without]
    report("looking up the locked files")
    files = _locked(project, lock, stack, scratch, entries)
    # Built from source, on the host as anywhere: only then is what builds it needed.
    tools = stack.model_copy(update={"override": []})
    source = [file for file in files if not file.is_wheel]
    if refused := [file.name for file in source if file.name not in render.GROUPS[render.SOURCE]]:
        raise _unfit(lock, python, f"there is no wheel of {', '.join(refused)}")
    build = _locked(project, lock, tools, scratch, lock.build if source else ())
    report("looking up the verifier's own files")
    own = _offered(tools, scratch, tool_pins(python), "the verifier's own packages")
    paths = archives.download(project, scratch, [*files, *build, *own], report)

    contents = Contents(
        stack=lock.name, lock=lock.digest, suite=sources.digest(project.smoke), python=python,
        distributions=[_carried(file) for file in files], build=[_carried(file) for file in build], left_out=without,
    )  # fmt: skip
    tree = _project_files(project, lock)
    tree |= {f"{bundled.WHEELS}/{file.filename}": paths[file] for file in (*files, *build)}
    tree |= {f"tool/{file.filename}": paths[file] for file in own}
    if lock.debian and debian.LIBRARIES:
        debs = debian.fetch(project, lock, scratch, list(debian.LIBRARIES))
        tree |= {f"{bundled.DEBS}/{entry.sha256}.deb": path for entry, path in debs.items()}
    for name, text in (
        (bundled.CONTENTS, contents.to_json()),
        ("tool/requirements.txt", lockfile.format_python(_entries(own))),
    ):
        tree[name] = scratch / name.replace("/", "-")
        tree[name].write_text(text)
    return _write(lock, contents, tree, output, scratch, part_size, report)


def _check_output(output: Path) -> None:
    """Only what an earlier `vetted bundle` wrote may lie there, whole or not."""
    if output.is_dir():
        known = {ENTRY, unbundle.MANIFEST}
        strange = [p.name for p in output.iterdir() if p.name not in known and not unbundle.PART_NAME.match(p.name)]
        strange = [name for name in strange if not name.endswith(".partial")]
        if not strange:
            return
    elif not output.exists():
        return
    raise errors.StorageError(
        f"{output} holds something else than a bundle" if output.is_dir() else f"{output} exists and is not a folder",
        next_step="choose another --output",
    )


def _carried(file: File) -> Carried:
    return Carried(name=file.name, version=file.version, file=file.filename, sha256=file.sha256)


def _entries(files: Iterable[File]) -> list[Entry]:
    return [Entry(file.name, file.version, file.sha256) for file in files]


# --- which files ---------------------------------------------------------------------------------------------------


def _unfit(lock: Lock, python: str, what: str) -> errors.BadInputError:
    return errors.BadInputError(
        f"the locked versions of {lock.name} do not all have a file for Python {python}\n{what}",
        cause="a version that is older than that Python, or a wheelhouse that has it for one Python only",
        next_step=f"install python{lock.stack.python} on the host, and leave --python out",
    )


def _locked(project: Project, lock: Lock, stack: Stack, scratch: Path, entries: Sequence[Entry]) -> list[File]:
    """The file of each entry: the locked one, or for another Python than the stack's the best that fits."""
    if not entries:
        return []
    if stack.python == lock.stack.python:
        kept = {entry: path for entry in entries if (path := archives.kept(project, entry))}
        if len(kept) == len(entries):  # all are here: no index is asked
            return [File(one.name, one.version, path.name, str(path), one.sha256) for one, path in kept.items()]
    try:
        offered = index.offers(stack, scratch, [f"{entry.name}=={entry.version}" for entry in entries])[0]
    except errors.BadInputError as error:
        if stack.python == lock.stack.python:
            raise
        raise _unfit(lock, stack.python, error.what) from error
    files = []
    for entry in entries:
        offers = offered.get(entry.name, [])
        if stack.python == lock.stack.python or not offers:
            files.append(archives.of_hash(entry, offers))
        else:
            files.append(next((file for file in offers if file.sha256 == entry.sha256), offers[0]))
    return files


def tool_pins(python: str) -> dict[str, dict[str, set[str]]]:
    """Of the tool's own locked packages those that the verifier needs: name to version to its hashes."""
    try:
        text = (TOOL.parent / "requirements.txt").read_text()
        needed = tomllib.loads((TOOL.parent / "pyproject.toml").read_text())["project"]["dependencies"]
    except FileNotFoundError as error:
        raise errors.MissingToolError(
            "the tool's own lock, requirements.txt, is not beside it",
            cause="it was installed as a package",
            next_step="run ./vetted in a clone of the project",
        ) from error
    locked: dict[str, dict[str, set[str]]] = {}
    for line in text.replace("\\\n", " ").splitlines():
        if pin := re.match(r"([a-z0-9-]+)==(\S+)", line):
            locked[pin[1]] = {pin[2]: set(re.findall(r"sha256:([0-9a-f]{64})", line))}
    where = {"python_version": python, "python_full_version": f"{python}.0", "sys_platform": "linux", "extra": ""}
    pins: dict[str, dict[str, set[str]]] = {}
    ahead = [Requirement(line) for line in needed]
    while ahead:
        requirement = ahead.pop()
        name = canonicalize_name(requirement.name)
        if name in pins or (requirement.marker and not requirement.marker.evaluate(where)):
            continue
        if name not in locked:
            raise errors.BadInputError(f"requirements.txt locks no {name}", next_step="./nox -s lock")
        pins[name] = locked[name]
        ahead += [Requirement(line) for line in importlib.metadata.requires(name) or ()]
    return pins


def _offered(stack: Stack, scratch: Path, pins: Mapping[str, Mapping[str, set[str]]], what: str) -> list[File]:
    if not pins:
        return []
    wanted = {name: next(iter(hashes.items())) for name, hashes in pins.items()}
    offered = index.offers(stack, scratch, [f"{name}=={version}" for name, (version, _) in wanted.items()])[0]
    files = []
    for name, (version, hashes) in sorted(wanted.items()):
        good = [file for file in offered.get(name, []) if file.is_wheel and file.sha256 in hashes]
        if not good:
            raise errors.NetworkError(
                f"{what}: no wheel of {name} {version} that is offered fits Python {stack.python} and is locked",
                next_step="./nox -s lock, or another --python",
            )
        files.append(good[0])
    return files


# --- writing -------------------------------------------------------------------------------------------------------


def _project_files(project: Project, lock: Lock) -> dict[str, Path]:
    """What of the project goes along: the lock, the patches, the suite, the advisories, and the tool itself."""
    folder = project.stack_dir(lock.name)
    names = ("stack.toml", "lock.toml", "requirements.txt", "build.txt", "debian.txt")
    found = {f"lockfiles/{lock.name}/{name}": folder / name for name in names}
    found |= {patch.file: project.root / patch.file for patch in lock.stack.patch}
    for where, pattern, root in (("smoke", "*.py", project.smoke), ("advisories", "*.toml", project.advisories),
                                 ("builder", "*.py", TOOL)):  # fmt: skip
        found |= {f"{where}/{path.relative_to(root)}": path for path in root.rglob(pattern)}
    return found


def archive(tree: Mapping[str, Path], epoch: int) -> Iterator[bytes]:
    """A tar archive of these files, by name: the same bytes wherever it is made."""
    total = 0
    for name, path in sorted(tree.items()):
        with path.open("rb") as file:
            member = tarfile.TarInfo(name)
            member.size, member.mtime, member.mode = path.stat().st_size, epoch, 0o644
            head = member.tobuf(tarfile.GNU_FORMAT)
            yield head
            left = member.size
            while chunk := file.read(min(CHUNK, left)) if left else b"":
                left -= len(chunk)
                yield chunk
            if left:
                raise errors.StorageError(f"{path} was cut short while it was read", next_step="run this again")
            padding = -member.size % tarfile.BLOCKSIZE
            yield bytes(padding)
            total += len(head) + member.size + padding
    yield bytes(2 * tarfile.BLOCKSIZE + -(total + 2 * tarfile.BLOCKSIZE) % tarfile.RECORDSIZE)


def split(stream: Iterable[bytes], folder: Path, stem: str, size: int) -> Iterator[dict[str, Any]]:
    """Cut a stream into parts of at most `size` bytes; a part that lies there already as it should be is left alone."""
    number, part = 0, _Part.begin(folder, f"{stem}.part001")
    try:
        for chunk in stream:
            view = memoryview(chunk)
            while view:
                if part.size == size:
                    yield part.end()
                    number += 1
                    part = _Part.begin(folder, f"{stem}.part{number + 1:03}")
                count = min(len(view), size - part.size)
                part.write(view[:count])
                view = view[count:]
        yield part.end()
    finally:
        part.drop()


@dataclass
class _Part:
    path: Path
    partial: Path
    file: IO[bytes]
    digest: Any
    size: int = 0

    @classmethod
    def begin(cls, folder: Path, name: str) -> _Part:
        partial = folder / f".{name}.partial"
        return cls(folder / name, partial, partial.open("wb"), hashlib.sha256())

    def write(self, data: memoryview) -> None:
        self.file.write(data)
        self.digest.update(data)
        self.size += len(data)

    def end(self) -> dict[str, Any]:
        self.file.close()
        sha256 = self.digest.hexdigest()
        if self.path.is_file() and sha256_file(self.path) == f"sha256:{sha256}":
            self.partial.unlink()
        else:
            self.partial.replace(self.path)
        return {"name": self.path.name, "size": self.size, "sha256": sha256}

    def drop(self) -> None:
        self.file.close()
        self.partial.unlink(missing_ok=True)


def _write(
    lock: Lock,
    contents: Contents,
    tree: Mapping[str, Path],
    output: Path,
    scratch: Path,
    part_size: int,
    report: Report,
) -> Made:
    output.mkdir(parents=True, exist_ok=True)
    manifest = output / unbundle.MANIFEST
    manifest.unlink(missing_ok=True)  # it is the last to be written: without it, a bundle is not whole
    for left in output.glob(".*.partial"):
        left.unlink()
    parts = []
    for part in split(archive(tree, lock.epoch), output, lock.name, part_size):
        parts.append(part)
        report(f"written: {part['name']}")
    for path in output.iterdir():
        if unbundle.PART_NAME.fullmatch(path.name) and path.name not in {part["name"] for part in parts}:
            path.unlink()  # of an earlier bundle
    shutil.copyfile(unbundle.__file__, scratch / ENTRY)
    write(output / ENTRY, (scratch / ENTRY).read_bytes(), scratch)
    size = sum(int(part["size"]) for part in parts)
    data = {
        "format": unbundle.FORMAT, "stack": lock.name, "device": lock.stack.device, "python": contents.python,
        "size": size, "parts": parts,
    }  # fmt: skip
    write(manifest, json.dumps(data, indent=1) + "\n", scratch)
    return Made(output, contents, sha256_file(manifest), len(parts), size)
