"""Reproducible builds: the root filesystem in two kinds of folder, and a small stack for tests that build it twice."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Set
from pathlib import Path

import pytest

from builder.base.project import sha256_file
from builder.image import rootfs
from builder.intent import stack
from builder.lock import lockfile
from tests.engine.conftest import STACK, Workshop, copy_of_project, link_state

pytestmark = pytest.mark.usefixtures("docker")
SMALL = "small"
# Every kind of layer, without the gigabytes: wheels, what is built from source, and what is patched.
INTENT = """\
title = "small"
device = "cpu"
python = "3.11"
debian = "bookworm"
requires = ["bitsandbytes", "deepspeed", "trl"]

[[patch]]
package = "bitsandbytes"
file = "{patch}"
reason = "a layer of patches"
"""
PACKAGES = {"bitsandbytes", "deepspeed", "packaging", "psutil", "pyyaml", "trl"}


@pytest.fixture
def small(depot: Workshop, tmp_path: Path) -> Workshop:
    """A project with a small stack beside the others: some of the CPU stack's lock, and its Debian packages."""
    patches = {patch.package: patch.file for patch in depot.lock.stack.patch}
    return beside(depot, tmp_path / "project", INTENT.format(patch=patches["bitsandbytes"]), PACKAGES)


def beside(depot: Workshop, root: Path, intent: str, packages: Set[str]) -> Workshop:
    """A project with a stack of some distributions of the CPU stack's lock, and its Debian packages."""
    workshop = copy_of_project(root)
    link_state(depot, workshop)
    source, folder = workshop.project.stack_dir(STACK), workshop.project.stack_dir(SMALL)
    folder.mkdir()
    for file in ("build.txt", "debian.txt"):
        shutil.copy(source / file, folder)
    entries = (source / "requirements.txt").read_text().splitlines(keepends=True)
    (folder / "requirements.txt").write_text("".join(line for line in entries if line.partition("==")[0] in packages))
    (folder / "stack.toml").write_text(intent)
    digest = lockfile.intent(stack.load(workshop.project, SMALL))
    locked = re.sub(r'intent = "[^"]*"', f'intent = "{digest}"', (source / "lock.toml").read_text())
    (folder / "lock.toml").write_text(locked)
    rendered = workshop.vetted("render", SMALL)
    assert rendered.returncode == 0, rendered.stderr
    return workshop


def in_memory() -> str:
    """/dev/shm where programs may run in it and there is room, else the disk."""
    if not os.access("/dev/shm", os.W_OK):
        return "/var/tmp"
    disk = os.statvfs("/dev/shm")
    usable = not disk.f_flag & (os.ST_NOEXEC | os.ST_RDONLY) and disk.f_bavail * disk.f_frsize > 2 << 30
    return "/dev/shm" if usable else "/var/tmp"


def test_the_root_filesystem_is_the_same_below_a_closed_odd_folder_in_memory_and_a_tight_umask(
    workshop: Workshop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """apt works as a user of its own where that user may read; apt and mmdebstrap read spaces and quotes in a path.

    Below /dev, the root holds a mount of the folder that it lies in.
    """
    home, lock = workshop.project, workshop.lock
    with home.holding(STACK) as scratch:
        plain = sha256_file(rootfs.make(home, lock, scratch))  # that of all workers, if they have one
    with tempfile.TemporaryDirectory(dir=in_memory()) as top:
        Path(top).chmod(0o755)
        state = Path(top) / 'a b,"c:d'
        shutil.copytree(home.state / "debs", state / "debs")
        state.chmod(0o700)
        monkeypatch.setenv("VETTED_STATE", str(state))
        before = os.umask(0o077)
        try:
            with home.holding(STACK) as scratch:
                odd = sha256_file(rootfs.make(home, lock, scratch, fresh=True))
        finally:
            os.umask(before)
    assert odd == plain
