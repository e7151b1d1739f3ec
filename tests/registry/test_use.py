"""Choosing the image that compose.yaml runs: pinned by its digest, and verified before when there is a key."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from builder.certify import certificate
from builder.publish.reference import Repository
from tests.conftest import TINY
from tests.registry.conftest import Keys, Stack, advise, publish
from tests.unit.conftest import Command


def test_the_image_of_a_registry_is_pinned_by_its_digest(
    command: Command, certified: Stack, repository: Repository, keys: Keys
) -> None:
    publish(command, certified, repository, keys)
    answer = command(certified.root, "use", TINY, "--registry", str(repository), "--key", str(keys.public))
    assert answer.code == 0, answer.err
    written = (certified.root / ".env").read_text().splitlines()
    assert written[:2] == [f"VETTED_IMAGE={repository}@{certified.image}", f"VETTED_STACK={TINY}"]
    assert written[2] == f"VETTED_CERTIFICATES=./.vetted/judged/{TINY}"
    assert "not verified" not in answer.err


def test_an_image_that_was_verified_brings_its_certificates_and_no_older_ones(
    command: Command, certified: Stack, repository: Repository, keys: Keys
) -> None:
    publish(command, certified, repository, keys)
    folder = certified.root / ".vetted" / "judged" / TINY / "certificates"
    folder.mkdir(parents=True)
    (folder / "9.json").write_text("of an earlier image")
    answer = command(certified.root, "use", TINY, "--registry", str(repository), "--key", str(keys.public))
    assert answer.code == 0, answer.err
    (brought,) = folder.iterdir()
    statement = certificate.Statement.model_validate_json(brought.read_text())
    digest = statement.subject[0].digest
    assert digest is not None and certified.image == f"sha256:{digest.sha256}"


def test_the_cpu_stack_is_the_default_and_what_is_not_verified_is_said(
    command: Command, certified: Stack, repository: Repository, keys: Keys
) -> None:
    publish(command, certified, repository, keys)
    answer = command(certified.root, "use", "--registry", str(repository))
    assert answer.code == 0
    assert f"{TINY}: {repository}@{certified.image}" in answer.out
    assert "not verified: add --key cosign.pub" in answer.err
    assert f"VETTED_CERTIFICATES=./.vetted/judged/{TINY}" in (certified.root / ".env").read_text()
    again = command(certified.root, "use", "--registry", str(repository), "--json")
    assert again.json == {
        "stack": TINY, "image": f"{repository}@{certified.image}", "file": str(certified.root / ".env"),
        "changed": False,
    }  # fmt: skip


def test_an_image_in_doubt_is_not_chosen(
    command: Command, certified: Stack, repository: Repository, keys: Keys
) -> None:
    publish(command, certified, repository, keys)
    advise(certified.small, certificate.today())
    answer = command(certified.root, "use", TINY, "--registry", str(repository), "--key", str(keys.public))
    assert answer.code == 1
    assert f"{repository}:{TINY} is in doubt; .env is unchanged" in answer.err
    assert "withdrawn by VETTED-9001" in answer.err
    assert not (certified.root / ".env").exists()


def test_a_stack_that_was_never_published_is_said(command: Command, certified: Stack, repository: Repository) -> None:
    answer = command(certified.root, "use", TINY, "--registry", str(repository))
    assert answer.code == 1
    assert f"there is no {repository}:{TINY}" in answer.err
    assert f"next: vetted publish {TINY} --registry {repository}" in answer.err


def test_a_repository_of_ones_own_has_the_key_and_the_command_that_checks_the_signature(
    command: Command, certified: Stack, repository: Repository, keys: Keys, tmp_path: Path
) -> None:
    publish(command, certified, repository, keys)
    mine = tmp_path / "mine"
    mine.mkdir()
    registry = ("--registry", str(repository), "--key", str(keys.public))
    answer = command(certified.root, "use", TINY, *registry, "--into", str(mine))
    assert answer.code == 0, answer.err
    text = (mine / "compose.yaml").read_text()
    image = f"{repository}@{certified.image}"
    assert f"  image: {image}\n" in text
    assert (mine / "vetted" / "cosign.pub").read_bytes() == keys.public.read_bytes()
    (brought,) = (mine / "vetted" / "certificates").iterdir()
    assert certificate.read(brought).subject
    again = command(certified.root, "use", "--into", str(mine), "--json")
    assert again.json == {
        "stack": TINY, "image": image, "file": str(mine / "compose.yaml"), "changed": False,
    }  # fmt: skip
    # cosign speaks plain HTTP to localhost by itself.
    (choose, check, *_) = [
        line.removeprefix("#   ") for line in text.splitlines() if re.match("#   (image=|cosign )", line)
    ]
    script = f"{choose.replace('127.0.0.1', 'localhost')}\n{check}"
    done = subprocess.run(["sh", "-euc", script], cwd=mine, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    other = script.replace(certified.image, certified.another("other").image)
    assert subprocess.run(["sh", "-euc", other], cwd=mine, capture_output=True, check=False).returncode != 0
