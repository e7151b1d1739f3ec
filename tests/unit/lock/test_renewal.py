"""What today's Debian packages fix: by their versions, and by the changelogs in the packages themselves."""

from __future__ import annotations

import gzip
import hashlib
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from builder.base import errors
from builder.lock import renewal
from builder.lock.renewal import Fix, Renewal
from tests.conftest import Small
from tests.unit.lock.mirror import MIRROR, NAME, setting

BLOCK = """\
{source} ({version}) bookworm-security; urgency=medium

  * Fix {what}.

 -- Somebody <somebody@example.org>  Mon, 01 Jun 2026 12:00:00 +0000

"""
# The versions of a source, the newest first, and what each of them fixes. The stack is locked to the third.
CHANGES = {
    "2.38.1-5+deb12u5": "CVE-2026-10005 and CVE-2026-2005",
    "2.38.1-5+deb12u4": "a leak (CVE-2026-2004, CVE-2026-2005)",
    "2.38.1-5+deb12u3": "CVE-2026-2003",
    "2.38.1-5+deb12u2": "CVE-2026-2002",
}


class Archive:
    """A mirror that has packages of one source."""

    def __init__(self, small: Small) -> None:
        self.small = small
        self.folder = small.root.parent / "programs" / "debs"
        self.folder.mkdir()
        self.packages = self.folder / "Packages"
        self.packages.touch()
        setting(small, "FAULT", "packages")

    def offer(self, name: str, version: str, source: str, changes: Mapping[str, str] | None, padding: int = 0) -> bytes:
        """Put a package into the mirror; returns its bytes. `changes`: None for one without a changelog."""
        tree = self.folder / name
        docs = tree / "usr" / "share" / "doc" / name
        docs.mkdir(parents=True)
        (tree / "DEBIAN").mkdir()
        fields = f"Package: {name}\nSource: {source}\nVersion: {version}\nArchitecture: amd64\n"
        (tree / "DEBIAN" / "control").write_text(f"{fields}Maintainer: Somebody <s@example.org>\nDescription: one\n")
        (docs / "padding").write_bytes(bytes(padding))
        if changes is not None:
            source_name = source.partition(" ")[0]
            blocks = (BLOCK.format(source=source_name, version=v, what=what) for v, what in changes.items())
            (docs / "changelog.Debian.gz").write_bytes(gzip.compress("".join(blocks).encode()))
        file = self.folder / f"{name}.deb"
        subprocess.run(["dpkg-deb", "--build", "-Znone", str(tree), str(file)], check=True, capture_output=True)
        data = file.read_bytes()
        with self.packages.open("a") as packages:
            packages.write(f"{fields}SHA256: {hashlib.sha256(data).hexdigest()}\nSize: {len(data)}\n\n")
        return data

    def compare(self) -> Renewal:
        return renewal.of(self.small.project, self.small.lock, self.small.scratch())


@pytest.fixture
def archive(mirror: Small) -> Archive:
    return Archive(mirror)


def test_the_cves_of_every_version_since_the_lock_are_named(archive: Archive) -> None:
    archive.offer(NAME, "1:2.38.1-5+deb12u5", "util-linux (2.38.1-5+deb12u5)", CHANGES)
    (fix,) = archive.compare().fixes
    assert fix == Fix(
        "util-linux", "2.38.1-5+deb12u3", "2.38.1-5+deb12u5", (NAME,),
        ("CVE-2026-2004", "CVE-2026-2005", "CVE-2026-10005"),
    )  # fmt: skip
    assert str(fix) == (
        "a rebuild with today's Debian packages fixes CVE-2026-2004, CVE-2026-2005, CVE-2026-10005 "
        "(util-linux 2.38.1-5+deb12u3 → 2.38.1-5+deb12u5)"
    )


@pytest.mark.parametrize("version", ["1:2.38.1-5+deb12u3", "1:2.38.1-5+deb12u2"])
def test_what_is_not_newer_fixes_nothing(archive: Archive, version: str) -> None:
    archive.offer(NAME, version, f"util-linux ({version.partition(':')[2]})", CHANGES)
    compared = archive.compare()
    assert compared.fixes == ()
    assert compared.sources == {NAME: ("util-linux", "2.38.1-5+deb12u3")}


