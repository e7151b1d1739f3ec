"""An image for arm64, built on amd64: the same twice, every program in it for arm64, and it runs in an emulator.

The stack is small, and its files are those of a real one: numpy and others that are compiled, deepspeed that is built
from source, and Debian's packages.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from builder.image import elf, oci
from builder.image.oci import Image
from builder.intent import stack
from builder.intent.platform import AMD64, ARM64
from builder.lock import lockfile
from tests.engine.conftest import Workshop, copy_of_project

pytestmark = pytest.mark.usefixtures("docker")
SMALL = "small"
REAL = "trl1.16-cu130"
INTENT = """\
title = "small"
device = "cuda"
python = "{python}"
debian = "{debian}"
platforms = ["amd64", "arm64"]
requires = ["deepspeed", "numpy", "psutil", "pyyaml", "regex", "trl"]
"""
PACKAGES = {"deepspeed", "numpy", "packaging", "psutil", "pyyaml", "regex", "trl"}
PROGRAM = """
import ctypes, platform, ssl, sqlite3, sys
import numpy, psutil, regex, yaml
from importlib.metadata import version
for name in ("libnuma.so.1", "libibverbs.so.1", "librdmacm.so.1", "libmlx5.so.1"):
    ctypes.CDLL(name)
assert version("deepspeed") and version("trl")
print(platform.machine(), "%d.%d" % sys.version_info[:2], numpy.ones(3).sum(), yaml.__with_libyaml__)
print(numpy.__cached__.endswith(".pyc"), sys.prefix)
"""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workshop]:
    workshop = copy_of_project(tmp_path_factory.mktemp("arm64") / "project")
    source, folder = workshop.project.stack_dir(REAL), workshop.project.stack_dir(SMALL)
    folder.mkdir()
    shutil.copy(source / "build.txt", folder)
    for platform in (AMD64, ARM64):
        shutil.copy(source / platform.file("debian.txt"), folder)
        lines = (source / platform.file("requirements.txt")).read_text().splitlines(keepends=True)
        own = "".join(line for line in lines if line.partition("==")[0] in PACKAGES)
        (folder / platform.file("requirements.txt")).write_text(own)
    real = stack.load(workshop.project, REAL)
    (folder / "stack.toml").write_text(INTENT.format(python=real.python, debian=real.debian))
    intent = lockfile.intent(stack.load(workshop.project, SMALL))
    locked = re.sub(r'intent = "[^"]*"', f'intent = "{intent}"', (source / "lock.toml").read_text())
    (folder / "lock.toml").write_text(locked)
    rendered = workshop.vetted("render", SMALL)
    assert rendered.returncode == 0, rendered.stderr
    yield workshop
    shutil.rmtree(workshop.root)


@pytest.fixture(scope="module")
def proof(small: Workshop, docker: None) -> dict[str, Any]:  # noqa: ARG001
    proof: dict[str, Any] = small.json("build", SMALL, "--platform", "arm64", "--prove")
    return proof


@pytest.fixture(scope="module")
def image(small: Workshop, proof: dict[str, Any]) -> Image:  # noqa: ARG001
    """The image that the proof kept: nothing is built for it."""
    return oci.read(Path(small.json("build", SMALL, "--platform", "arm64")["layout"]))


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """qemu's emulator of arm64, from Debian's package: one static program."""
    folder = tmp_path_factory.mktemp("qemu")
    subprocess.run(["apt-get", "download", "-q", "qemu-user-static"], cwd=folder, check=True, capture_output=True)
    (package,) = folder.glob("*.deb")
    subprocess.run(["dpkg-deb", "--extract", package, folder], check=True)
    return folder / "usr" / "bin" / "qemu-aarch64-static"


@pytest.fixture(scope="module")
def root(image: Image, emulator: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The image's files in a folder, with the emulator beside them."""
    root = tmp_path_factory.mktemp("root")
    for layer in image.layers:
        with oci.tar(image.layout, layer) as archive:
            for member in archive:
                if not member.isdev():
                    archive.extract(member, root, filter="fully_trusted")
    shutil.copy(emulator, root / "emulator")
    yield root
    shutil.rmtree(root)


def emulated(root: Path, *argv: str) -> str:
    done = subprocess.run(
        ["/usr/sbin/chroot", root, "/emulator", *argv], capture_output=True, text=True, check=False,
        env={"PATH": "/usr/bin:/bin", "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_two_builds_without_cache_are_identical(proof: dict[str, Any], image: Image) -> None:
    assert proof["identical"] is True
    assert proof["first"] == proof["second"] == image.manifest


def test_every_program_is_for_arm64(image: Image) -> None:
    assert oci.json_of(image.layout, image.config)["architecture"] == "arm64"
    machines = [
        elf.machine_of(content.read(elf.HEADER))
        for _, size, content in oci.members(image, lambda _: True)
        if not isinstance(content, str) and size >= elf.HEADER
    ]
    assert machines.count(ARM64.elf) > 300
    assert set(machines) == {None, ARM64.elf}


def test_packages_are_imported_by_the_images_own_python(small: Workshop, root: Path) -> None:
    python = lockfile.load(small.project, SMALL).stack.python
    answer = emulated(root, "/opt/venv/bin/python", "-c", PROGRAM)
    assert answer.splitlines() == [f"aarch64 {python} 3.0 True", "True /opt/venv"]


def test_the_base_has_what_scripts_of_packages_make(root: Path) -> None:
    assert (root / "etc/ssl/certs/ca-certificates.crt").read_text().count("BEGIN CERTIFICATE") > 100
    assert "vetted:x:1000:1000" in (root / "etc/passwd").read_text()
    assert emulated(root, "/bin/sh", "-c", "echo hello") == "hello\n"
    packages = emulated(root, "/usr/bin/dpkg-query", "-W", "-f", "${Package} ${Architecture} ${db:Status-Status}\n")
    rows = [line.split() for line in packages.splitlines()]
    assert {row[1] for row in rows} == {"all", "arm64"} and {row[2] for row in rows} == {"installed"}
    changed = [line for line in emulated(root, "/usr/bin/dpkg", "--verify").splitlines() if "missing" not in line]
    assert changed == []


def test_one_index_has_the_images_of_both_platforms(small: Workshop, image: Image) -> None:
    answer = small.json("build", SMALL, "--platform", "all")
    layout = Path(answer["layout"])
    assert answer["manifests"]["arm64"] == image.manifest
    (descriptor,) = oci.descriptors(layout)
    assert descriptor["digest"] == answer["index"]
    manifests = json.loads(oci.checked(layout, answer["index"]))["manifests"]
    assert {row["platform"]["architecture"]: row["digest"] for row in manifests} == answer["manifests"]
    images = [oci.read(small.project.state / "images" / name) for name in (SMALL, f"{SMALL}.arm64")]
    assert [list(oci.damaged(each)) for each in images] == [[], []]
    assert {path.name for path in (layout / "blobs" / "sha256").iterdir()} >= {
        digest.removeprefix("sha256:") for each in images for digest in each.digests
    }
    # What is pure Python is the same layer on both.
    assert {layer.digest for layer in images[0].layers} & {layer.digest for layer in images[1].layers}
