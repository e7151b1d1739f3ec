"""Making a lock: uv resolves the distributions, apt the Debian packages, and only then are the files written."""

from __future__ import annotations

import re
import tarfile
import tomllib
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename

from builder.base import errors, machine, process
from builder.base.project import Project, write
from builder.intent.stack import Stack
from builder.lock import debian, lockfile
from builder.lock.lockfile import Entry, Lock

# The glibc that a Debian suite has: wheels may ask for no newer one.
GLIBC = {"bookworm": 36, "trixie": 41}
# SOURCE_DATE_EPOCH, in seconds: the day a suite was released, older than anything a build writes. It never moves,
# so that a layer keeps its digest while its content stays, over upgrades and across stacks.
EPOCH = {"bookworm": 1686355200, "trixie": 1754697600}


@dataclass(frozen=True)
class File:
    """One file of a distribution as an index or the wheelhouse offers it."""

    name: str
    version: str
    filename: str
    url: str
    sha256: str
    size: int | None = None  # in bytes, where the index says so

    @property
    def is_wheel(self) -> bool:
        return self.filename.endswith(".whl")


def tags(stack: Stack) -> list[Tag]:
    """The wheel tags that run on a stack's Python and glibc, the most specific first."""
    version = tuple(int(part) for part in stack.python.split("."))
    platforms = [f"manylinux_2_{minor}_x86_64" for minor in range(GLIBC[stack.debian], 4, -1)]
    legacy = {17: "manylinux2014_x86_64", 12: "manylinux2010_x86_64", 5: "manylinux1_x86_64"}
    for minor, alias in legacy.items():
        platforms.insert(platforms.index(f"manylinux_2_{minor}_x86_64") + 1, alias)
    platforms.append("linux_x86_64")
    interpreter = f"cp{version[0]}{version[1]}"
    return [*cpython_tags(version, platforms=platforms), *compatible_tags(version, interpreter, platforms)]


def compile_pins(
    stack: Stack, scratch: Path, requirements: Sequence[str], options: Sequence[str] = ()
) -> process.Result:
    """`uv pip compile` for the stack's Python and platform. Raises NetworkError; a conflict is for the caller."""
    source = scratch / "requirements.in"
    source.write_text("\n".join(requirements) + "\n")
    overrides = scratch / "overrides.txt"
    overrides.write_text("\n".join(override.requirement for override in stack.override) + "\n")
    argv = [
        machine.uv_binary(), "pip", "compile", str(source),
        "--override", str(overrides),
        "--python-version", stack.python,
        "--python-platform", f"x86_64-manylinux_2_{GLIBC[stack.debian]}",
        "--no-annotate", "--no-header", *options,
    ]  # fmt: skip
    if backend := torch_backend(stack):
        argv += ["--torch-backend", backend]
    result = process.run(argv, env=machine.uv_environment(stack.torch), cwd=scratch)
    if result.returncode != 0 and isinstance(
        error := errors.from_tool("resolving the stack", result.output), (errors.NetworkError, errors.StorageError)
    ):
        raise error
    return result


def torch_backend(stack: Stack) -> str | None:
    """The PyTorch index to ask for a build such as 2.13.0+cpu; None when the wheelhouse has it already."""
    if stack.torch_backend is None or machine.in_wheelhouse("torch", stack.torch):
        return None
    return stack.torch_backend


def offers(stack: Stack, scratch: Path, pins: Sequence[str]) -> tuple[dict[str, list[File]], str]:
    """Every file of the pinned distributions that fits the stack, by name, the best first; and what uv had to say.

    The best is the wheel with the most specific tag; a source distribution comes last.
    """
    target = scratch / "pylock.toml"
    target.unlink(missing_ok=True)
    result = compile_pins(stack, scratch, pins, ["--no-deps", "--format", "pylock.toml", "-o", str(target)])
    if result.returncode != 0:
        raise errors.BadInputError(
            f"the locked versions cannot be found\n{result.stderr.strip()}",
            cause="a release was deleted, or the lock was edited",
            next_step="vetted lock",
        )
    order = {tag: rank for rank, tag in enumerate(tags(stack))}
    offered: dict[str, list[File]] = {}
    for package in tomllib.loads(target.read_text())["packages"]:
        wheels = [_file(package, wheel) for wheel in package.get("wheels", [])]
        ranked = sorted((rank, file.filename, file) for file in wheels if (rank := _rank(file, order)) is not None)
        fitting = [file for _, _, file in ranked]
        if "sdist" in package:
            fitting.append(_file(package, package["sdist"]))
        if not fitting:
            raise errors.BadInputError(
                f"{package['name']} {package['version']}: no file fits Python {stack.python} on {stack.debian}",
                next_step="choose another version in stack.toml",
            )
        offered[fitting[0].name] = fitting
    return offered, result.stderr


def _file(package: dict[str, Any], offered: dict[str, Any]) -> File:
    where = offered.get("url") or offered["path"]
    filename = unquote(str(where).rsplit("/", 1)[-1])
    local = Path(unquote(str(where).removeprefix("file://")))
    size = offered.get("size") or (local.stat().st_size if local.is_file() else None)
    return File(
        lockfile.normalise(package["name"]), package["version"], filename, where, offered["hashes"]["sha256"], size
    )


def _rank(file: File, order: dict[Tag, int]) -> int | None:
    fitting = [order[tag] for tag in parse_wheel_filename(file.filename)[3] if tag in order]
    return min(fitting, default=None)


