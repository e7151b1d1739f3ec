"""The base for another platform: that platform's files, and everything else as the amd64 base has it."""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from builder.base import errors, project
from builder.image import foreign
from builder.intent.platform import AMD64, ARM64, Platform
from builder.lock import lockfile
from tests.conftest import TINY, Small

EPOCH = 1_700_000_000
# Package -> path -> content, for a platform.
COMPILED = {
    "bin/tool": "program of {machine}",
    "bin/su": "program of {machine}",
    "usr/bin/other": "program of {machine}",
    "lib/{machine}-linux-gnu/libtiny.so.9": "library of {machine}",
    "usr/lib/python3/same.py": "same = 1",
    "usr/lib/python3/unlike.py": "machine = '{machine}'",
    "usr/share/doc/tiny/README.{machine}": "{machine}",
    "usr/share/doc/tiny/copyright": "{machine}",
    "var/run/": "",
}
SCRIPTS = {"usr/bin/script": "#!/bin/sh\n", "usr/share/x86_64.txt": "a table"}
GENERATED = {
    "etc/passwd": "vetted:x:1000",
    "etc/ld.so.cache": "x86_64",
    "usr/lib/python3/__pycache__/same.cpython-311.pyc": "bytecode",
    "usr/lib/python3/__pycache__/unlike.cpython-311.pyc": "bytecode",
    "var/lib/dpkg/status": "Package: tiny\nArchitecture: amd64\n",
    "var/lib/dpkg/info/format": "1\n",
    "var/lib/dpkg/info/tiny:amd64.list": "/bin/tool\n",
}


@dataclass
class Bases:
    small: Small
    base: Path
    folder: Path

    def package(self, name: str, files: dict[str, str], platform: Platform, architecture: str) -> str:
        """Build a package, keep it among the downloads, and return its line in the lock."""
        tree = self.folder / f"{name}-{platform.name}"
        control = f"Package: {name}\nVersion: 1\nArchitecture: {architecture}\nMaintainer: x\nDescription: x\n"
        multi = "" if architecture == "all" else "Multi-Arch: same\n"
        for path, text in {**files, "DEBIAN/control": control + multi}.items():
            target = tree / path.format(machine=platform.machine)
            if path.endswith("/"):
                target.mkdir(parents=True)
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(text.format(machine=platform.machine))
            target.chmod(0o4755 if target.name == "other" else 0o755)
        package = self.folder / "package.deb"
        env = {"SOURCE_DATE_EPOCH": str(EPOCH), "PATH": "/usr/bin:/bin"}
        argv = ["dpkg-deb", "--root-owner-group", "--build", str(tree), str(package)]
        subprocess.run(argv, capture_output=True, check=True, env=env)
        sha256 = project.sha256_file(package).removeprefix("sha256:")
        (self.small.project.state / "debs").mkdir(parents=True, exist_ok=True)
        package.rename(self.small.project.state / "debs" / f"{sha256}.deb")
        return f"{name}=1 sha256:{sha256}\n"

    def make(self, *, fresh: bool = False) -> Path:
        native = self.small.lock
        lock = lockfile.load(self.small.project, TINY, ARM64)
        return foreign.make(self.small.project, native, lock, self.base, self.small.scratch(), fresh=fresh)


@pytest.fixture
def bases(small: Small, tmp_path: Path) -> Bases:
    """The base of two packages, as mmdebstrap makes it: /bin is a link, /var/run too, and no program has rights."""
    if not shutil.which("dpkg-deb"):
        pytest.skip("this machine has no dpkg")
    bases = Bases(small, small.project.state / "rootfs" / f"{'a' * 64}.tar", tmp_path)
    small.edit("stack.toml", 'debian = "bookworm"', 'debian = "bookworm"\nplatforms = ["amd64", "arm64"]')
    shutil.copy(small.file("requirements.txt"), small.file("requirements.arm64.txt"))
    for platform in (AMD64, ARM64):
        lines = [
            bases.package("tiny", COMPILED, platform, platform.name),
            bases.package("scripts", SCRIPTS, AMD64, "all"),
        ]
        small.file(platform.file("debian.txt")).write_text("".join(lines))
        shutil.rmtree(tmp_path / "scripts-amd64")
    bases.base.parent.mkdir(parents=True)
    with tarfile.open(bases.base, "w") as archive:
        folders = {str(folder) for path in (*COMPILED, *SCRIPTS, *GENERATED) for folder in Path(path).parents}
        for folder in sorted(folders - {"bin", "lib", "var/run"}):
            header = tarfile.TarInfo("." if folder == "." else f"./{folder}".format(machine="x86_64"))
            header.type, header.mode = tarfile.DIRTYPE, 0o755
            archive.addfile(header)
        for link, target in (("./bin", "usr/bin"), ("./lib", "usr/lib"), ("./var/run", "/run")):
            header = tarfile.TarInfo(link)
            header.type, header.linkname = tarfile.SYMTYPE, target
            archive.addfile(header)
        for path, text in {**COMPILED, **SCRIPTS, **GENERATED}.items():
            name = path.format(machine="x86_64")
            name = f"usr/{name}" if name.startswith(("bin/", "lib/")) else name
            if not name.endswith(("bin/su", "README.x86_64", "/")):
                content = text.format(machine="x86_64").encode()
                header = tarfile.TarInfo(f"./{name}")
                header.size, header.mode, header.uid = len(content), 0o755, 42
                archive.addfile(header, io.BytesIO(content))
    return bases


