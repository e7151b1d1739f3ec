"""Locked wheels and source distributions as files, kept below the state under their hash.

A kept file is hashed at every use: its folder is named after the hash that it should have.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from pathlib import Path

from packaging.utils import InvalidSdistFilename, InvalidWheelFilename, parse_sdist_filename, parse_wheel_filename

from builder.base import errors, quantities
from builder.base.download import Downloader
from builder.base.project import Project, sha256_file
from builder.intent.stack import Stack
from builder.lock import index
from builder.lock.index import File
from builder.lock.lockfile import Entry, normalise

Report = Callable[[str], None]

FOLDER = "wheels"  # below the state: every downloaded file, in a folder named after its hash
AT_ONCE = 4


def fetch(project: Project, stack: Stack, entries: Sequence[Entry], scratch: Path, report: Report) -> dict[Entry, Path]:
    """The files of locked distributions: kept ones, and the others from the index of this machine.

    Raises NetworkError when the index or the host of a file does not answer, or offers other bytes.
    """
    with ThreadPoolExecutor(AT_ONCE) as pool:
        paths = dict(zip(entries, pool.map(lambda entry: kept(project, entry), entries), strict=True))
    missing = [entry for entry in entries if paths[entry] is None]
    if missing:
        report(f"looking up {len(missing)} locked files")
        # An override keeps some distributions from being installed; what is locked is installed.
        plain = stack.model_copy(update={"override": []})
        offers, _ = index.offers(plain, scratch, [entry.pin for entry in missing])
        files = {entry: of_hash(entry, offers.get(entry.name, [])) for entry in missing}
        downloads = download(project, scratch, list(files.values()), report)
        paths |= {entry: downloads[file] for entry, file in files.items()}
    return {entry: path for entry, path in paths.items() if path is not None}


def of_hash(entry: Entry, offers: Sequence[File]) -> File:
    """The offered file that has the locked hash. Raises NetworkError."""
    for file in offers:
        if file.sha256 == entry.sha256:
            return file
    raise errors.NetworkError(
        f"{entry.pin}: no offered file has the locked hash\n"
        f"expected sha256:{entry.sha256}\n"
        f"got      {' '.join(f'sha256:{file.sha256}' for file in offers[:1]) or 'nothing'}",
        cause="the lock was edited, or the index serves other bytes than when it was locked",
        next_step="git diff lockfiles/, then `vetted lock --check`",
    )


def kept(project: Project, entry: Entry) -> Path | None:
    """A file that was downloaded before, if it has the locked hash and is named after its distribution.

    Under the name of another distribution it could replace that one's file in the folder that uv installs from.
    """
    folder = _folder(project, entry.sha256)
    paths = [path for path in folder.glob("*") if not path.name.endswith(".partial")] if folder.is_dir() else []
    if (
        len(paths) == 1
        and _distribution(paths[0]) == normalise(entry.name)
        and paths[0].is_file()
        and sha256_file(paths[0]) == f"sha256:{entry.sha256}"
    ):
        return paths[0]
    return None


def named(path: Path) -> tuple[str, str]:
    """The distribution and the version that a file is named after. Raises ValueError."""
    name, version = (parse_wheel_filename if path.suffix == ".whl" else parse_sdist_filename)(path.name)[:2]
    return name, str(version)


def _distribution(path: Path) -> str | None:
    """The distribution that a file is named after."""
    try:
        return parse_wheel_filename(path.name)[0] if path.suffix == ".whl" else parse_sdist_filename(path.name)[0]
    except (InvalidWheelFilename, InvalidSdistFilename):
        return None


def download(project: Project, scratch: Path, files: Sequence[File], report: Report) -> dict[File, Path]:
    """Verified files: kept ones, and downloads. Raises NetworkError."""
    done: dict[File, Path] = {}
    stopping = threading.Event()

    def fetch(file: File) -> None:
        def progress(size: int) -> None:
            if stopping.is_set():
                raise CancelledError
            report(f"downloading: {len(done)} of {len(files)} files; {quantities.size(size)} of {file.filename}")

        done[file] = _download(downloader, project, scratch, file, progress)

    with Downloader() as downloader, ThreadPoolExecutor(AT_ONCE) as pool:
        try:
            for _ in pool.map(fetch, files):
                pass
        finally:  # after Ctrl-C or an error, the running downloads end as well
            stopping.set()
            pool.shutdown(cancel_futures=True)
    return done


def _folder(project: Project, sha256: str) -> Path:
    return project.state / FOLDER / sha256


def _download(
    downloader: Downloader, project: Project, scratch: Path, file: File, progress: Callable[[int], None]
) -> Path:
    folder = _folder(project, file.sha256)
    target = folder / file.filename
    if kept(project, Entry(file.name, file.version, file.sha256)) == target:
        return target
    partial = scratch / f"{file.sha256}.partial"
    sha256 = downloader.save(file.url, partial, size=file.size, report=progress)
    if sha256 != file.sha256:
        raise errors.NetworkError(
            f"{file.name}: the downloaded file is not the locked one\n"
            f"expected sha256:{file.sha256}\ngot      sha256:{sha256}",
            cause="the download was cut short, or the index serves other bytes than when it was locked",
            next_step="run this again; then vetted lock --check",
        )
    # Another process may keep the same file at this moment. Every other file here has another hash or name.
    if folder.is_symlink():  # what it leads to is not ours to make room in
        folder.unlink(missing_ok=True)
    folder.mkdir(parents=True, exist_ok=True)
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)
        elif path != target:
            path.unlink(missing_ok=True)
    partial.replace(target)
    return target


def gather(files: Iterable[Path], folder: Path) -> Path:
    """A folder of these files that uv can install from. They are hard links, or copies from another disk."""
    folder.mkdir(parents=True, exist_ok=True)
    for file in files:
        try:
            (folder / file.name).hardlink_to(file)
        except FileExistsError:  # a copy would be written through the link
            pass
        except OSError:
            shutil.copy2(file, folder / file.name)
    return folder
