"""The Debian packages of the base layer: locked by hash, downloaded from the configured mirror.

Both use apt with a root of its own: the packages of this machine play no part. The mirror is the one that this machine
is configured for, or VETTED_DEBIAN_MIRROR: one or more URLs.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

from builder.base import errors, process
from builder.base.project import Project, sha256_file
from builder.intent.stack import Stack
from builder.lock.lockfile import Entry, Lock

# Every package here has a reason; what they depend on comes by itself, and nothing that is only recommended.
COMMON = (
    "usr-is-merged",  # else init-system-helpers pulls usrmerge, and with it all of Perl
    "ca-certificates",
)
# System libraries that wheels link but do not carry, by package. vLLM without libnuma imports, and fails later on.
LIBRARIES = {"libnuma1": "libnuma.so.1", "libstdc++6": "libstdc++.so.6"}
# Triton compiles a launcher at run time: it needs a C compiler and the Python headers. So does nvcc, and one for C++.
CUDA = ("gcc", "g++", "libc6-dev")
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"


def wanted(stack: Stack) -> tuple[str, ...]:
    python = (f"python{stack.python}",)
    return (*COMMON, *LIBRARIES) + python + ((*CUDA, f"libpython{stack.python}-dev") if stack.device == "cuda" else ())


class Apt:
    """apt with a root of its own, in which no package is installed."""

    def __init__(self, root: Path, suite: str) -> None:
        self.root = root
        for folder in ("etc/preferences.d", "etc/apt.conf.d", "lists/partial", "cache/archives/partial"):
            (root / folder).mkdir(parents=True)
        (root / "status").touch()
        (root / "etc/sources.list.d").mkdir()
        (root / "etc/sources.list.d/debian.sources").write_text(sources(suite))
        options = {
            "Dir::Etc": root / "etc",
            "Dir::State": root,
            "Dir::State::lists": root / "lists",
            "Dir::State::status": root / "status",
            "Dir::Cache": root / "cache",
            "APT::Architecture": "amd64",
            "APT::Install-Recommends": "false",
            "APT::Sandbox::User": "root",
            "Acquire::Languages": "none",
            "Acquire::ForceHash": "SHA256",
            "Acquire::Retries": "2",
        }
        (root / "apt.conf").write_text(
            "".join(f'{key} "{value}";\n' for key, value in options.items()) + 'APT::Architectures { "amd64"; };\n'
        )
        result = self._run("apt-get", "update", "--error-on=any")
        if result.returncode != 0:
            raise errors.NetworkError(
                "the Debian mirror did not answer\n" + "\n".join(result.output.strip().splitlines()[-4:]),
                cause="no network, or a mirror or proxy that apt does not know",
                next_step="apt-get update, or set VETTED_DEBIAN_MIRROR",
            )

    def _run(self, *argv: str, cwd: Path | None = None) -> process.Result:
        return process.run(argv, env={"APT_CONFIG": str(self.root / "apt.conf"), "LC_ALL": "C"}, cwd=cwd)

    def resolve(self, packages: tuple[str, ...]) -> list[Entry]:
        """Everything that a system of only these packages (and the essential ones) is made of."""
        result = self._run(
            "apt-get", "install", "--yes", "--print-uris", "-q",
            "?and(?essential,?not(?exact-name(apt)))", *packages,
        )  # fmt: skip
        rows = re.findall(r"^'\S+' (\S+)_[^_ ]+\.deb \d+ SHA256:([0-9a-f]{64})$", result.stdout, re.MULTILINE)
        if result.returncode != 0 or not rows:
            raise errors.from_tool(f"resolving {' '.join(packages)}", result.output)
        parts = ((unquote(file).split("_", 1), digest) for file, digest in rows)
        entries = [Entry(name, version, digest) for (name, version), digest in parts]
        return sorted(entries, key=lambda entry: entry.name)

    def download(self, missing: list[Entry], target: Path) -> None:
        """Download exactly these versions. Raises NetworkError that names every one the mirror no longer has."""
        offered = self._run("apt-cache", "madison", *(entry.name for entry in missing)).stdout
        versions = {tuple(cell.strip() for cell in line.split("|")[:2]) for line in offered.splitlines()}
        gone = [entry for entry in missing if (entry.name, entry.version) not in versions]
        if gone:
            raise errors.NetworkError(
                "the Debian mirror no longer has "
                + ", ".join(f"{entry.name} {entry.version}" for entry in gone)
                + "; a newer version superseded it",
                cause="mirrors keep only the newest version of a package",
                next_step="set VETTED_DEBIAN_MIRROR to a snapshot mirror of the day of the lock, "
                "or move on with `vetted lock --upgrade debian`",
            )
        target.mkdir(parents=True)
        result = self._run("apt-get", "download", "-q", *(f"{e.name}={e.version}" for e in missing), cwd=target)
        if result.returncode != 0:
            raise errors.from_tool("downloading Debian packages", result.output)


def sources(suite: str) -> str:
    """apt's source stanzas for a Debian suite, from VETTED_DEBIAN_MIRROR or the machine's configuration."""
    if mirrors := os.environ.get("VETTED_DEBIAN_MIRROR", "").replace(",", " ").split():
        return "\n".join(_stanza(url, suite, snapshot=True) for url in mirrors)
    urls: dict[str, None] = {}
    for path in sorted(Path("/etc/apt/sources.list.d").glob("*.sources")):
        for paragraph in re.split(r"\n\s*\n", path.read_text()):
            if "debian-archive-keyring" in paragraph and (found := re.search(r"^URIs:\s*(.+)$", paragraph, re.M)):
                urls.update(dict.fromkeys(found[1].split()))
    for path in (Path("/etc/apt/sources.list"), *sorted(Path("/etc/apt/sources.list.d").glob("*.list"))):
        if path.is_file():
            for found in re.finditer(r"^deb\s+(?:\[[^]]*\]\s+)?(\S+/debian(?:-security)?)/?\s", path.read_text(), re.M):
                urls[found[1]] = None
    if not urls:
        raise errors.MissingToolError(
            "apt on this machine names no Debian mirror",
            cause="this is not Debian, or it uses third-party sources only",
            next_step="set VETTED_DEBIAN_MIRROR to a mirror's URL",
        )
    return "\n".join(_stanza(url.rstrip("/"), suite) for url in urls)


def _stanza(url: str, suite: str, *, snapshot: bool = False) -> str:
    # A snapshot's URL goes on after the archive's name, with its day.
    suites = f"{suite}-security" if re.search(r"-security(/|$)", url) else f"{suite} {suite}-updates"
    if snapshot and "-security" not in suites:
        suites = suite  # a mirror of one's own, or of one day, need not carry the other suites
    old = "Check-Valid-Until: no\n" if snapshot else ""
    return f"Types: deb\nURIs: {url}\nSuites: {suites}\nComponents: main\nSigned-By: {KEYRING}\n{old}"


@contextmanager
def plain_path(folder: Path) -> Iterator[Path]:
    """A folder by a path that apt and mmdebstrap can read: in theirs, spaces and quotes mean something."""
    if re.fullmatch(r"[A-Za-z0-9/._+-]+", str(folder)):
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="vetted-") as beside:
        Path(beside).chmod(0o711)  # apt reads the repository as a user of its own where it may
        link = Path(beside) / "scratch"
        link.symlink_to(folder)
        yield link


def resolve(stack: Stack, scratch: Path) -> list[Entry]:
    with plain_path(scratch) as folder:
        return Apt(folder / "apt", stack.debian).resolve(wanted(stack))


def fetch(project: Project, lock: Lock, scratch: Path, names: Collection[str] | None = None) -> dict[Entry, Path]:
    """Locked packages (all, or those named) as verified files, from those that are kept or else from the mirror.

    A kept one is hashed again: its name says which hash it should have.
    """
    cache = project.state / "debs"
    cache.mkdir(parents=True, exist_ok=True)
    wanted_entries = [entry for entry in lock.debian if names is None or entry.name in names]
    files = {entry: cache / f"{entry.sha256}.deb" for entry in wanted_entries}
    missing = [entry for entry, path in files.items() if not _is_locked(path, entry)]
    if missing:
        downloads = scratch / "debs"
        with plain_path(scratch) as folder:
            Apt(folder / "apt", lock.stack.debian).download(missing, downloads)
        for entry in missing:
            # apt writes the epoch's colon as %3a
            path = next(downloads.glob(f"{entry.name}_{entry.version.replace(':', '%3a')}_*.deb"))
            if (got := sha256_file(path)) != f"sha256:{entry.sha256}":
                raise errors.NetworkError(
                    f"{entry.name}={entry.version}: the downloaded package is not the locked one\n"
                    f"expected sha256:{entry.sha256}\ngot      {got}",
                    cause="debian.txt was edited, or the mirror serves other bytes than when it was locked",
                    next_step="git diff lockfiles/, then `vetted lock --check`",
                )
            path.replace(files[entry])
    return files


def _is_locked(path: Path, entry: Entry) -> bool:
    return path.is_file() and sha256_file(path) == f"sha256:{entry.sha256}"
