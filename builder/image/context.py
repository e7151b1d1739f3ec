"""The build context: the files that a Dockerfile copies and mounts. An image is made of nothing else."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from pathlib import Path

import unidiff

from builder.base import machine, sources
from builder.base.project import Project
from builder.image import foreign, overlap, own, patches, render, rootfs, sdist
from builder.image.buildx import BuildStep, Reporter
from builder.intent.platform import AMD64
from builder.lock import archives, gpus, kernels, lockfile
from builder.lock.kernels import Kernels
from builder.lock.lockfile import Entry, Lock

BUILD = "build"  # what builds source distributions: its folder lies beside those of the layers
LAUNCHER = "launcher.py"  # the command inside an image


def make(project: Project, lock: Lock, scratch: Path, report: Reporter, *, fresh: bool) -> Path:
    """Make the build context of a lock in `scratch`, and return its folder. No build step has a network.

    `fresh`: makes the root filesystem again, too.
    """
    folder = scratch / "context"
    (folder / "requirements").mkdir(parents=True)
    (folder / "patches").mkdir()
    (folder / "uv").mkdir()
    # With its times: by them BuildKit sees that it has the file already.
    native = lockfile.load(project, lock.name)
    base = rootfs.make(project, native.parent, scratch, fresh=fresh)
    shutil.copy2(base, folder / AMD64.file("rootfs.tar"))
    if lock.platform is not AMD64:
        other = foreign.make(project, native, lock, base, scratch, fresh=fresh)
        shutil.copy2(other, folder / lock.platform.file("rootfs.tar"))
    _distributions(project, lock, folder, scratch, report)
    shutil.copyfile(patches.__file__, folder / "patches" / "patches.py")
    shutil.copytree(
        Path(unidiff.__file__).parent,
        folder / "patches" / "unidiff",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    for patch, path in zip(lock.stack.patch, lock.patches, strict=True):
        copy = folder / patch.file.removeprefix("images/")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)
    copy_runtime(project, folder / "runtime")
    read = kernels.of_lock(project, lock)
    theirs = _description(project, lock.parent, kernels.of_parent(read, lock.parent) if lock.stack.extends else read)
    (folder / "stack.json").write_text(_json(theirs))
    if lock.stack.extends:
        _extension(project, lock, folder, base, scratch, fresh=fresh)
    shutil.copy2(machine.uv_binary(), folder / "uv" / "uv")
    return folder


def _distributions(project: Project, lock: Lock, folder: Path, scratch: Path, report: Reporter) -> None:
    """Each layer's requirements, and its files in a folder of its own: other layers' changes leave it as it is."""
    groups = {group.name: group.entries for group in render.groups(lock)}
    source = groups.get(render.SOURCE, ())
    if source:
        groups[BUILD] = lock.parent.build
    mine = [entry for entry in groups.get(render.OWN, ()) if entry.name in lock.own.source]
    if mine:
        groups |= {own.SOURCE: tuple(mine), own.BUILD: lock.build}
        groups[render.OWN] = tuple(entry for entry in groups[render.OWN] if entry not in mine)
    files: dict[Entry, Path] = {}
    # One after the other: the tools that build a source distribution may be other versions than the installed ones.
    # They are those for amd64, where everything is built.
    for stack, entries in ((lock.stack, lock.python), (lock.stack.on(AMD64), lock.build if source or mine else ())):
        files |= archives.fetch(
            project, stack, entries, scratch, lambda message: report(BuildStep(0, 0, f"{lock.image}: {message}"))
        )
    own.refuse(lock, {entry.name: files[entry] for entry in lock.python})
    for name, entries in groups.items():
        (folder / "requirements" / f"{name}.txt").write_text(lockfile.format_python(entries))
        archives.gather((files[entry] for entry in entries), folder / "wheels" / name)
    if source:
        _built(folder, render.SOURCE, {entry: files[entry] for entry in source}, lock)
    if mine:
        _built(folder, own.SOURCE, {entry: files[entry] for entry in mine}, lock)
    if lock.stack.extends:
        (folder / "own").mkdir()
        (folder / "own" / "requirements.txt").write_text(lockfile.format_python(groups.get(render.OWN, ())))
        (folder / "own" / "built.txt").write_text("".join(f"{entry.pin}\n" for entry in mine))


def _extension(project: Project, lock: Lock, folder: Path, base: Path, scratch: Path, *, fresh: bool) -> None:
    """What the layer of an extension is made of, beside its distributions."""
    (folder / "checks").mkdir()
    shutil.copyfile(overlap.__file__, folder / "checks" / "overlap.py")
    own.files(lock, folder / "own" / "files", _json(description(project, lock)))
    if lock.own.debian:
        (scratch / "beside").mkdir()
        whole = rootfs.make(project, lock, scratch / "beside", fresh=fresh)
        own.debian(base, whole, folder / "own" / "debian.tar")


def _json(value: object) -> str:
    return json.dumps(value, indent=2, sort_keys=True) + "\n"


def _built(folder: Path, group: str, sources: Mapping[Entry, Path], lock: Lock) -> None:
    """What is built from source has only a hash of the source distribution, and not of the wheel."""
    sdist.refuse(sources, lock)
    sums = "".join(f"{entry.sha256}  {file.name}\n" for entry, file in sources.items())
    (folder / "requirements" / f"{group}.sha256").write_text(sums)
    if group == render.SOURCE:
        (folder / "requirements" / "built.txt").write_text("".join(f"{entry.pin}\n" for entry in sources))


def copy_runtime(project: Project, tree: Path) -> None:
    """Copy what an image carries beside its stack to where it lies in the image, with the same modes everywhere."""
    package = tree / "opt" / "vetted" / project.runtime.name
    programs = tree / "usr" / "local" / "bin"
    for file in sources.files(project.runtime):  # only what the digest in stack.json covers
        if file.name != LAUNCHER:
            (package / file).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(project.runtime / file, package / file)
    programs.mkdir(parents=True)
    command = shutil.copyfile(project.runtime / LAUNCHER, programs / "vetted")
    for path in tree.rglob("*"):  # whatever this machine's umask is
        path.chmod(0o755 if path.is_dir() or path == command else 0o644)


def description(project: Project, lock: Lock) -> dict[str, object]:
    """The content of /etc/vetted/stack.json, in which an image describes itself. `kernels` is for CUDA only."""
    return _description(project, lock, kernels.of_lock(project, lock))


def _description(project: Project, lock: Lock, read: Kernels | None) -> dict[str, object]:
    return {
        "stack": lock.name,
        "title": lock.stack.title,
        "lock": lock.digest,
        "runtime": sources.digest(project.runtime),
        "python": lock.stack.python,
        "distributions": lock.versions,
        "patches": [patch.model_dump() for patch in lock.stack.patch],
        **({"kernels": gpus.described(read)} if read else {}),
        **({"extends": lock.stack.extends.model_dump()} if lock.stack.extends else {}),
        **({} if lock.platform is AMD64 else {"platform": lock.platform.name}),
    }
