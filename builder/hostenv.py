"""The environment of the `host` engine: a virtual environment installed from the lock, patched like the image."""

from __future__ import annotations

import ctypes
import shutil
from collections.abc import Callable
from pathlib import Path

from builder import debian, errors, lock, machine, patches, process, render
from builder.lock import Lock
from builder.project import Project
from builder.resolve import torch_backend

# System libraries that the machine lacked, unpacked from the locked Debian packages.
SYSTEM = "system"


def path(project: Project, held: Lock) -> Path:
    return project.state / "host" / f"{held.name}-{held.digest.removeprefix('sha256:')[:12]}"


def prepare(project: Project, held: Lock, scratch: Path, report: Callable[[str], None]) -> Path:
    """The environment of this very lock, made when it is not there yet.

    It is made aside and renamed when it is whole, so one that exists is one that was installed to the end.
    """
    final = path(project, held)
    if final.is_dir():
        return final
    made = scratch / "host"
    uv = machine.uv_binary()
    # One hash seed, as in the image: setuptools writes sets into the METADATA of what it builds.
    env = {**machine.uv_environment(held.stack.torch), "PYTHONHASHSEED": "0"}
    report("creating the environment")
    created = process.run(
        [uv, "venv", "--quiet", "--no-project", "--relocatable", "--python", held.stack.python, str(made)], env=env
    )
    if created.returncode != 0:
        said = errors.from_tool("creating the environment", created.output)
        if isinstance(said, errors.StorageError):
            raise said
        raise errors.MissingToolError(
            f"{held.name} needs Python {held.stack.python}, and this machine has none",
            next_step=f"install python{held.stack.python}, or run with --engine docker",
        )
    report(f"installing {len(held.python)} locked distributions")
    requirements = scratch / "requirements.txt"
    requirements.write_text(lock.format_python(held.python))
    build = scratch / "build.txt"
    build.write_text(lock.format_python(held.build))
    argv = [
        uv, "pip", "sync", "--quiet", "--python", str(made / "bin" / "python"), "--require-hashes",
        "--build-constraints", str(build), *_no_wheels(held), str(requirements),
    ]  # fmt: skip
    if backend := torch_backend(held.stack):
        argv += ["--torch-backend", backend]
    process.check(f"installing {held.name}", argv, env=env, next_step=f"vetted lock --check {held.name}")
    if held.debian:
        _system_libraries(project, held, scratch, made / SYSTEM)
    report("applying patches")
    _patch(held, made / held.site_packages, scratch / "patched")
    final.parent.mkdir(parents=True, exist_ok=True)
    made.rename(final)
    for other in final.parent.glob(f"{held.name}-????????????"):
        if other != final:
            shutil.rmtree(other, ignore_errors=True)
    return final


def _system_libraries(project: Project, held: Lock, scratch: Path, target: Path) -> None:
    """Unpack, from the locked Debian packages, the system libraries that this machine lacks."""
    missing = [package for package, library in debian.LIBRARIES.items() if not _loads(library)]
    if not missing:
        return
    if not shutil.which("apt-get"):
        raise errors.MissingToolError(
            f"this machine lacks {', '.join(debian.LIBRARIES[package] for package in missing)}",
            next_step=f"install what your system calls {', '.join(missing)}, or run with --engine docker",
        )
    for entry, file in debian.fetch(project, held, scratch, missing).items():
        process.check(f"unpacking {entry.name}", ["dpkg-deb", "--extract", str(file), str(target)])


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def environment(prepared: Path) -> dict[str, str]:
    """The environment variables that a process of this environment needs."""
    folder = prepared / SYSTEM / "usr" / "lib" / "x86_64-linux-gnu"
    return {"LD_LIBRARY_PATH": str(folder)} if folder.is_dir() else {}


def _no_wheels(held: Lock) -> list[str]:
    """Only what the lock says is built from source may be built; everything else is a wheel."""
    source = {entry.name for group in render.groups(held) if group.name == render.SOURCE for entry in group.entries}
    return ["--only-binary", ":all:", *(argument for name in sorted(source) for argument in ("--no-binary", name))]


def _patch(held: Lock, site_packages: Path, output: Path) -> None:
    try:
        written = patches.apply(site_packages, output, list(held.patches))
    except patches.PatchError as error:
        raise errors.BadInputError(
            str(error), cause="the patch was written for another version", next_step="correct the patch, or remove it"
        ) from error
    for file in written:
        # A rename, not a write: the installed file may be a link into uv's cache.
        beside = (site_packages / file).with_suffix(".patched")
        shutil.copyfile(output / file, beside)
        beside.replace(site_packages / file)
