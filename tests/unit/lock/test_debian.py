"""The Debian packages: where they come from, and what happens when the mirror no longer has the locked ones."""

from __future__ import annotations

import hashlib
import subprocess
from pathlib import Path

import pytest

from builder.base import errors
from builder.base.project import Project
from builder.intent import stack
from builder.intent.platform import ARM64
from builder.intent.stack import Stack
from builder.lock import apt, audit, debian, lockfile
from builder.lock.audit import AuditFinding
from builder.lock.lockfile import Entry
from tests.conftest import TINY, Small
from tests.unit.lock.mirror import DEB, FILE, MIRROR, NAME, VERSION, fetch, setting


def fields(stanza: str) -> dict[str, str]:
    pairs = (line.partition(": ") for line in stanza.splitlines())
    return {key: value for key, _, value in pairs}


def test_the_mirrors_of_the_environment_are_the_only_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VETTED_DEBIAN_MIRROR", f"{MIRROR}, {MIRROR}-security/")
    main, security = apt.sources("bookworm").split("\n\n")
    assert fields(main) == {
        "Types": "deb", "URIs": MIRROR, "Suites": "bookworm", "Components": "main", "Signed-By": apt.KEYRING,
        "Check-Valid-Until": "no",
    }  # fmt: skip
    assert fields(security) == {**fields(main), "URIs": f"{MIRROR}-security/", "Suites": "bookworm-security"}


@pytest.mark.parametrize("between", [" ", ",", ", ", "\n"])
def test_mirrors_are_separated_by_commas_or_white_space(monkeypatch: pytest.MonkeyPatch, between: str) -> None:
    monkeypatch.setenv("VETTED_DEBIAN_MIRROR", f"{MIRROR}{between}{MIRROR}2")
    assert [fields(stanza)["URIs"] for stanza in apt.sources("trixie").split("\n\n")] == [MIRROR, f"{MIRROR}2"]


def test_a_live_mirror_has_its_updates_and_its_dates_are_checked() -> None:
    assert fields(apt._stanza(MIRROR, "trixie"))["Suites"] == "trixie trixie-updates"
    assert fields(apt._stanza(f"{MIRROR}-security", "trixie"))["Suites"] == "trixie-security"
    assert "Check-Valid-Until" not in apt._stanza(MIRROR, "trixie")


