"""What the base image of a stack holds, and what it does not."""

from __future__ import annotations

import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from builder.image import daemon
from builder.image.rootfs import UNWANTED, make
from builder.lock import lockfile
from builder.lock.debian import RDMA
from builder.lock.lockfile import Lock
from tests.engine.conftest import STACK, Workshop

# Named here once more: a name that is dropped from the builder's list is found here.
NAMES = {
    "su", "newgrp", "sg", "login", "sulogin", "runuser", "agetty", "getty", "passwd", "chsh", "chfn", "gpasswd",
    "mount", "umount", "chage", "expiry", "wall", "unix_chkpwd", "unix_update", "pam_timestamp_check", "sudo",
}  # fmt: skip


CUDA = "trl1.16-cu130"
# Run in a base: each library on a line of its own, with what the loader says of it.
OPEN = """
import ctypes, glob, sys
for name in [*sys.argv[1:], *glob.glob('/usr/lib/*/libibverbs/libmlx5-rdmav*.so')]:
    try:
        ctypes.CDLL(name)
        print(name.rpartition('/')[2], 'opens')
    except OSError as error:
        print(name, 'cannot open' if 'cannot open shared object file' in str(error) else error)
"""


@pytest.fixture(scope="module", params=[STACK, CUDA])
def lock(workshop: Workshop, request: pytest.FixtureRequest) -> Lock:
    return lockfile.load(workshop.project, request.param)


@pytest.fixture(scope="module")
def rootfs(workshop: Workshop, lock: Lock) -> Path:
    with workshop.project.holding(lock.name) as scratch:
        return make(workshop.project, lock, scratch)


@pytest.fixture
def base(rootfs: Path, docker: daemon.Docker) -> Iterator[str]:  # noqa: ARG001
    """The root filesystem as an image of its own."""
    name = "vetted/base-under-test:1"
    subprocess.run(["docker", "import", str(rootfs), name], check=True, capture_output=True)
    yield name
    subprocess.run(["docker", "image", "rm", "--force", name], check=True, capture_output=True)


def test_no_program_of_the_base_has_the_rights_of_another_user(rootfs: Path) -> None:
    with tarfile.open(rootfs) as archive:
        members = archive.getmembers()
    assert any(member.name == "./usr/bin/setpriv" for member in members)  # it is the base, and not an empty archive
    assert [member.name for member in members if member.mode & 0o6000 and not member.issym()] == []
    assert [member.name for member in members if "security.capability" in str(member.pax_headers)] == []


def test_the_base_has_no_program_to_log_in_or_to_change_the_user(rootfs: Path, lock: Lock) -> None:
    with tarfile.open(rootfs) as archive:
        paths = {member.name.removeprefix("."): member for member in archive}
    programs = {path for path in paths if path.rpartition("/")[0] in ("/bin", "/sbin", "/usr/bin", "/usr/sbin")}
    names = {path.rpartition("/")[2] for path in programs}
    assert {"bash", f"python{lock.stack.python}", "perl"} <= names
    assert names & (NAMES | set(UNWANTED)) == set()
    # A link to what went would be a program that is missing.
    links = {path: paths[path].linkname for path in programs if paths[path].issym()}
    dangling = [
        path for path, target in links.items()
        if "/" not in target and f"{path.rpartition('/')[0]}/{target}" not in paths
    ]  # fmt: skip
    assert dangling == []


def test_dpkg_still_knows_the_packages_of_the_base(rootfs: Path) -> None:
    with tarfile.open(rootfs) as archive:
        status = archive.extractfile("./var/lib/dpkg/status")
        assert status is not None
        packages = [line for line in status.read().decode().splitlines() if line.startswith("Package: ")]
    assert {"Package: bsdutils", "Package: util-linux"} <= set(packages)


def test_python_and_the_shell_run_in_the_base_as_the_user(base: str, lock: Lock) -> None:
    script = (
        f"python{lock.stack.python} -c 'import ssl, sqlite3, ctypes, zlib; print(ssl.OPENSSL_VERSION)'"
        " && ls -d ~ && ! su --version"
    )
    done = subprocess.run(
        ["docker", "run", "--rm", "--network=none", "--user=vetted", "--env=HOME=/home/vetted", base, "bash", "-c",
         script],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("OpenSSL 3.") and done.stdout.splitlines()[1:] == ["/home/vetted"]


def test_the_base_for_cuda_opens_the_libraries_for_rdma_and_the_driver_of_mlx5(base: str, lock: Lock) -> None:
    names = sorted(RDMA.values())
    done = subprocess.run(
        ["docker", "run", "--rm", "--network=none", "--user=vetted", base, f"python{lock.stack.python}",
         "-c", OPEN, *names],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    if lock.stack.device == "cuda":
        assert done.stdout.splitlines() == [f"{name} opens" for name in names] + ["libmlx5-rdmav34.so opens"]
    else:
        assert done.stdout.splitlines() == [f"{name} cannot open" for name in names]
