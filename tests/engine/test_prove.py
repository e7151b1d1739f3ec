"""The longest test has a file of its own, so that it can run beside the others."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from builder.base.project import sha256_file
from builder.image import rootfs
from tests.engine.conftest import STACK, Workshop

pytestmark = pytest.mark.usefixtures("docker")


def test_two_builds_without_cache_are_identical(workshop: Workshop) -> None:
    proof = workshop.json("build", STACK, "--prove")
    assert proof["identical"] is True
    assert proof["first"] == proof["second"] == workshop.json("build", STACK)["manifest"]


def test_the_root_filesystem_is_the_same_below_a_closed_folder(workshop: Workshop) -> None:
    """apt works as a user of its own where that user may read, and that must not be seen in what it leaves."""
    made = set()
    with workshop.project.holding(STACK), tempfile.TemporaryDirectory(dir="/var/tmp") as open_to_all:
        for mode in (0o755, 0o700):
            Path(open_to_all).chmod(mode)
            folder = Path(open_to_all) / "scratch"
            folder.mkdir()
            made.add(sha256_file(rootfs.make(workshop.project, workshop.lock, folder, fresh=True)))
            Path(folder).rename(Path(open_to_all) / f"{mode:o}")
    assert len(made) == 1


def test_the_root_filesystem_is_the_same_below_an_odd_path_and_a_tight_umask(workshop: Workshop) -> None:
    """apt and mmdebstrap read spaces and quotes in a path, and what is made has the modes that the umask leaves."""
    made = set()
    with workshop.project.holding(STACK) as scratch:
        for name, umask in (("plain", 0o022), ('a b,"c:d', 0o077)):
            folder = scratch / name
            folder.mkdir()
            before = os.umask(umask)
            try:
                made.add(sha256_file(rootfs.make(workshop.project, workshop.lock, folder, fresh=True)))
            finally:
                os.umask(before)
    assert len(made) == 1
