"""The environment of the `host` engine: a virtual environment, installed from the lock and patched like the image."""

from __future__ import annotations

import ctypes
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from builder.base import errors, machine, process, seal
from builder.base.project import Project, sha256_file
from builder.base.project import remove as remove_folder
from builder.base.text import word
from builder.certify.cache import Cache
from builder.image import own, patches, render, sdist
from builder.lock import archives, debian, lockfile
from builder.lock.lockfile import Entry, Lock

# The folder of system libraries that the machine lacks, unpacked from the locked Debian packages.
SYSTEM = "system"


def path(project: Project, lock: Lock) -> Path:
    """Where the environment of a lock is kept."""
    return project.state / "host" / f"{lock.name}-{lock.digest.removeprefix('sha256:')[:12]}"


def prepare(
    project: Project,
    lock: Lock,
    scratch: Path,
    report: Callable[[str], None],
    *,
    keep: bool = True,
) -> Path:
    """The environment of this very lock: the one that is kept, if it is unchanged, or else a new one.

    It is made aside and renamed when it is complete. `keep`: it will be used again, so it is compiled and sealed.
    """
    final = path(project, lock)
    identity = _sealed_as(lock.digest)
    if keep and is_kept(final, identity, report):
        return final
    new = scratch / "host"
    install(lock, new, scratch, report, _files(project, lock, scratch, report))
    finish(project, lock, new, final, scratch, report, identity if keep else None)
    return final


@contextmanager
def temporary(
    project: Project, lock: Lock, scratch: Path, report: Callable[[str], None], cache: Cache
) -> Iterator[Path]:
    """An environment in `scratch`, for what runs in the `with` block. It shares its files with others of `cache`."""
    new = scratch / "host"
    try:
        install(lock, new, scratch, report, _files(project, lock, scratch, report), cache=cache)
        _complete(project, lock, new, scratch, report)
        cache.lend(new / lock.site_packages)
        begin = time.time_ns()
        yield new
        cache.collect(new / lock.site_packages, begin)
    finally:
        remove_folder(new)


def _files(project: Project, lock: Lock, scratch: Path, report: Callable[[str], None]) -> dict[Entry, Path]:
    """The locked files, and if there are source distributions among them, what builds those."""
    files = archives.fetch(project, lock.stack, lock.python, scratch, report)
    if any(not _is_wheel(file) for file in files.values()):
        files |= archives.fetch(project, lock.stack, lock.build, scratch, report)
    return files


def _sealed_as(identity: str) -> str:
    return f"environment of {identity}"


def is_kept(final: Path, identity: str, report: Callable[[str], None]) -> bool:
    """Whether an environment is there that was sealed as this, and is unchanged."""
    if not final.is_dir() or final.is_symlink():
        return False
    report("checking the environment")
    try:
        return seal.intact(_seal(final), identity, seal.tree(final))
    except OSError:
        return False


def _seal(final: Path) -> Path:
    return final.with_name(f"{final.name}.seal")


def _is_wheel(file: Path) -> bool:
    return file.suffix == ".whl"


def install(
    lock: Lock,
    new: Path,
    scratch: Path,
    report: Callable[[str], None],
    files: Mapping[Entry, Path],
    python: str | None = None,
    cache: Cache | None = None,
) -> None:
    """Install exactly the locked distributions into a new environment, whatever else their metadata requires.

    `files`: the lock's files. uv checks their hashes and unpacks them into a new cache, because an unpacked wheel has
    no hash. `python`: the interpreter; by default any of the stack's version. `cache`: of this very command.
    """
    cache = cache or Cache(scratch)
    uv = machine.uv_binary()
    env = machine.uv_offline()
    report("creating the environment")
    created = process.run(
        [uv, "venv", "--quiet", "--no-project", "--relocatable", "--python", python or lock.stack.python, str(new)],
        env=env,
    )
    if created.returncode != 0:
        error = errors.from_tool("creating the environment", created.output)
        if python or isinstance(error, errors.StorageError):
            raise error
        raise errors.MissingToolError(
            f"{lock.name} needs Python {lock.stack.python}, and this machine has none",
            next_step=f"install python{word(lock.stack.python)}, or run with --engine docker",
        )
    wheels = {entry: files[entry] for entry in lock.python if _is_wheel(files[entry])}
    if source := {entry: files[entry] for entry in lock.python if entry not in wheels}:
        tools = {entry: files[entry] for entry in lock.build}
        built = cache.built(
            source, tools, lock.stack.python, lambda: sdist.build(source, tools, new, scratch, report, lock)
        )
        # A distribution that was built here has the hash of its wheel, which was built from the locked source.
        wheels |= {replace(entry, sha256=sha256_file(wheel)[7:]): wheel for entry, wheel in built.items()}
    own.refuse(lock, {entry.name: wheel for entry, wheel in wheels.items()})
    report(f"installing {len(lock.python)} locked distributions")
    requirements = scratch / "requirements.txt"
    requirements.write_text(lockfile.format_python(wheels))
    argv = [
        uv, "pip", "sync", "--quiet", "--python", str(new / "bin" / "python"), "--require-hashes",
        "--offline", "--no-index", *(f"--find-links={folder}" for folder in cache.links(wheels)),
        "--only-binary", ":all:", "--cache-dir", str(cache.uv), str(requirements),
    ]  # fmt: skip
    process.check(f"installing {lock.name}", argv, env=env, next_step=f"vetted lock --check {word(lock.name)}")


