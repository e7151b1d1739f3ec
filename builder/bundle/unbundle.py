"""Check, unpack and run a bundle on a host without a network: python3 run.py [--device cuda] [--to FOLDER].

`vetted bundle` puts this one file beside the parts as run.py; it needs Python and nothing else. Interrupt it at any
moment, and run it again when more parts have arrived: it continues where it stopped.
Exit codes: 0 certified, or every requested probe passed - 1 the answer is no - 2 usage - 3 parts are missing -
4 another Python or machine - 6 disk or permission.
"""

from __future__ import annotations

import argparse
import errno
import fcntl
import hashlib
import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

MANIFEST = "manifest.json"
FORMAT = 1
CHUNK = 1 << 20
PART_NAME = re.compile(r"[a-z0-9][a-z0-9.+_-]*\.part[0-9]{3,6}")
# Variables that would change which files are installed, or what Python imports.
NOT_PASSED = ("UV_", "PIP_", "VETTED_", "PYTHON", "VIRTUAL_ENV", "CONDA_")


class StopError(Exception):
    """Ends the run with an exit code, and says why, the usual cause and what to do next."""

    def __init__(self, code: int, what: str, cause: str = "", next_step: str = "") -> None:
        super().__init__(what)
        self.code = code
        lines = [what, cause and f"usual cause: {cause}", next_step and f"next: {next_step}"]
        self.text = "\n".join(line for line in lines if line)


class Part(NamedTuple):
    name: str
    size: int
    sha256: str


class Manifest(NamedTuple):
    stack: str
    device: str
    python: str
    size: int
    parts: tuple[Part, ...]
    digest: str  # of the manifest itself: the identity of the bundle


def say(what: str) -> None:
    print(what, file=sys.stderr, flush=True)


def readable_size(count: float) -> str:
    """As builder/base/quantities.py says it, which does not travel with this file."""
    return f"{count / 1e6:.0f} MB" if count > 5e5 else f"{count / 1e3:.1f} kB"


def read_manifest(folder: Path) -> Manifest:
    """Read and check the manifest: it decides which files are read and what they are called."""
    path = folder / MANIFEST
    copy = "copy it again from where the bundle was made"
    try:
        raw = path.read_bytes()
    except FileNotFoundError as error:
        raise StopError(3, f"{path} is missing", "it is the last file that a bundle gets", copy) from error
    try:
        data = json.loads(raw)
        if data["format"] != FORMAT:
            raise ValueError(f"format {data['format']!r}, not {FORMAT}")
        parts = tuple(Part(part["name"], part["size"], part["sha256"]) for part in data["parts"])
        stack, device, python, size = data["stack"], data["device"], data["python"], data["size"]
        _check(re.fullmatch(r"[a-z0-9][a-z0-9.+_-]*", stack), "stack", stack)
        _check(device in ("cpu", "cuda"), "device", device)
        _check(re.fullmatch(r"3\.[0-9]{1,2}", python), "python", python)
        for part in parts:
            _check(PART_NAME.fullmatch(part.name), "name of a part", part.name)
            _check(type(part.size) is int and part.size > 0, "size of a part", part.size)
            _check(re.fullmatch(r"[0-9a-f]{64}", part.sha256), "checksum", part.sha256)
        _check(parts and len({part.name for part in parts}) == len(parts), "list of parts", [p.name for p in parts])
        _check(type(size) is int and size == sum(part.size for part in parts), "size", size)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else str(error)
        raise StopError(1, f"{path} is not a manifest: {reason}", "it was damaged or edited", copy) from error
    return Manifest(stack, device, python, size, parts, hashlib.sha256(raw).hexdigest())


def _check(holds: object, what: str, value: object) -> None:
    if not holds:
        raise ValueError(f"its {what} cannot be {value!r}")


def collect(folder: Path, manifest: Manifest, kept: Path) -> None:
    """Keep a checked copy of every part that has arrived. Raises StopError that names the missing and the damaged."""
    kept.mkdir(parents=True, exist_ok=True)
    missing, damaged = [], []
    for number, part in enumerate(manifest.parts, start=1):
        if (kept / part.name).is_file():
            continue
        source = folder / part.name
        if not source.is_file():
            missing.append(part.name)
            continue
        say(f"checking part {number} of {len(manifest.parts)}")
        if reason := _copy(source, part, kept):
            damaged.append(f"{part.name}: {reason}")
    own = {part.name for part in manifest.parts}
    foreign = sorted(path.name for path in folder.iterdir() if PART_NAME.fullmatch(path.name) and path.name not in own)
    if foreign:
        say(f"not part of this bundle, ignored: {', '.join(foreign)}")
    if damaged or missing:
        lines = [f"damaged: {line}" for line in damaged] + [f"missing: {name}" for name in missing]
        raise StopError(
            1 if damaged else 3,
            "\n".join([f"{len(damaged) + len(missing)} of {len(manifest.parts)} parts are not here yet", *lines]),
            "a copy that was interrupted, or parts of two bundles" if damaged else "not all files were copied",
            f"copy them to {folder}, then run this again; the other parts are kept",
        )