def content(path: Path) -> dict[str, str]:
    """The content of an archive: path -> text, or the target of a link; folders are empty."""
    tree = {}
    with tarfile.open(path) as archive:
        for member in archive:
            file = archive.extractfile(member) if member.isreg() else None
            tree[member.name] = file.read().decode() if file else member.linkname
    return tree


def test_files_of_packages_are_those_of_the_platform_and_the_others_stay(bases: Bases) -> None:
    tree = content(bases.make())
    assert tree["./usr/bin/tool"] == tree["./usr/bin/other"] == "program of aarch64"
    assert tree["./usr/lib/aarch64-linux-gnu/libtiny.so.9"] == "library of aarch64"
    assert tree["./etc/passwd"] == "vetted:x:1000"
    assert tree["./usr/bin/script"] == "#!/bin/sh\n"
    assert (tree["./bin"], tree["./lib"], tree["./var/run"]) == ("usr/bin", "usr/lib", "/run")
    assert tree["./usr/share/doc/tiny/copyright"] == "aarch64"


def test_nothing_of_amd64_stays_and_nothing_that_a_base_leaves_out_comes(bases: Bases) -> None:
    tree = content(bases.make())
    assert [path for path in tree if "linux-gnu" in path and "aarch64" not in path] == []
    assert [path for path, text in tree.items() if "x86_64" in text] == ["./var/lib/dpkg/info/scripts.list"]
    assert tree["./usr/share/x86_64.txt"] == "a table"  # of a package for every platform
    assert "./usr/bin/su" not in tree and "./bin/su" not in tree
    assert "./usr/share/doc/tiny/README.aarch64" not in tree
    assert "./etc/ld.so.cache" not in tree


def test_bytecode_stays_where_its_source_is_the_same(bases: Bases) -> None:
    tree = content(bases.make())
    assert "./usr/lib/python3/__pycache__/same.cpython-311.pyc" in tree
    assert tree["./usr/lib/python3/unlike.py"] == "machine = 'aarch64'"
    assert "./usr/lib/python3/__pycache__/unlike.cpython-311.pyc" not in tree


def test_dpkg_knows_the_platforms_packages(bases: Bases) -> None:
    tree = content(bases.make())
    status = tree["./var/lib/dpkg/status"]
    assert status.count("Status: install ok installed\n") == 2
    assert "Package: tiny\nStatus: install ok installed\nVersion: 1\nArchitecture: arm64\n" in status
    assert "Architecture: amd64" not in status
    assert tree["./var/lib/dpkg/arch"] == "arm64\n"
    listed = tree["./var/lib/dpkg/info/tiny:arm64.list"].splitlines()
    assert listed[0] == "/." and {"/bin/tool", "/usr/bin/other"} <= set(listed)
    assert "./var/lib/dpkg/info/tiny:amd64.list" not in tree
    assert {"./var/lib/dpkg/info/scripts.list", "./var/lib/dpkg/info/format"} <= tree.keys()


def test_no_file_has_another_users_rights_or_a_time_after_the_epoch(bases: Bases) -> None:
    with tarfile.open(bases.make()) as archive:
        members = archive.getmembers()
    assert [member.name for member in members if member.mode & 0o6000] == []
    assert max(member.mtime for member in members) <= EPOCH
    assert [member.name for member in members] == sorted(member.name for member in members)


def test_it_is_made_once_and_the_same_each_time(bases: Bases) -> None:
    first = bases.make()
    before = first.stat().st_ino, first.read_bytes()
    assert bases.make() == first and first.stat().st_ino == before[0]
    assert bases.make(fresh=True).read_bytes() == before[1]
    with first.open("ab") as file:
        file.write(b"spoiled")
    assert bases.make().read_bytes() == before[1]


def test_packages_of_another_version_are_refused(bases: Bases) -> None:
    bases.small.edit("debian.arm64.txt", "tiny=1 ", "tiny=2 ")
    with pytest.raises(errors.BadInputError, match="tiny is 2 on arm64, and 1 on amd64") as caught:
        bases.make()
    assert caught.value.next_step == f"vetted lock {TINY} --upgrade debian"
    bases.small.edit("debian.arm64.txt", "tiny=2 ", "tiny=1+b1 ")
    foreign._refuse_other_versions(bases.small.lock, lockfile.load(bases.small.project, TINY, ARM64))
