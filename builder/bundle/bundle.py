"""A bundle: everything that a GPU host without a network needs to install a stack and earn its certificate.

It is one archive, cut into parts that can be copied one by one, with a manifest of their checksums and an entry script
(unbundle.py). The same lock, suite and tool give the same bytes; downloads are kept by their hash, so an interrupted
`vetted bundle` continues where it stopped.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from builder.base import errors, sources
from builder.base.project import Project, sha256_file, write
from builder.bundle import archive, freeze, selection, unbundle
from builder.bundle.contents import CONTENTS, DEBS, WHEELS, CarriedFile, Contents
from builder.bundle.selection import TOOL
from builder.image import render
from builder.lock import archives, debian, lockfile
from builder.lock.index import File
from builder.lock.lockfile import Entry, Lock

Progress = Callable[[str], None]

ENTRY = "run.py"
VERIFIER = "tool"  # the folder of the verifier's own wheels
OLDEST_PYTHON = (3, 11)  # for the verifier, which is this tool


@dataclass(frozen=True)
class Bundle:
    """A bundle that was written. `digest`: of its manifest; `size`: bytes of all parts."""

    folder: Path
    contents: Contents
    digest: str
    parts: int
    size: int


def make(
    project: Project,
    lock: Lock,
    output: Path,
    scratch: Path,
    part_size: int,
    python: str,
    host: Mapping[str, str],
    progress: Progress,
) -> Bundle:
    """Write the bundle of a lock into a folder that is empty or contains an earlier bundle.

    `python`: the host's, such as 3.12. `host`: what it has, name to version. Raises VettedError's kinds.
    """
    if tuple(int(part) for part in python.split(".")) < OLDEST_PYTHON:
        raise errors.BadInputError(
            f"a bundle for Python {python} cannot be made: what runs there needs {'.'.join(map(str, OLDEST_PYTHON))}",
            next_step=f"install python{lock.stack.python} on the host, and leave --python out",
        )
    _check_output(output)
    stack = lock.stack.model_copy(update={"python": python})
    without = freeze.left_out(lock, host)
    entries = [entry for entry in lock.python if entry.name not in without]
    progress("looking up the locked files")
    files = selection.locked(project, lock, stack, scratch, entries)
    # A source distribution is built on the host, which takes the locked build requirements.
    tools = stack.model_copy(update={"override": []})
    source = [file for file in files if not file.is_wheel]
    if refused := [file.name for file in source if file.name not in render.GROUPS[render.SOURCE]]:
        raise selection.unfit(lock, python, f"there is no wheel of {', '.join(refused)}")
    build = selection.locked(project, lock, tools, scratch, lock.build if source else ())
    progress("looking up the verifier's own files")
    verifier = selection.verifier(tools, scratch, selection.tool_pins(python))
    paths = archives.download(project, scratch, [*files, *build, *verifier], progress)

    contents = Contents(
        stack=lock.name, lock=lock.digest, suite=sources.digest(project.smoke), python=python,
        distributions=_carried(files), build=_carried(build), left_out=without,
    )  # fmt: skip
    tree = project_files(project, lock)
    tree |= {f"{WHEELS}/{file.filename}": paths[file] for file in (*files, *build)}
    tree |= {f"{VERIFIER}/{file.filename}": paths[file] for file in verifier}
    if lock.debian and debian.LIBRARIES:
        debs = debian.fetch(project, lock, scratch, list(debian.LIBRARIES))
        tree |= {f"{DEBS}/{entry.sha256}.deb": path for entry, path in debs.items()}
    requirements = [Entry(file.name, file.version, file.sha256) for file in verifier]
    for name, text in (
        (CONTENTS, contents.to_json()),
        (f"{VERIFIER}/requirements.txt", lockfile.format_python(requirements)),
    ):
        tree[name] = scratch / name.replace("/", "-")
        tree[name].write_text(text)
    return _write(lock, contents, tree, output, scratch, part_size, progress)


def _check_output(output: Path) -> None:
    """Raises StorageError when a folder contains anything that an earlier `vetted bundle` did not write."""
    if output.is_dir():
        own = {ENTRY, unbundle.MANIFEST}
        strange = [p.name for p in output.iterdir() if p.name not in own and not unbundle.PART_NAME.match(p.name)]
        strange = [name for name in strange if not name.endswith(".partial")]
        if not strange:
            return
    elif not output.exists():
        return
    raise errors.StorageError(
        f"{output} holds something else than a bundle" if output.is_dir() else f"{output} exists and is not a folder",
        next_step="choose another --output",
    )


def _carried(files: Iterable[File]) -> list[CarriedFile]:
    return [CarriedFile(name=file.name, version=file.version, file=file.filename, sha256=file.sha256) for file in files]


def project_files(project: Project, lock: Lock) -> dict[str, Path]:
    """The files of the project that a bundle carries: the lock, the patches, the suite, the advisories, the tool."""
    folder = project.stack_dir(lock.name)
    names = ("stack.toml", "lock.toml", "requirements.txt", "build.txt", "debian.txt")
    tree = {f"lockfiles/{lock.name}/{name}": folder / name for name in names}
    tree |= {patch.file: project.root / patch.file for patch in lock.stack.patch}
    tree |= {f"smoke/{file}": project.smoke / file for file in sources.files(project.smoke)}
    tree |= {f"advisories/{path.name}": path for path in project.advisories.glob("*.toml")}
    return tree | {f"builder/{file}": TOOL / file for file in _package_files(TOOL)}


def _package_files(package: Path) -> list[Path]:
    """Every file of a package, relative to it: modules, scripts, templates. Caches and hidden files are left out."""
    files = [path.relative_to(package) for path in package.rglob("*") if path.is_file()]
    return [
        file
        for file in files
        if not any(part == "__pycache__" or part.startswith(".") for part in file.parts) and file.suffix != ".pyc"
    ]


def _write(
    lock: Lock,
    contents: Contents,
    tree: Mapping[str, Path],
    output: Path,
    scratch: Path,
    part_size: int,
    progress: Progress,
) -> Bundle:
    output.mkdir(parents=True, exist_ok=True)
    manifest = output / unbundle.MANIFEST
    manifest.unlink(missing_ok=True)  # it is written last: without it, a bundle is not whole
    for partial in output.glob(".*.partial"):
        partial.unlink()
    parts = []
    for part in archive.split(archive.pack(tree, lock.epoch), output, lock.name, part_size):
        parts.append(part)
        progress(f"written: {part.name}")
    for path in output.iterdir():
        if unbundle.PART_NAME.fullmatch(path.name) and path.name not in {part.name for part in parts}:
            path.unlink()  # of an earlier bundle
    shutil.copyfile(unbundle.__file__, scratch / ENTRY)
    write(output / ENTRY, (scratch / ENTRY).read_bytes(), scratch)
    size = sum(part.size for part in parts)
    data = {
        "format": unbundle.FORMAT, "stack": lock.name, "device": lock.stack.device, "python": contents.python,
        "size": size, "parts": [part._asdict() for part in parts],
    }  # fmt: skip
    write(manifest, json.dumps(data, indent=1) + "\n", scratch)
    return Bundle(output, contents, sha256_file(manifest), len(parts), size)
