"""Rebuilding what is in a registry: with a key beside the signatures, without one as the only proof."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from builder.image import build, oci
from builder.lock.lockfile import Lock
from builder.publish import rebuild
from builder.publish.reference import Repository
from tests.conftest import TINY
from tests.registry.conftest import Keys, Stack, image_of, publish, skopeo, verify
from tests.unit.conftest import Command


@pytest.fixture
def rebuilds(monkeypatch: pytest.MonkeyPatch, certified: Stack) -> None:
    """A build of the lock gives the image of the small stack."""
    kept = certified.built.image.layout.parent.parent / "again"
    shutil.copytree(certified.built.image.layout, kept)

    def anew(_project: object, _lock: Lock, scratch: Path, _report: object) -> oci.Image:
        return oci.read(Path(shutil.copytree(kept, scratch / "layout")))

    monkeypatch.setattr(build, "anew", anew)


@pytest.mark.usefixtures("rebuilds")
def test_a_published_image_is_rebuilt_with_and_without_a_key(
    command: Command, certified: Stack, repository: Repository, keys: Keys
) -> None:
    assert publish(command, certified, repository, keys).code == 0
    for reference in (f"{repository}:{TINY}", f"{repository}@{certified.image}"):
        answer = verify(command, certified, reference, keys, "--rebuild")
        assert answer.code == 0, answer.out + answer.err
        assert rebuild.SAME in answer.out and rebuild.UNJUDGED not in answer.out
        assert answer.out.splitlines()[-1] == "verified"
        alone = command(certified.root, "verify", reference, "--rebuild")
        assert alone.code == 0, alone.out + alone.err
        assert rebuild.SAME in alone.out and rebuild.UNJUDGED in alone.out
        assert alone.out.splitlines()[-1] == "identical, and not certified"


@pytest.mark.usefixtures("rebuilds")
def test_a_rebuild_does_not_make_up_for_a_signature(
    command: Command, certified: Stack, repository: Repository, other_keys: Keys, keys: Keys
) -> None:
    publish(command, certified, repository, keys)
    answer = verify(command, certified, f"{repository}:{TINY}", other_keys, "--rebuild")
    assert answer.code == 1
    assert rebuild.SAME in answer.out
    assert answer.out.splitlines()[-1] == "not verified"


@pytest.mark.usefixtures("rebuilds")
def test_an_image_of_other_files_that_claims_the_lock_is_found(
    command: Command, certified: Stack, repository: Repository, tmp_path: Path
) -> None:
    evil = image_of(tmp_path / "evil", [{"etc/content": "evil"}], labels=build.own_labels(certified.small.lock))
    skopeo(f"oci:{evil.layout}", f"docker://{repository}:{TINY}")
    answer = command(certified.root, "verify", f"{repository}:{TINY}", "--rebuild", "--json")
    assert answer.code == 1
    (doubt,) = answer.json["doubts"]
    assert f"expected {certified.image}\ngot      {evil.manifest}" in doubt
    assert "first difference: layer 1 has other files" in doubt
    assert answer.json["identical"] is False


@pytest.mark.usefixtures("rebuilds")
def test_no_image_and_no_stack_are_said(command: Command, certified: Stack, repository: Repository) -> None:
    answer = command(certified.root, "verify", f"{repository}:nothing", "--rebuild")
    assert answer.code == 1
    assert f"doubt: there is no image {repository}:nothing" in answer.out