def finish(
    project: Project,
    lock: Lock,
    new: Path,
    final: Path,
    scratch: Path,
    report: Callable[[str], None],
    identity: str | None,
) -> None:
    """Complete a new environment, and move it to its place: earlier ones of the stack are removed.

    It gets the system libraries and the patches. `identity`: what it is sealed as, if it will be used again.
    """
    _complete(project, lock, new, scratch, report)
    if identity is not None:
        report("compiling")
        _compile(new, new / lock.site_packages)
    final.parent.mkdir(parents=True, exist_ok=True)
    remove(final)
    new.rename(final)
    if identity is not None:
        seal.put(_seal(final), identity, seal.tree(final), scratch)
    for other in final.parent.glob(f"{lock.name}-????????????"):
        if other != final:
            remove(other)


def _complete(project: Project, lock: Lock, new: Path, scratch: Path, report: Callable[[str], None]) -> None:
    if lock.debian:
        _system_libraries(project, lock, scratch, new / SYSTEM)
    _toolkit(lock, new)
    report("applying patches")
    _patch(lock, new / lock.site_packages, scratch / "patched")


def remove(environment: Path) -> None:
    """Remove an environment with its seal."""
    _seal(environment).unlink(missing_ok=True)
    remove_folder(environment)


def _compile(new: Path, site_packages: Path) -> None:
    """Write the bytecode that Python would write during a run, which would break the seal.

    Without bytecode, and with none written, a run of the suite takes half as much CPU time again. Some packages ship
    files that are not Python 3: they stay without, so the exit code is ignored.
    """
    python = [str(new / "bin" / "python"), "-I", "-S", "-m", "compileall", "-qq", "-j", "0", str(site_packages)]
    process.run(python, env={"PYTHONHASHSEED": "0"})


def _system_libraries(project: Project, lock: Lock, scratch: Path, target: Path) -> None:
    """Unpack the system libraries that this machine lacks from the locked Debian packages."""
    missing = [package for package, library in debian.LIBRARIES.items() if not _loads(library)]
    if not missing:
        return
    fetched = {entry.name for entry in lock.debian if (project.state / "debs" / f"{entry.sha256}.deb").is_file()}
    if not fetched.issuperset(missing) and not shutil.which("apt-get"):
        raise errors.MissingToolError(
            f"this machine lacks {', '.join(debian.LIBRARIES[package] for package in missing)}",
            next_step=f"install what your system calls {', '.join(map(word, missing))}, or run with --engine docker",
        )
    for entry, file in debian.fetch(project, lock, scratch, missing).items():
        process.check(f"unpacking {entry.name}", ["dpkg-deb", "--extract", str(file), str(target)])


def _toolkit(lock: Lock, new: Path) -> None:
    """Link the files of the CUDA wheels under the names that the toolkit usually has, as in the image."""
    home = _cuda_home(new)
    if home is None:
        return
    for name, target in render.toolkit(lock).items():
        link = home / name
        link.parent.mkdir(exist_ok=True)
        if not link.is_symlink() and not link.exists():
            link.symlink_to(target)
    script = home / render.STUB
    if not script.exists():
        script.parent.mkdir(exist_ok=True)
        script.write_text(render.stub(lock) + "\n")


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
    """The environment variables that a process in this environment needs."""
    variables = {}
    folder = prepared / SYSTEM / "usr" / "lib" / "x86_64-linux-gnu"
    if folder.is_dir():
        # The host's own value comes after ours: on some hosts, nothing else leads to the GPU driver's libraries.
        path = filter(None, (str(folder), os.environ.get("LD_LIBRARY_PATH")))
        variables["LD_LIBRARY_PATH"] = os.pathsep.join(path)
    if home := _cuda_home(prepared):
        variables["CUDA_HOME"] = str(home)
    headers = (prepared / "bin" / "python").resolve().parents[1] / "include"
    if headers != Path("/usr/include") and (headers / "x86_64-linux-gnu").is_dir():
        # Debian's Python.h includes a file of this folder, which compilers know only below /usr.
        variables["CPATH"] = str(headers)
    return variables


def _patch(lock: Lock, site_packages: Path, output: Path) -> None:
    try:
        written = patches.apply(site_packages, output, list(lock.patches))
    except patches.PatchError as error:
        raise errors.BadInputError(
            str(error), cause="the patch was written for another version", next_step="correct the patch, or remove it"
        ) from error
    for file in written:
        # A rename, not a write: the installed file may be a link into uv's cache.
        beside = (site_packages / file).with_suffix(".patched")
        shutil.copyfile(output / file, beside)
        beside.replace(site_packages / file)