def _copy(source: Path, part: Part, kept: Path) -> str:
    """Copy a part if it is whole; else return what is wrong with it. It gets its name when it is whole."""
    size = source.stat().st_size
    if size != part.size:
        return f"{size} bytes, not {part.size}"
    partial = kept / f".{part.name}.partial"
    digest = hashlib.sha256()
    with source.open("rb") as read, partial.open("wb") as written:
        while chunk := read.read(CHUNK):
            digest.update(chunk)
            written.write(chunk)
    if digest.hexdigest() != part.sha256:
        partial.unlink()
        return f"its checksum is sha256:{digest.hexdigest()}, not sha256:{part.sha256}"
    partial.replace(kept / part.name)
    return ""


class Joined(io.RawIOBase):
    """The kept parts as one stream; each is checked again while it is read."""

    def __init__(self, kept: Path, parts: Sequence[Part]) -> None:
        super().__init__()
        self._chunks = self._read(kept, parts)
        self._left = b""

    def _read(self, kept: Path, parts: Sequence[Part]) -> Iterator[bytes]:
        for part in parts:
            digest = hashlib.sha256()
            with (kept / part.name).open("rb") as file:
                while chunk := file.read(CHUNK):
                    digest.update(chunk)
                    yield chunk
            if digest.hexdigest() != part.sha256:
                (kept / part.name).unlink()
                raise StopError(
                    1, f"{part.name} has changed since it was checked", "a failing disk", f"copy it again: {part.name}"
                )

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._left:
            self._left = next(self._chunks, b"")
        count = min(len(buffer), len(self._left))
        buffer[:count] = self._left[:count]
        self._left = self._left[count:]
        return count


def unpack(kept: Path, manifest: Manifest, final: Path) -> None:
    """Unpack the parts into a folder that gets its name when it is whole; files that are there already are skipped."""
    partial = final.with_name(f"{final.name}.partial")
    partial.mkdir(parents=True, exist_ok=True)
    say(f"unpacking {readable_size(manifest.size)}")
    joined = io.BufferedReader(Joined(kept, manifest.parts), CHUNK)
    try:
        with tarfile.open(fileobj=joined, mode="r|") as archive:
            for member in archive:
                _extract(archive, member, partial)
        while joined.read(CHUNK):  # to the end, so that the last part is checked whole
            pass
    except StopError:
        shutil.rmtree(partial)  # some of the unpacked files may be wrong
        raise
    except tarfile.TarError as error:
        shutil.rmtree(partial)
        raise StopError(
            1, f"the parts are not an archive: {error}", "the bundle was not made by `vetted bundle`"
        ) from error
    partial.rename(final)


def _extract(archive: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    """Write one member; it gets its name when it is whole. Refuses all but plain files below `target`."""
    parts = member.name.split("/")
    if not member.isreg() or any(part in ("", ".", "..") for part in parts) or "\\" in member.name:
        raise StopError(
            1,
            f"the archive holds {member.name!r}, which is not a plain file below its folder; nothing was written there",
            "the bundle was not made by `vetted bundle`",
            "do not use it",
        )
    path = target.joinpath(*parts)
    if path.is_file() and path.stat().st_size == member.size:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial~")
    content = archive.extractfile(member)
    assert content is not None
    with content, partial.open("wb") as file:
        shutil.copyfileobj(content, file, CHUNK)
    partial.replace(path)


def clean_environment(to: Path) -> dict[str, str]:
    """The environment without NOT_PASSED; everything is written below `to`."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(NOT_PASSED)}
    return {
        **kept,
        "UV_OFFLINE": "1",
        "UV_NO_CONFIG": "1",
        "UV_PYTHON_DOWNLOADS": "never",
        "UV_CACHE_DIR": str(to / "cache"),
        "VETTED_STATE": str(to),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def verifier(root: Path, final: Path, environment: Mapping[str, str], lock: int) -> Path:
    """The verifier's own small environment, installed from the bundle alone; returns its interpreter."""
    python = final / "bin" / "python"
    partial = final.with_name(f"{final.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    if final.is_dir():
        return python
    say("installing the verifier")
    partial.mkdir(parents=True)
    uv = partial / "uv"
    wheel = next((root / "tool").glob("uv-*.whl"))
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".data/scripts/uv"))
        with archive.open(name) as packed, uv.open("wb") as file:
            shutil.copyfileobj(packed, file, CHUNK)
    uv.chmod(0o755)
    venv = partial / "venv"
    tool = root / "tool"
    for argv in (
        ["venv", "--no-project", "--relocatable", "--python", sys.executable, str(venv)],
        [
            *("pip", "sync", "--python", str(venv / "bin" / "python"), "--no-index", "--find-links", str(tool)),
            *("--require-hashes", "--only-binary", ":all:", str(tool / "requirements.txt")),
        ],
    ):
        # It holds the lock too: when this process is killed, the next run waits for it.
        result = subprocess.run(
            [str(uv), "--quiet", *argv], env=dict(environment), pass_fds=(lock,), capture_output=True, text=True
        )
        if result.returncode != 0:
            full = "No space left" in result.stderr
            raise StopError(
                6 if full else 1,
                "installing the verifier failed\n" + "\n".join(result.stderr.strip().splitlines()[-12:]),
                "the disk is full" if full else "",
                "free some space, or name another disk with --to" if full else "",
            )
    venv.rename(final)
    shutil.rmtree(partial)
    return python


