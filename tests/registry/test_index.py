"""An index of the images for two platforms in a real registry."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from builder.intent.platform import ARM64
from builder.lock import lockfile
from builder.publish import registry
from builder.publish.reference import Repository
from tests.conftest import TINY
from tests.registry.conftest import Keys, Stack, publish, verify
from tests.unit.conftest import Command
from tests.unit.publish.test_platforms import make


@pytest.fixture
def both(certified: Stack) -> Stack:
    """Locked for arm64 as well, and not built for it."""
    small = certified.small
    small.edit("stack.toml", 'debian = "bookworm"', 'debian = "bookworm"\nplatforms = ["amd64", "arm64"]')
    for file in ("requirements.txt", "debian.txt"):
        shutil.copy(small.file(file), small.file(ARM64.file(file)))
    return certified


def test_each_machine_pulls_its_own_image_and_the_stacks_tag_stays_the_certified_one(
    command: Command, both: Stack, repository: Repository, keys: Keys, tmp_path: Path
) -> None:
    without = publish(command, both, repository, keys)
    assert without.code == 0 and "no index: the image for linux/arm64 was not built here" in without.err
    assert registry.resolve(repository, f"{TINY}.index") is None

    other = make(both.small, lockfile.load(both.small.project, TINY, ARM64)).image.manifest
    done = publish(command, both, repository, keys, "--json")
    assert done.code == 0, done.err
    assert done.json["index"]["images"] == {"linux/amd64": both.image, "linux/arm64": other}
    digest = registry.resolve(repository, f"{TINY}.index")
    assert digest == done.json["index"]["digest"]
    for platform, image in done.json["index"]["images"].items():
        argv = ["oras", "cp", "--from-plain-http", "--no-tty", "--platform", platform, "--to-oci-layout"]
        subprocess.run([*argv, f"{repository}:{TINY}.index", f"{tmp_path / image[7:19]}:it"], check=True)
        assert (tmp_path / image[7:19] / "blobs" / "sha256" / image[7:]).is_file()
    check = ["cosign", "verify", "--insecure-ignore-tlog", f"--key={keys.public}", "--allow-http-registry"]
    assert subprocess.run([*check, f"{repository}@{digest}"], capture_output=True, check=False).returncode == 0
    assert verify(command, both, f"{repository}:{TINY}", keys).code == 0
    doubted = verify(command, both, f"{repository}:{TINY}.index", keys)
    assert doubted.code == 1 and f"linux/arm64  {repository}@{other}" in doubted.out
