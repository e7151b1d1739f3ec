"""From an image that nothing has certified, through a fleet on Kubernetes, to a registry and back.

Registry, keys and what a pod runs are real; the API server is a stand-in.
"""

from __future__ import annotations

from pathlib import Path

from builder.certify import certificate
from builder.image import oci
from builder.publish import registry
from builder.publish.reference import Repository
from tests.conftest import TINY
from tests.registry.conftest import Keys, Stack, publish, tags, verify
from tests.unit.conftest import Command
from tests.unit.fleet.conftest import ApiServer, runs
from tests.unit.fleet.conftest import api as api


def test_an_image_is_pushed_certified_in_a_pod_and_published(
    command: Command, built: Stack, repository: Repository, keys: Keys, api: ApiServer, tmp_path: Path
) -> None:
    assert publish(command, built, repository, keys).code == 1, "it is certified nowhere"
    api.fate = runs(tmp_path / "nodes")
    done = command(built.root, "fleet", TINY, "--on", "kubernetes", "--image-registry", str(repository))
    assert done.code == 0, done.out + done.err
    assert f"pushing to {repository}" in done.err
    assert registry.manifest(repository, built.image) == oci.checked(built.built.image.layout, built.image)
    assert tags(repository) == {}, "a tag is what `vetted publish` moves"
    again = command(built.root, "fleet", TINY, "--on", "kubernetes", "--image-registry", str(repository))
    assert again.code == 0 and "pushing" not in again.err
    assert [path.stem for path in certificate.path(built.small.project, TINY, "cpu", "x").parent.iterdir()] == [
        "cpu-kubernetes"
    ]
    published = publish(command, built, repository, keys)
    assert published.code == 0, published.err
    assert verify(command, built, f"{repository}:{TINY}", keys).code == 0