def hold(to: Path) -> int:
    """Lock the folder against other runs; the kernel releases the lock when the last process that holds it ends."""
    to.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(to / "lock", os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        say(f"another run is at work in {to}; waiting for it to finish")
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    return descriptor


def remove_others(to: Path, short: str) -> None:
    """Remove the folders that runs of earlier bundles wrote, and nothing else."""
    for path in to.iterdir():
        match = re.fullmatch(r"(bundle|parts|verifier)-([0-9a-f]{12})(\.partial)?", path.name)
        if match and match[2] != short:
            shutil.rmtree(path, ignore_errors=True)


def run(arguments: Sequence[str], folder: Path) -> None:
    """Check, unpack, install; then the verifier replaces this process."""
    parser = argparse.ArgumentParser(prog="run.py", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("--device", choices=("cpu", "cuda"), help="default: the stack's")
    parser.add_argument("--to", type=Path, help="where everything is written; default: vetted-STACK in this folder")
    parser.add_argument("--probe", action="append", default=[], help="only this probe; issues no certificate")
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")
    options = parser.parse_args(arguments)
    manifest = read_manifest(folder)
    here = "{}.{}".format(*sys.version_info[:2])
    if here != manifest.python:
        raise StopError(
            4,
            f"this is Python {here}; the bundle's files are for Python {manifest.python}",
            next_step=f"python{manifest.python} {folder / 'run.py'}, or make the bundle with --python {here}",
        )
    if sys.platform != "linux" or platform.machine() != "x86_64":
        raise StopError(4, f"the bundle's files are for Linux on x86_64, not {sys.platform} on {platform.machine()}")
    to = (options.to or Path(f"vetted-{manifest.stack}")).absolute()
    if options.device == "cuda" and manifest.device == "cpu":
        parser.error(f"{manifest.stack} is a cpu stack: its lock holds no CUDA")
    lock = hold(to)
    short = manifest.digest[:12]
    remove_others(to, short)
    root = to / f"bundle-{short}"
    if not root.is_dir():
        kept = to / f"parts-{short}"
        collect(folder, manifest, kept)
        unpack(kept, manifest, root)
    shutil.rmtree(to / f"parts-{short}", ignore_errors=True)
    environment = clean_environment(to)
    python = verifier(root, to / f"verifier-{short}", environment, lock)
    argv = [str(python), "-m", "builder", "run-bundle", "--host", sys.executable]
    argv += ["--device", options.device or manifest.device]
    argv += [word for probe in options.probe for word in ("--probe", probe)]
    argv += ["--json"] if options.json else []
    os.set_inheritable(lock, True)
    os.chdir(root)
    os.execve(python, argv, environment)


def main() -> None:
    try:
        run(sys.argv[1:], Path(__file__).absolute().parent)
    except StopError as error:
        say(f"vetted: {error.text}")
        sys.exit(error.code)
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        say(f"vetted: {error.filename or 'a file'}: {error.strerror or error}")
        say("next: " + ("free some space, or name" if full else "name") + " a folder that can be written with --to")
        sys.exit(6)
    except KeyboardInterrupt:
        say("vetted: interrupted; the same command continues where it stopped")
        sys.exit(130)


if __name__ == "__main__":
    main()
