"""apt with a root folder of its own, in which no package is installed, and the mirrors that it asks.

The packages of this machine play no part. The mirror is the one that this machine is configured for, or
VETTED_DEBIAN_MIRROR: one or more URLs.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote

from builder.base import errors, process
from builder.intent.stack import Stack
from builder.lock.lockfile import Entry

KEYRING_NAME = "debian-archive-keyring"
KEYRING = f"/usr/share/keyrings/{KEYRING_NAME}.gpg"
# A source of sources.list: a Debian archive's URL.
ONE_LINE = re.compile(r"^deb\s+(?:\[[^]]*\]\s+)?(\S+/debian(?:-security)?)/?\s", re.MULTILINE)


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
