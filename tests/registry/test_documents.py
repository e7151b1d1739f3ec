"""docs/how-to/publish.md: its commands check an image without Vetted, and turn red where they must."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from builder.certify import certificate
from builder.image import oci
from builder.publish.reference import Repository
from tests.attacks.test_registry import FORGERIES, forge, forged_certificate
from tests.conftest import ROOT, TINY
from tests.registry.conftest import Keys, Stack, make_image, skopeo, verify
from tests.unit.conftest import Command

BLOCK = re.compile(r"<!-- run by tests/registry/test_documents\.py -->\n```sh\n(.*?)```", re.DOTALL)
ONLINE, OFFLINE = BLOCK.findall((ROOT / "docs" / "how-to" / "publish.md").read_text(encoding="utf-8"))


(SCRIPT,) = re.findall(r"^cat > statement\.py.*?^END\n", ONLINE, re.MULTILINE | re.DOTALL)


def run(script: str, folder: Path, **values: str) -> subprocess.CompletedProcess[str]:
    """Run a block of the document with the first line's variable set to a true value."""
    for name, value in values.items():
        script, times = re.subn(rf"^{name}=\S+", f"{name}={value}", script, flags=re.MULTILINE)
        assert times == 1
    return subprocess.run(
        ["sh", "-euc", script], cwd=folder, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False
    )


def by_name(repository: Repository, image: str) -> str:
    """cosign and oras speak plain HTTP to localhost by themselves."""
    return f"{str(repository).replace('127.0.0.1', 'localhost')}@{image}"


def test_cosign_and_oras_alone_verify(published: Stack, repository: Repository, keys: Keys, tmp_path: Path) -> None:
    (tmp_path / "cosign.pub").symlink_to(keys.public)
    done = run(ONLINE, tmp_path, IMAGE=by_name(repository, published.image))
    assert done.returncode == 0, done.stderr
    path = certificate.path(published.small.project, TINY, "cpu", "docker")
    assert json.loads((tmp_path / "certificate.json").read_text()) == json.loads(path.read_text())
    assert "application/vnd.vetted.attestations.v1" in done.stdout
    for name in ("sbom", "provenance"):
        assert json.loads((tmp_path / f"{name}.json").read_text())["subject"][0]["digest"]["sha256"] in published.image


@pytest.mark.parametrize("how", FORGERIES)
def test_a_forged_certificate_is_refused_by_the_script(
    published: Stack, repository: Repository, keys: Keys, tmp_path: Path, how: str
) -> None:
    (tmp_path / "cosign.pub").symlink_to(keys.public)
    forge(published, repository, tmp_path / "forged", how)
    done = run(ONLINE, tmp_path, IMAGE=by_name(repository, published.image))
    assert done.returncode != 0
    if (tmp_path / "certificate.json").exists():  # cosign itself refused it otherwise
        assert "forged" in done.stderr
        assert (tmp_path / "certificate.json").read_text() == ""


def test_cosign_alone_refuses_another_key_and_another_image(
    published: Stack, repository: Repository, keys: Keys, other_keys: Keys, tmp_path: Path
) -> None:
    (tmp_path / "cosign.pub").symlink_to(other_keys.public)
    assert run(ONLINE, tmp_path, IMAGE=by_name(repository, published.image)).returncode != 0
    (tmp_path / "cosign.pub").unlink()
    (tmp_path / "cosign.pub").symlink_to(keys.public)
    other = make_image(published.small, "other")
    skopeo(f"oci:{other.image.layout}", f"docker://{repository}:other")
    assert run(ONLINE, tmp_path, IMAGE=by_name(repository, other.image.manifest)).returncode != 0


def test_cosign_alone_verifies_what_is_carried_and_refuses_what_was_changed(
    command: Command, certified: Stack, keys: Keys, tmp_path: Path
) -> None:
    output = tmp_path / "carried"
    done = command(certified.root, "bundle", TINY, "--image", "--key", str(keys.private), "--output", str(output))
    assert done.code == 0, done.err
    (tmp_path / "cosign.pub").symlink_to(keys.public)
    manifest = oci.blob(Path("carried/image"), certified.image)
    script = SCRIPT + OFFLINE
    assert run(script, tmp_path, MANIFEST=str(manifest)).returncode == 0
    assert json.loads((tmp_path / "certificate.json").read_text()) == json.loads(
        (output / "certificate.json").read_text()
    )
    path = output / "certificate.dsse.json"
    genuine = path.read_bytes()
    path.write_bytes(forged_certificate(genuine, "forged, then Payload"))
    refused = run(script, tmp_path, MANIFEST=str(manifest))
    assert (refused.returncode, "forged: a key is there twice" in refused.stderr) == (1, True)
    path.write_bytes(genuine)
    (tmp_path / manifest).write_bytes((tmp_path / manifest).read_bytes() + b" ")
    assert run(script, tmp_path, MANIFEST=str(manifest)).returncode != 0


def test_what_oras_copies_from_a_registry_verifies_offline(
    command: Command, published: Stack, repository: Repository, keys: Keys, tmp_path: Path
) -> None:
    text = (ROOT / "docs" / "how-to" / "publish.md").read_text(encoding="utf-8")
    (copy,) = re.findall(r'`(oras cp --recursive --to-oci-layout "\$IMAGE" layout:published)`', text)
    env = {**os.environ, "IMAGE": by_name(repository, published.image)}
    subprocess.run(["sh", "-euc", copy], cwd=tmp_path, env=env, check=True, capture_output=True)
    assert verify(command, published, str(tmp_path / "layout"), keys, "--offline").code == 0