@pytest.mark.parametrize(
    ("version", "source", "changes", "words"),
    [
        ("1:2.38.1-5+deb12u5", "util-linux (2.38.1-5+deb12u5)", {**CHANGES, "2.38.1-5+deb12u5": "a typo"}, "2004"),
        ("1:2.39-1", "util-linux (2.39-1)", {"2.39-1": "nothing", "2.38.1-5+deb12u3": "x"}, "names no CVE"),
        ("1:2.39-1+b2", "util-linux (2.39-1)", {"2.39-1": "CVE-2026-6000", "2.38.1-1": "CVE-2026-1"}, "CVE-2026-6000"),
        ("1:2.39-1", "other (7.2)", {"7.2": "CVE-2026-2006"}, "counted otherwise than its changelog"),
        ("1:2.39-1", "util-linux (2.39-1)", None, "none of its packages has a changelog"),
    ],
)  # fmt: skip
def test_what_a_changelog_does_not_say_is_not_claimed(
    archive: Archive, version: str, source: str, changes: Mapping[str, str] | None, words: str
) -> None:
    archive.offer(NAME, version, source, changes)
    (fix,) = archive.compare().fixes
    assert words in str(fix)
    assert bool(fix.cves) is ("fixes" in str(fix))


def test_packages_of_one_source_are_one_fix_and_the_smallest_changelog_is_read(archive: Archive) -> None:
    small = archive.small
    with small.file("debian.txt").open("a") as file:
        file.write(f"mount=2.38.1-5+deb12u3 sha256:{'e' * 64}\nutil-linux=2.38.1-5+deb12u3 sha256:{'f' * 64}\n")
    new = "2.38.1-5+deb12u4"
    archive.offer(NAME, f"1:{new}", f"util-linux ({new})", None)
    archive.offer("util-linux", new, "util-linux", {}, padding=200_000)
    read = archive.offer("mount", new, f"util-linux ({new})", dict(list(CHANGES.items())[1:]), padding=100_000)
    (fix,) = archive.compare().fixes
    assert fix.packages == (NAME, "mount", "util-linux")
    assert fix.cves == ("CVE-2026-2004", "CVE-2026-2005")
    kept = {path.stem for path in (small.project.state / "debs").iterdir()}
    assert hashlib.sha256(read).hexdigest() in kept and len(kept) == 2  # the largest was not fetched


def test_a_package_is_downloaded_once(archive: Archive) -> None:
    archive.offer(NAME, "1:2.38.1-5+deb12u5", "util-linux (2.38.1-5+deb12u5)", CHANGES)
    first = archive.compare()
    (archive.folder / f"{NAME}.deb").unlink()
    assert archive.compare() == first


def test_other_bytes_than_the_mirror_describes_are_refused(archive: Archive) -> None:
    archive.offer(NAME, "1:2.38.1-5+deb12u5", "util-linux (2.38.1-5+deb12u5)", CHANGES)
    (archive.folder / f"{NAME}.deb").write_bytes(b"other bytes")
    with pytest.raises(errors.NetworkError, match="is not the locked one"):
        archive.compare()


def test_a_mirror_that_is_down_is_an_error_of_the_network(archive: Archive) -> None:
    setting(archive.small, "FAULT", "down")
    with pytest.raises(errors.NetworkError, match="did not answer"):
        archive.compare()


def test_what_the_mirror_does_not_have_is_said(archive: Archive, monkeypatch: pytest.MonkeyPatch) -> None:
    archive.offer("other", "1", "other", None)
    assert archive.compare().note == f"no mirror of bookworm-security was asked; the mirror has no {NAME}"
    monkeypatch.setenv("VETTED_DEBIAN_MIRROR", f"{MIRROR} {MIRROR}-security")
    assert archive.compare().note == f"the mirror has no {NAME}"
    assert archive.compare().sources == {}


def test_a_mirror_that_describes_nothing_is_an_error(archive: Archive, tmp_path: Path) -> None:
    assert not (tmp_path / "programs" / "debs" / "Packages").read_text()
    with pytest.raises(errors.VettedError, match="asking for Debian packages"):
        archive.compare()