def test_the_security_archive_of_a_day_is_asked_for_the_security_suite(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VETTED_DEBIAN_MIRROR", f"{MIRROR}-security/20260801T000000Z")
    assert fields(apt.sources("bookworm"))["Suites"] == "bookworm-security"


SOURCES = """\
# Of this machine.
Types: deb deb-src
URIs: http://one.test/debian/
  http://two.test/debian
# The suites.
Suites: trixie
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
Enabled: no
URIs: http://disabled.test/debian
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb-src
URIs: http://source.test/debian
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg

Types: deb
URIs: http://vendor.test/apt
Signed-By: /usr/share/keyrings/vendor.gpg
"""


def test_the_mirrors_of_the_machine_are_those_that_apt_uses(tmp_path: Path) -> None:
    (tmp_path / "sources.list.d").mkdir()
    (tmp_path / "sources.list.d" / "debian.sources").write_text(SOURCES)
    (tmp_path / "sources.list.d" / "old.list").write_text(
        "deb [arch=amd64] http://three.test/debian-security trixie x\n"
    )
    stanzas = apt.sources("bookworm", tmp_path).split("\n\n")
    assert [fields(stanza)["URIs"] for stanza in stanzas] == [
        "http://one.test/debian", "http://two.test/debian", "http://three.test/debian-security",
    ]  # fmt: skip


def test_a_machine_without_a_debian_mirror_is_told_to_name_one(tmp_path: Path) -> None:
    with pytest.raises(errors.MissingToolError, match="no Debian mirror") as caught:
        apt.sources("bookworm", tmp_path)
    assert "VETTED_DEBIAN_MIRROR" in caught.value.next_step


def test_a_cuda_stack_has_a_compiler_and_the_headers_of_its_python(small: Small) -> None:
    cpu = debian.packages(stack.load(small.project, TINY))
    small.edit("stack.toml", 'device = "cpu"', 'device = "cuda"')
    small.edit("stack.toml", 'python = "', 'python = "3.11" # "')
    cuda = debian.packages(stack.load(small.project, TINY))
    assert set(cuda) - set(cpu) >= {"gcc", "g++", "libc6-dev", "libpython3.11-dev"}
    assert set(cuda) - set(cpu) >= {"libibverbs1", "librdmacm1", "ibverbs-providers"}
    assert "gcc" not in cpu and "python3.11" in cuda


def test_a_package_is_asked_for_by_its_name_in_the_suite(small: Small) -> None:
    """What is locked has that name, so the audit would miss the other one for ever."""
    small.edit("stack.toml", 'device = "cpu"', 'device = "cuda"')
    assert "librdmacm1" in debian.packages(stack.load(small.project, TINY))
    small.edit("stack.toml", '"bookworm"', '"trixie"')
    packages = debian.packages(stack.load(small.project, TINY))
    assert "librdmacm1t64" in packages and "librdmacm1" not in packages


def test_a_version_with_an_epoch_is_fetched_and_kept_by_its_hash(mirror: Small) -> None:
    path = fetch(mirror)[NAME]
    assert path.read_bytes() == DEB
    assert path.name == f"{hashlib.sha256(DEB).hexdigest()}.deb"
    setting(mirror, "FAULT", "down")
    assert fetch(mirror)[NAME] == path


def test_only_the_packages_that_are_named_are_fetched(mirror: Small) -> None:
    setting(mirror, "FAULT", "down")
    assert debian.fetch(mirror.project, mirror.lock, mirror.scratch(), ["libnuma1"]) == {}


def test_a_superseded_package_is_named_with_the_two_ways_on(mirror: Small) -> None:
    setting(mirror, "OFFERED", "1:2.38.1-5+deb12u4")
    with pytest.raises(errors.NetworkError, match="no longer has") as caught:
        fetch(mirror)
    assert f"{NAME} {VERSION}" in caught.value.what
    assert "VETTED_DEBIAN_MIRROR" in caught.value.next_step
    assert "vetted lock --upgrade debian" in caught.value.next_step


def test_a_package_with_other_bytes_names_expected_and_got(mirror: Small) -> None:
    setting(mirror, "SERVED", "other bytes")
    with pytest.raises(errors.NetworkError) as caught:
        fetch(mirror)
    assert caught.value.what.splitlines() == [
        f"{NAME}={VERSION}: the downloaded package is not the locked one",
        f"expected sha256:{hashlib.sha256(DEB).hexdigest()}",
        f"got      sha256:{hashlib.sha256(b'other bytes').hexdigest()}",
    ]
    assert list((mirror.project.state / "debs").iterdir()) == []


def test_a_changed_hash_of_a_package_that_the_mirror_has_is_found(mirror: Small, tmp_path: Path) -> None:
    """`lock --check` compared the hashes of wheels with the index, and those of Debian packages with nothing."""

    def findings(scratch: str) -> list[AuditFinding]:
        (tmp_path / scratch).mkdir()
        return audit.mirrored(mirror.lock, tmp_path / scratch)

    packages = mirror.root.parent / "programs" / "debs" / "Packages"
    packages.parent.mkdir()
    sha256 = hashlib.sha256(DEB).hexdigest()
    packages.write_text(f"Package: {NAME}\nVersion: {VERSION}\nSHA256: {sha256}\n")
    assert findings("same") == []
    mirror.edit("debian.txt", sha256, "f" * 64)
    (finding,) = findings("other")
    assert finding.what == f"amd64: {NAME}={VERSION}: the mirror's file has another hash"
    assert (finding.expected, finding.got) == (f"sha256:{'f' * 64}", f"sha256:{sha256}")
    packages.write_text(f"Package: {NAME}\nVersion: 9\nSHA256: {sha256}\n")
    assert findings("later") == []  # its bytes are checked when they are downloaded


def test_a_base_layer_without_what_it_is_made_for_is_found(mirror: Small, real: Project) -> None:
    (finding,) = audit.base_layer(mirror.lock)
    lacks = "ca-certificates, libnuma1, libstdc++6, python3.11, usr-is-merged"
    assert finding.what == f"amd64: the base layer lacks {lacks}"
    assert all(audit.base_layer(lockfile.load(real, name)) == [] for name in stack.names(real))


def test_a_mirror_that_does_not_answer_is_a_matter_of_the_network(mirror: Small) -> None:
    setting(mirror, "FAULT", "down")
    with pytest.raises(errors.NetworkError, match="the Debian mirror did not answer") as caught:
        fetch(mirror)
    assert caught.value.exit_code == 5
    assert "VETTED_DEBIAN_MIRROR" in caught.value.next_step


def test_what_apt_would_install_is_locked_in_the_order_of_the_names(mirror: Small) -> None:
    entries = debian.resolve(mirror.lock.stack, mirror.scratch())
    assert [(entry.name, entry.version) for entry in entries] == [("aaa", "5.2.15-2+b13"), (NAME, VERSION)]
    assert {entry.sha256 for entry in entries} == {hashlib.sha256(DEB).hexdigest()}


def test_apt_is_asked_for_the_platform_of_the_stack(mirror: Small) -> None:
    stack_ = mirror.lock.stack
    for own in (stack_, stack_.on(ARM64)):
        debian.resolve(own, mirror.scratch())
        configuration = (mirror.project.scratch(TINY) / f"apt-{own.platform.name}" / "apt.conf").read_text()
        assert f'APT::Architecture "{own.platform.name}";\n' in configuration
        assert f'APT::Architectures {{ "{own.platform.name}"; }};\n' in configuration


def test_packages_that_cannot_be_installed_together_are_an_error(mirror: Small) -> None:
    setting(mirror, "FAULT", "conflict")
    with pytest.raises(errors.VettedError, match="held broken packages"):
        debian.resolve(mirror.lock.stack, mirror.scratch())


def test_stacks_that_ask_for_the_same_have_the_same_packages(real: Project) -> None:
    """Their versions may differ: they are those of the day of the lock."""
    names: dict[tuple[str, ...], set[frozenset[str]]] = {}
    for name in stack.shipped(real):
        for lock in lockfile.load_all(real, name):
            needs = (lock.stack.debian, lock.platform.name, *debian.packages(lock.stack))
            names.setdefault(needs, set()).add(frozenset(entry.name for entry in lock.debian))
            assert set(debian.packages(lock.stack)) <= {entry.name for entry in lock.debian}
    assert {len(sets) for sets in names.values()} == {1}


class Shelf:
    """apt, where the base is installed, and what it would add."""

    offers: tuple[Entry, ...] = ()
    status = ""

    def __init__(self, root: Path, _: Stack) -> None:
        self.root = root
        root.mkdir()
        (root / "status").touch()

    def resolve(self, names: list[str]) -> list[Entry]:
        Shelf.status = (self.root / "status").read_text()
        assert names == ["git"]
        return list(self.offers)


@pytest.fixture
def shelf(small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Small:
    """A base of one package, which is there as a file."""
    (tmp_path / "deb" / "DEBIAN").mkdir(parents=True)
    control = f"Package: {NAME}\nVersion: {VERSION}\nArchitecture: all\nMaintainer: me\nDescription: one\n"
    (tmp_path / "deb" / "DEBIAN" / "control").write_text(control)
    package = tmp_path / FILE
    subprocess.run(["dpkg-deb", "--build", str(tmp_path / "deb"), str(package)], check=True, capture_output=True)
    monkeypatch.setattr(debian, "fetch", lambda _, lock, *__: {lock.debian[0]: package})
    monkeypatch.setattr(debian, "Apt", Shelf)
    return small


def test_packages_are_added_to_a_base_that_apt_takes_for_installed(
    shelf: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    git = Entry("git", "1:2.39", "e" * 64)
    monkeypatch.setattr(Shelf, "offers", (git,))
    assert debian.beside(shelf.project, shelf.lock, ["git", NAME], shelf.scratch()) == [git]
    stanza = fields(Shelf.status)
    assert (stanza["Package"], stanza["Version"], stanza["Status"]) == (NAME, VERSION, "install ok installed")
    assert debian.beside(shelf.project, shelf.lock, [NAME], shelf.scratch()) == []


def test_a_package_that_needs_a_newer_base_is_refused(shelf: Small, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Shelf, "offers", (Entry("git", "1:2.39", "e" * 64), Entry(NAME, "9", "f" * 64)))
    with pytest.raises(errors.BadInputError, match=f"in the way: {NAME} ") as caught:
        debian.beside(shelf.project, shelf.lock, ["git"], shelf.scratch())
    assert "snapshot" in caught.value.next_step
