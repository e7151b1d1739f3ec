"""What `vetted use` writes is what Docker finds: a name and a digest of an image that was never pulled."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator

import pytest

from builder.image.build import Built
from tests import parts
from tests.commands import vetted
from tests.conftest import TINY, Small
from tests.registry.conftest import make_image


@pytest.fixture
def built(small: Small) -> Iterator[Built]:
    parts.docker()
    image = make_image(small)
    yield image
    subprocess.run(["docker", "image", "rm", "--force", image.reference], capture_output=True, check=False)


def test_docker_finds_what_is_pinned(small: Small, built: Built) -> None:
    done = vetted(small.root, "use", TINY)
    assert done.code == 0, done.err
    pinned = dict(line.split("=", 1) for line in (small.root / ".env").read_text().splitlines())["VETTED_IMAGE"]
    inspected = subprocess.run(
        ["docker", "image", "inspect", "--format", "{{.Id}}", pinned], capture_output=True, text=True, check=False
    )
    assert inspected.stdout.strip() == built.image.manifest, inspected.stderr
    created = subprocess.run(
        ["docker", "create", "--pull=never", pinned, "x"], capture_output=True, text=True, check=False
    )
    assert created.returncode == 0, created.stderr
    subprocess.run(["docker", "rm", created.stdout.strip()], capture_output=True, check=True)