def size(file: File) -> int | None:
    """The bytes of a file: as the index says, else as its host does; None when neither does."""
    if file.size is not None or "://" not in file.url:
        return file.size
    try:
        with urllib.request.urlopen(urllib.request.Request(file.url, method="HEAD"), timeout=60) as response:
            length = response.headers["Content-Length"]
            return int(length) if length else None
    except (urllib.error.URLError, TimeoutError, ConnectionError, ValueError):
        return None


def download(file: File) -> bytes:
    """The bytes of one (small) file."""
    url = file.url if "://" in file.url else Path(file.url).absolute().as_uri()
    try:
        with urllib.request.urlopen(url, timeout=60) as response:
            return bytes(response.read())
    except (urllib.error.URLError, TimeoutError) as error:
        raise errors.NetworkError(
            f"{file.filename}: {getattr(error, 'reason', error)}",
            cause="the index named the file, but its host did not answer",
            next_step="run this again",
        ) from error


def build_requirements(sdist: bytes) -> list[str]:
    """What a source distribution says it needs to be built (PEP 518; setuptools where it says nothing)."""
    with tarfile.open(fileobj=BytesIO(sdist)) as archive:
        for member in archive.getmembers():
            if re.fullmatch(r"[^/]+/pyproject\.toml", member.name) and (content := archive.extractfile(member)):
                requires = tomllib.loads(content.read().decode()).get("build-system", {}).get("requires")
                return [str(line) for line in requires or ["setuptools"]]
    return ["setuptools"]


def make(project: Project, name: str, stack: Stack, scratch: Path, upgrade: Sequence[str] | None) -> bool:
    """Resolve a stack and write its lock; True when anything changed.

    `upgrade`: None keeps every locked version that still fits; empty upgrades everything; else only the
    distributions named, where `debian` stands for the base layer.
    """
    folder = project.stack_dir(name)
    old = _existing(project, name)
    upgrade_debian = upgrade is not None and (not upgrade or "debian" in upgrade)
    entries, build = python(stack, scratch, old, upgrade)
    if (
        old
        and not upgrade_debian
        and (old.stack.debian, debian.wanted(old.stack))
        == (
            stack.debian,
            debian.wanted(stack),
        )
    ):
        packages = list(old.debian)
    else:
        packages = debian.resolve(stack, scratch)

    head = lockfile.header(name)
    contents = {
        "requirements.txt": head + lockfile.format_python(entries),
        "build.txt": head + lockfile.format_python(build),
        "debian.txt": head + lockfile.format_debian(packages),
    }
    contents["lock.toml"] = head + lockfile.format_meta(lockfile.intent(stack), EPOCH[stack.debian])
    changed = False
    for file, text in contents.items():
        path = folder / file
        if not path.is_file() or path.read_bytes() != text.encode():
            write(path, text, scratch)
            changed = True
    return changed


def python(
    stack: Stack, scratch: Path, old: Lock | None, upgrade: Sequence[str] | None
) -> tuple[list[Entry], list[Entry]]:
    """The distributions of a stack, and those that build the source distributions among them."""
    return exactly(stack, scratch, _pins(stack, scratch, old, upgrade))


def exactly(stack: Stack, scratch: Path, pins: Sequence[str]) -> tuple[list[Entry], list[Entry]]:
    """The files of these very versions, and what builds the source distributions among them."""
    best = _best(stack, scratch, pins)
    return _entries(best), _build_entries(stack, scratch, [file for file in best if not file.is_wheel])


def _existing(project: Project, name: str) -> Lock | None:
    try:
        return lockfile.load(project, name)
    except errors.BadInputError:
        return None


def _best(stack: Stack, scratch: Path, pins: Sequence[str]) -> list[File]:
    return [files[0] for files in offers(stack, scratch, pins)[0].values()]


def _entries(chosen: list[File]) -> list[Entry]:
    return sorted((Entry(f.name, f.version, f.sha256) for f in chosen), key=lambda entry: entry.name)


def _pins(stack: Stack, scratch: Path, old: Lock | None, upgrade: Sequence[str] | None) -> list[str]:
    target = scratch / "resolved.txt"
    options = ["-o", str(target)]
    if old:
        # uv prefers what its output file already holds.
        target.write_text("".join(f"{entry.name}=={entry.version}\n" for entry in old.python))
    if upgrade is not None:
        distributions = [package for package in upgrade if package != "debian"]
        unknown = [package for package in distributions if old and lockfile.normalise(package) not in old.versions]
        if unknown:
            raise errors.BadInputError(f"not in this lock: {', '.join(unknown)}", next_step="vetted lock --upgrade all")
        options += [f"--upgrade-package={package}" for package in distributions]
        if not upgrade:
            options.append("--upgrade")
    result = compile_pins(stack, scratch, stack.requires, options)
    if result.returncode != 0:
        raise errors.BadInputError(
            "the stack has no solution\n" + result.stderr.strip(),
            cause="two of its versions exclude each other",
            next_step="change `requires` in stack.toml, or record an [[override]] with its reason",
        )
    return [line for line in target.read_text().splitlines() if "==" in line]


def _build_entries(stack: Stack, scratch: Path, sdists: list[File]) -> list[Entry]:
    requirements = sorted({line for sdist in sdists for line in build_requirements(download(sdist))})
    if not requirements:
        return []
    tools = stack.model_copy(update={"override": []})
    target = scratch / "build.txt"
    result = compile_pins(tools, scratch, requirements, ["-o", str(target)])
    if result.returncode != 0:
        raise errors.from_tool("resolving the build requirements", result.output)
    return _entries(_best(tools, scratch, [line for line in target.read_text().splitlines() if "==" in line]))
