"""The Debian packages of the base layer: locked by hash, downloaded from the configured mirror.

Both use apt with a root of its own: the packages of this machine play no part. The mirror is the one that this machine
is configured for, or VETTED_DEBIAN_MIRROR: one or more URLs. Versions that it no longer has come from
snapshot.debian.org.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

from builder.base import errors, process
from builder.base.download import Downloader
from builder.base.project import Project, sha256_file
from builder.intent.stack import Stack
from builder.lock import snapshot
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
KEYRING_NAME = "debian-archive-keyring"
KEYRING = f"/usr/share/keyrings/{KEYRING_NAME}.gpg"
# A source of sources.list: a Debian archive's URL.
ONE_LINE = re.compile(r"^deb\s+(?:\[[^]]*\]\s+)?(\S+/debian(?:-security)?)/?\s", re.MULTILINE)


def packages(stack: Stack) -> tuple[str, ...]:
    """The packages that the base layer of a stack is made for, without what they depend on."""
    return (*COMMON, *LIBRARIES, f"python{stack.python}", *for_device(stack))


def for_device(stack: Stack) -> tuple[str, ...]:
    """Those of them that only the device of a stack needs."""
    if stack.device != "cuda":
        return ()
    rdma = (RENAMED.get(name, {}).get(stack.debian, name) for name in RDMA)
    return (*CUDA, *rdma, f"libpython{stack.python}-dev")


class Apt:
    """apt with a root folder of its own, where no package is installed, for the suite and the platform of a stack."""

    def __init__(self, root: Path, stack: Stack) -> None:
        self.root = root
        for folder in ("etc/preferences.d", "etc/apt.conf.d", "lists/partial", "cache/archives/partial"):
            (root / folder).mkdir(parents=True)
        (root / "status").touch()
        (root / "etc/sources.list.d").mkdir()
        (root / "etc/sources.list.d/debian.sources").write_text(sources(stack.debian))
        options = {
            "Dir::Etc": root / "etc",
            "Dir::State": root,
            "Dir::State::lists": root / "lists",
            "Dir::State::status": root / "status",
            "Dir::Cache": root / "cache",
            "APT::Architecture": stack.platform.name,
            "APT::Install-Recommends": "false",
            "APT::Sandbox::User": "root",
            "Acquire::Languages": "none",
            "Acquire::ForceHash": "SHA256",
            "Acquire::Retries": "2",
        }
        (root / "apt.conf").write_text(
            "".join(f'{key} "{value}";\n' for key, value in options.items())
            + f'APT::Architectures {{ "{stack.platform.name}"; }};\n'
        )
        result = self._run("apt-get", "update", "--error-on=any")
        if result.returncode != 0:
            raise errors.NetworkError(
                "the Debian mirror did not answer\n" + "\n".join(result.output.strip().splitlines()[-4:]),
                cause="no network, or apt is not configured for your proxy or mirror",
                next_step="apt-get update, or set VETTED_DEBIAN_MIRROR",
            )

    def _run(self, *argv: str, cwd: Path | None = None) -> process.Result:
        return process.run(argv, env={"APT_CONFIG": str(self.root / "apt.conf"), "LC_ALL": "C"}, cwd=cwd)

    def resolve(self, names: Sequence[str]) -> list[Entry]:
        """Every package of a system that has only these and the essential ones. Raises NetworkError."""
        result = self._run(
            "apt-get", "install", "--yes", "--print-uris", "-q",
            "?and(?essential,?not(?exact-name(apt)))", *names,
        )  # fmt: skip
        rows = re.findall(r"^'\S+' (\S+)_[^_ ]+\.deb \d+ SHA256:([0-9a-f]{64})$", result.stdout, re.MULTILINE)
        if result.returncode != 0 or not rows:
            raise errors.from_tool(f"resolving {' '.join(names)}", result.output)
        files = ((unquote(file).split("_", 1), sha256) for file, sha256 in rows)
        entries = [Entry(name, version, sha256) for (name, version), sha256 in files]
        return sorted(entries, key=lambda entry: entry.name)

    def offered(self, entries: Collection[Entry]) -> set[Entry]:
        """Those of which the mirror has exactly this version."""
        answer = self._run("apt-cache", "madison", *(entry.name for entry in entries)).stdout
        versions = {tuple(cell.strip() for cell in line.split("|")[:2]) for line in answer.splitlines()}
        return {entry for entry in entries if (entry.name, entry.version) in versions}

    def hashes(self, entries: Collection[Entry]) -> dict[tuple[str, str], str]:
        """The SHA-256 of each file that the mirror has of exactly these versions, by name and version."""
        from debian.deb822 import Deb822  # as in _mirrors

        # It prints those that it has, and fails for the others.
        answer = self._run("apt-cache", "show", *(f"{entry.name}={entry.version}" for entry in entries)).stdout
        stanzas = Deb822.iter_paragraphs(answer)
        return {(stanza["Package"], stanza["Version"]): stanza.get("SHA256", "") for stanza in stanzas}

    def newest(self, names: Collection[str]) -> list[dict[str, str]]:
        """What apt would install of each, as the mirror describes it: its fields. Raises VettedError."""
        from debian.deb822 import Deb822  # as in _mirrors

        result = self._run("apt-cache", "show", "--no-all-versions", *sorted(names))
        stanzas = [dict(stanza) for stanza in Deb822.iter_paragraphs(result.stdout)]
        if names and not stanzas:
            raise errors.from_tool("asking for Debian packages", result.output)
        return stanzas

    def download(self, entries: Collection[Entry], target: Path) -> dict[Entry, Path]:
        """Exactly these versions as files in `target`, not yet verified. Raises NetworkError."""
        if not entries:
            return {}
        result = self._run(
            "apt-get", "download", "-q", *(f"{entry.name}={entry.version}" for entry in entries), cwd=target
        )
        if result.returncode != 0:
            raise errors.from_tool("downloading Debian packages", result.output)
        # apt writes the epoch's colon as %3a
        return {
            entry: next(target.glob(f"{entry.name}_{entry.version.replace(':', '%3a')}_*.deb")) for entry in entries
        }


def sources(suite: str, configuration: Path = Path("/etc/apt")) -> str:
    """apt's sources of a Debian suite: the mirrors in VETTED_DEBIAN_MIRROR, else those that apt uses on this machine.

    Raises MissingToolError when there are none.
    """
    if mirrors := os.environ.get("VETTED_DEBIAN_MIRROR", "").replace(",", " ").split():
        return "\n".join(_stanza(url, suite, snapshot=True) for url in mirrors)
    urls = _mirrors(configuration)
    if not urls:
        raise errors.MissingToolError(
            "apt on this machine names no Debian mirror",
            cause="this is not Debian, or it uses third-party sources only",
            next_step="set VETTED_DEBIAN_MIRROR to a mirror's URL",
        )
    return "\n".join(_stanza(url, suite) for url in urls)


def _mirrors(configuration: Path) -> list[str]:
    """The Debian mirrors that apt uses on this machine."""
    from debian.deb822 import Deb822  # this takes half a second, and only locking and a first download need it

    urls = []
    for path in sorted((configuration / "sources.list.d").glob("*.sources")):
        for stanza in Deb822.iter_paragraphs(path.read_text(errors="replace")):
            enabled = stanza.get("Enabled", "yes").lower() not in ("no", "false", "0", "off", "without", "disable")
            if enabled and "deb" in stanza.get("Types", "").split() and KEYRING_NAME in stanza.get("Signed-By", ""):
                urls += stanza.get("URIs", "").split()
    for path in (configuration / "sources.list", *sorted((configuration / "sources.list.d").glob("*.list"))):
        if path.is_file():
            urls += ONE_LINE.findall(path.read_text(errors="replace"))
    return list(dict.fromkeys(url.rstrip("/") for url in urls))


def _stanza(url: str, suite: str, *, snapshot: bool = False) -> str:
    # The URL of a snapshot has its day after the archive's name.
    suites = f"{suite}-security" if re.search(r"-security(/|$)", url) else f"{suite} {suite}-updates"
    if snapshot and "-security" not in suites:
        suites = suite  # a private mirror, or the snapshot of a day, may not have the other suites
    old = "Check-Valid-Until: no\n" if snapshot else ""
    return f"Types: deb\nURIs: {url}\nSuites: {suites}\nComponents: main\nSigned-By: {KEYRING}\n{old}"


@contextmanager
def plain_path(folder: Path) -> Iterator[Path]:
    """The folder under a path that apt and mmdebstrap can read: spaces and quotes have a meaning to them."""
    if re.fullmatch(r"[A-Za-z0-9/._+-]+", str(folder)):
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="vetted-") as beside:
        Path(beside).chmod(0o711)  # where it can, apt reads the repository as a user of its own
        link = Path(beside) / "scratch"
        link.symlink_to(folder)
        yield link


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
