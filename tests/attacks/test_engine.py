"""The engine that scripts/install-engine installs, and its security updates."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "scripts" / "install-engine"
MAIN = """\
Types: deb
# http://snapshot.test/debian/20250520T000000Z
URIs: http://mirror.test/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
"""
SECURITY = MAIN.replace("/debian\n", "/debian-security\n").replace("bookworm bookworm-updates", "bookworm-security")
LIST = "deb http://mirror.test/debian bookworm main\ndeb http://mirror.test/debian-security bookworm-security main\n"


@pytest.fixture
def apt(tmp_path: Path) -> Path:
    """A machine's configuration of apt."""
    for folder in ("sources.list.d", "preferences.d"):
        (tmp_path / folder).mkdir()
    return tmp_path


def run(apt: Path, command: str, path: str = "/usr/bin:/bin") -> subprocess.CompletedProcess[str]:
    """Run a function of the script, with this configuration in place of the machine's."""
    functions = SCRIPT.read_text().partition("\ncase ${1-} in")[0].replace("/etc/apt", str(apt))
    argv = ["sh", "-c", f"{functions}\n{command}", "install-engine"]
    return subprocess.run(argv, env={"PATH": path}, capture_output=True, text=True, check=False)


def stanzas(apt: Path) -> list[dict[str, str]]:
    text = (apt / "sources.list.d" / "vetted-trixie.sources").read_text()
    pairs = [[line.split(": ") for line in stanza.splitlines()] for stanza in text.strip().split("\n\n")]
    return [dict(stanza) for stanza in pairs]


def test_a_hole_in_the_engine_that_debian_has_mended_is_used(apt: Path) -> None:
    """Debian 13 was added without its security suite: its fixes were never installed."""
    (apt / "sources.list.d" / "debian.sources").write_text(f"{MAIN}\n{SECURITY}")
    done = run(apt, "add_trixie")
    assert done.returncode == 0, done.stderr
    assert [(stanza["URIs"], stanza["Suites"]) for stanza in stanzas(apt)] == [
        ("http://mirror.test/debian", "trixie"),
        ("http://mirror.test/debian-security", "trixie-security"),
    ]
    pins = (apt / "preferences.d" / "vetted-trixie").read_text().strip().split("\n\n")
    assert [pin.splitlines()[1:] for pin in pins] == [
        ["Pin: release n=trixie", "Pin-Priority: 100"],
        ["Pin: release n=trixie-security", "Pin-Priority: 100"],
    ]


def test_sources_of_one_line_have_the_security_suite_too(apt: Path) -> None:
    """The same in apt's older format."""
    (apt / "sources.list").write_text(LIST)
    assert run(apt, "add_trixie").returncode == 0
    assert (apt / "sources.list.d" / "vetted-trixie.list").read_text() == LIST.replace("bookworm", "trixie")


@pytest.mark.parametrize("without", ["sources", "list"])
def test_a_machine_without_security_updates_is_told(apt: Path, without: str) -> None:
    """An engine without security updates is not installed silently."""
    (apt / "sources.list.d" / "debian.sources").write_text(MAIN if without == "sources" else "")
    (apt / "sources.list").write_text(LIST.splitlines()[0] + "\n" if without == "list" else "")
    done = run(apt, "add_trixie")
    assert done.returncode == 5
    assert "next: add Debian's own archive and its security archive" in done.stderr
    assert not list((apt / "sources.list.d").glob("vetted-*"))


@pytest.mark.parametrize(
    ("listed", "suite"),
    [
        (["26.2 | trixie-security/main", "26.1 | trixie/main", "20.10 | bookworm/main"], "trixie-security"),
        (["26.2 | trixie/main", "26.1 | trixie-security/main"], "trixie"),
        (["20.10 | bookworm/main"], "trixie"),
    ],
)
def test_the_newest_of_both_suites_is_installed(apt: Path, listed: list[str], suite: str) -> None:
    """The security suite keeps versions that a point release has superseded."""
    lines = [
        " docker.io | {} | http://mirror.test/debian {} amd64 Packages".format(*line.split(" | ")) for line in listed
    ]
    fake = apt / "apt-cache"
    fake.write_text("#!/bin/sh\ncat <<'END'\n" + "\n".join(lines) + "\nEND\n")
    fake.chmod(0o755)
    assert run(apt, "newest docker.io", f"{apt}:/usr/bin:/bin").stdout == f"docker.io/{suite}\n"
