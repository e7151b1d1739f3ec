"""The environment of the `host` engine: a virtual environment installed from the lock, patched like the image."""

from __future__ import annotations

import ctypes
import os
import shutil
from collections.abc import Callable, Sequence
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
    install(held, made, scratch, report)
    finish(project, held, made, final, scratch, report)
    return final


def install(
    held: Lock,
    made: Path,
    scratch: Path,
    report: Callable[[str], None],
    python: str | None = None,
    source: Sequence[str] = (),
) -> None:
    """Install the locked distributions, and nothing that they declare to need, into a new environment.

    `python`: the interpreter, where not any of the stack's version will do. `source`: uv's options that say where
    the files come from, where not from this machine's index or wheelhouse.
    """
    uv = machine.uv_binary()
    # One hash seed, as in the image: setuptools writes sets into the METADATA of what it builds.
    env = {**machine.uv_environment(held.stack.torch), "PYTHONHASHSEED": "0"}
    report("creating the environment")
    created = process.run(
        [uv, "venv", "--quiet", "--no-project", "--relocatable", "--python", python or held.stack.python, str(made)],
        env=env,
    )
    if created.returncode != 0:
        said = errors.from_tool("creating the environment", created.output)
        if python or isinstance(said, errors.StorageError):
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
        "--build-constraints", str(build), *_no_wheels(held), *source, str(requirements),
    ]  # fmt: skip
    if not source and (backend := torch_backend(held.stack)):
        argv += ["--torch-backend", backend]
    next_step = "make the bundle again" if source else f"vetted lock --check {held.name}"
    process.check(f"installing {held.name}", argv, env=env, next_step=next_step)


def finish(project: Project, held: Lock, made: Path, final: Path, scratch: Path, report: Callable[[str], None]) -> None:
    """Bring what is not a distribution, patch, and give an environment its name; an earlier one of the stack goes."""
    if held.debian:
        _system_libraries(project, held, scratch, made / SYSTEM)
    _toolkit(held, made)
    report("applying patches")
    _patch(held, made / held.site_packages, scratch / "patched")
    final.parent.mkdir(parents=True, exist_ok=True)
    made.rename(final)
    for other in final.parent.glob(f"{held.name}-????????????"):
        if other != final:
            shutil.rmtree(other, ignore_errors=True)


def _system_libraries(project: Project, held: Lock, scratch: Path, target: Path) -> None:
    """Unpack, from the locked Debian packages, the system libraries that this machine lacks."""
    missing = [package for package, library in debian.LIBRARIES.items() if not _loads(library)]
    if not missing:
        return
    fetched = {entry.name for entry in held.debian if (project.state / "debs" / f"{entry.sha256}.deb").is_file()}
    if not fetched.issuperset(missing) and not shutil.which("apt-get"):
        raise errors.MissingToolError(
            f"this machine lacks {', '.join(debian.LIBRARIES[package] for package in missing)}",
            next_step=f"install what your system calls {', '.join(missing)}, or run with --engine docker",
        )
    for entry, file in debian.fetch(project, held, scratch, missing).items():
        process.check(f"unpacking {entry.name}", ["dpkg-deb", "--extract", str(file), str(target)])


def _toolkit(held: Lock, made: Path) -> None:
    """The toolkit's usual names for what the wheels of CUDA carry, as in the image."""
    home = _cuda_home(made)
    if home is None:
        return
    for name, target in render.toolkit(held).items():
        link = home / name
        link.parent.mkdir(exist_ok=True)
        if not link.is_symlink() and not link.exists():
            link.symlink_to(target)


def _cuda_home(prepared: Path) -> Path | None:
    nvcc = next(prepared.glob("lib/python3.*/site-packages/nvidia/cu*/bin/nvcc"), None)
    return nvcc.parent.parent if nvcc else None


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def environment(prepared: Path) -> dict[str, str]:
    """The environment variables that a process of this environment needs."""
    variables = {}
    folder = prepared / SYSTEM / "usr" / "lib" / "x86_64-linux-gnu"
    if folder.is_dir():
        # After ours what the host has set: on some, the GPU driver's own libraries are found by it alone.
        path = filter(None, (str(folder), os.environ.get("LD_LIBRARY_PATH")))
        variables["LD_LIBRARY_PATH"] = os.pathsep.join(path)
    if home := _cuda_home(prepared):
        variables["CUDA_HOME"] = str(home)
    return variables


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
