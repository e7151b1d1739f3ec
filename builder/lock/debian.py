"""The Debian packages of the base layer: locked by hash, downloaded from the configured mirror.

Both use apt (apt.py). Versions that the mirror no longer has come from snapshot.debian.org.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from builder.base import errors, process
from builder.base.download import Downloader
from builder.base.project import Project, sha256_file
from builder.intent.stack import Stack
from builder.lock import snapshot
from builder.lock.apt import Apt, plain_path
from builder.lock.lockfile import Entry, Lock

# Each has a reason. apt adds what they depend on, and nothing that is only recommended.
COMMON = (
    "usr-is-merged",  # else init-system-helpers brings usrmerge, and with it all of Perl
    "ca-certificates",
)
# Package -> system library that wheels link to but do not contain. vLLM without libnuma imports, and fails later.
LIBRARIES = {"libnuma1": "libnuma.so.1", "libstdc++6": "libstdc++.so.6"}
# Triton compiles a launcher at run time: it needs a C compiler and Python's headers. nvcc needs a C++ compiler too.
CUDA = ("gcc", "g++", "libc6-dev")
# Package -> library that NCCL and UCX open where the network cards of a cluster have RDMA. Without them NCCL falls back
# to TCP and says so only in its debug log. The providers are the cards' drivers in user space, of which mlx5 is one.
RDMA = {"libibverbs1": "libibverbs.so.1", "librdmacm1": "librdmacm.so.1", "ibverbs-providers": "libmlx5.so.1"}
# Libraries whose functions take times have other names from Debian 13 on, where times are 64 bits wide everywhere.
RENAMED = {"librdmacm1": {"trixie": "librdmacm1t64"}}


def packages(stack: Stack) -> tuple[str, ...]:
    """The packages that the base layer of a stack is made for, without what they depend on."""
    return (*COMMON, *LIBRARIES, f"python{stack.python}", *for_device(stack))


def for_device(stack: Stack) -> tuple[str, ...]:
    """Those of them that only the device of a stack needs."""
    if stack.device != "cuda":
        return ()
    rdma = (RENAMED.get(name, {}).get(stack.debian, name) for name in RDMA)
    return (*CUDA, *rdma, f"libpython{stack.python}-dev")


def resolve(stack: Stack, scratch: Path) -> list[Entry]:
    """The Debian packages of a stack's base layer, by name. Raises NetworkError."""
    with plain_path(scratch) as folder:
        return Apt(folder / f"apt-{stack.platform.name}", stack).resolve(packages(stack))


def differing(lock: Lock, scratch: Path) -> dict[Entry, str]:
    """The packages of a lock of which the mirror has the very version with another hash, and that hash.

    Versions that the mirror has replaced since are not in it: their hashes are checked when they are downloaded.
    Raises NetworkError, MissingToolError without a mirror.
    """
    if not lock.debian:
        return {}
    with plain_path(scratch) as folder:
        hashes = Apt(folder / f"apt-{lock.platform.name}", lock.stack).hashes(lock.debian)
    offered = {entry: hashes.get((entry.name, entry.version), entry.sha256) for entry in lock.debian}
    return {entry: sha256 for entry, sha256 in offered.items() if sha256 != entry.sha256}


def beside(project: Project, base: Lock, names: Sequence[str], scratch: Path) -> list[Entry]:
    """The packages that are needed for these names on top of a base layer, which stays as it is.

    Raises BadInputError when one needs a newer package of the base, NetworkError.
    """
    missing = sorted(set(names) - {entry.name for entry in base.debian})
    if not missing:
        return []
    stanzas = []
    for path in fetch(project, base, scratch).values():
        control = process.check(f"reading {path.name}", ["dpkg-deb", "--field", str(path)]).stdout.rstrip()
        stanzas.append(f"{control}\nStatus: install ok installed\n")
    with plain_path(scratch) as folder:
        apt = Apt(folder / "apt-beside", base.stack)
        (apt.root / "status").write_text("\n".join(stanzas))  # for apt, the base is installed
        entries = apt.resolve(missing)
    versions = {entry.name: entry.version for entry in base.debian}
    if moved := [f"{entry.name} {versions[entry.name]}" for entry in entries if entry.name in versions]:
        raise errors.BadInputError(
            f"{', '.join(missing)}: what the mirror has needs newer packages than the base layer of {base.name}"
            f"\n  in the way: {', '.join(moved)}",
            cause="the mirror moved on since the base layer was locked",
            next_step="set VETTED_DEBIAN_MIRROR to a snapshot mirror of that day",
        )
    return entries


def fetch(project: Project, lock: Lock, scratch: Path, names: Collection[str] | None = None) -> dict[Entry, Path]:
    """The locked packages, or those of these names, as verified files: kept ones, else downloads from the mirror.

    What the mirror replaced since the lock comes from snapshot.debian.org. A kept file is hashed at every use: its
    name is the hash that it should have. Raises NetworkError.
    """
    (project.state / "debs").mkdir(parents=True, exist_ok=True)
    files = {entry: kept(project, entry) for entry in lock.debian if names is None or entry.name in names}
    missing = [entry for entry, path in files.items() if not is_kept(path, entry)]
    if missing:
        downloads = scratch / f"debs-{lock.platform.name}"
        downloads.mkdir(parents=True)
        with plain_path(scratch) as folder:
            apt = Apt(folder / f"apt-{lock.platform.name}", lock.stack)
            offered = apt.offered(missing)
            downloaded = apt.download([entry for entry in missing if entry in offered], downloads)
        keep(downloaded, files)
        for entry, path in _replaced([entry for entry in missing if entry not in offered], lock, downloads):
            path.replace(files[entry])
    return files


def kept(project: Project, entry: Entry) -> Path:
    """Where the file of a package is kept."""
    return project.state / "debs" / f"{entry.sha256}.deb"


def keep(downloaded: Mapping[Entry, Path], files: Mapping[Entry, Path]) -> None:
    """Move downloads to where they are kept. Raises NetworkError for bytes that are not those of the entry."""
    for entry, path in downloaded.items():
        if (digest := sha256_file(path)) != f"sha256:{entry.sha256}":
            raise errors.NetworkError(
                f"{entry.name}={entry.version}: the downloaded package is not the locked one\n"
                f"expected sha256:{entry.sha256}\ngot      {digest}",
                cause="debian.txt was edited, or the mirror serves other bytes than when it was locked",
                next_step="git diff lockfiles/, then `vetted lock --check`",
            )
        path.replace(files[entry])


def is_kept(path: Path, entry: Entry) -> bool:
    """Is it the file of this package?"""
    return path.is_file() and sha256_file(path) == f"sha256:{entry.sha256}"


def _replaced(gone: Sequence[Entry], lock: Lock, target: Path) -> Iterator[tuple[Entry, Path]]:
    """The packages that the mirror replaced, one by one. Raises NetworkError, which names every one of them."""
    with Downloader() as downloader:
        for entry in gone:
            try:
                yield entry, snapshot.download(downloader, entry, lock.platform.name, target)
            except errors.NetworkError as error:
                raise errors.NetworkError(
                    "the Debian mirror no longer has "
                    + ", ".join(f"{entry.name} {entry.version}" for entry in gone)
                    + f"; newer versions replaced them\nfor {entry.name}, {snapshot.archive()} was asked: {error.what}",
                    cause="mirrors keep only the newest version of a package",
                    next_step="set VETTED_DEBIAN_MIRROR to a snapshot mirror of the day of the lock, "
                    "or upgrade with `vetted lock --upgrade debian`",
                ) from error
