"""The build context: the files that a Dockerfile copies and mounts. An image is made of nothing else."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import unidiff

from builder.base import machine, sources
from builder.base.project import Project
from builder.image import patches, render, rootfs, sdist
from builder.image.buildx import Reporter, Step
from builder.lock import archives, gpus, kernels, lockfile
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
    shutil.copy2(rootfs.make(project, lock, scratch, fresh=fresh), folder / "rootfs.tar")
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
    (folder / "stack.json").write_text(json.dumps(description(project, lock), indent=2, sort_keys=True) + "\n")
    shutil.copy2(machine.uv_binary(), folder / "uv" / "uv")
    return folder


def _distributions(project: Project, lock: Lock, folder: Path, scratch: Path, report: Reporter) -> None:
    """Each layer's requirements, and its files in a folder of its own: other layers' changes leave it as it is."""
    groups = {group.name: group.entries for group in render.groups(lock)}
    source = groups.get(render.SOURCE, ())
    if source:
        groups[BUILD] = lock.build
    files: dict[Entry, Path] = {}
    # One after the other: the tools that build a source distribution may be other versions than the installed ones.
    for entries in (lock.python, lock.build if source else ()):
        files |= archives.fetch(
            project, lock.stack, entries, scratch, lambda message: report(Step(0, 0, f"{lock.name}: {message}"))
        )
    for name, entries in groups.items():
        (folder / "requirements" / f"{name}.txt").write_text(lockfile.format_python(entries))
        archives.gather((files[entry] for entry in entries), folder / "wheels" / name)
    if source:
        sdist.refuse({entry: files[entry] for entry in source})
        # The lock has the hash of the source distribution, not of the wheel that is built from it.
        pins = "".join(f"{entry.pin}\n" for entry in source)
        (folder / "requirements" / "built.txt").write_text(pins)
        sums = "".join(f"{entry.sha256}  {files[entry].name}\n" for entry in source)
        (folder / "requirements" / "source.sha256").write_text(sums)


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
    read = kernels.of_lock(project, lock)
    return {
        "stack": lock.name,
        "title": lock.stack.title,
        "lock": lock.digest,
        "runtime": sources.digest(project.runtime),
        "python": lock.stack.python,
        "distributions": lock.versions,
        "patches": [patch.model_dump() for patch in lock.stack.patch],
        **({"kernels": gpus.described(read)} if read else {}),
    }
