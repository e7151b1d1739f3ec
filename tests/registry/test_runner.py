"""The runner's signature: what was measured is the word of the machine that measured it, and of nobody else."""

from __future__ import annotations

import json
import shutil

import pytest

from builder.certify import certificate
from builder.publish import runner
from builder.publish.reference import Repository
from tests.conftest import TINY, Small
from tests.registry.conftest import Keys, Stack, publish, tags
from tests.unit.conftest import Command
from tests.unit.conftest import wheels as wheels


@pytest.fixture
def signed(certified: Stack, other_keys: Keys) -> Stack:
    """Certified, and signed with the runner's own key."""
    path = certificate.path(certified.small.project, TINY, "cpu", "docker")
    runner.sign(path, str(other_keys.private), certified.small.scratch())
    return certified


def test_what_the_runner_signed_is_published(
    command: Command, signed: Stack, repository: Repository, keys: Keys, other_keys: Keys
) -> None:
    done = publish(command, signed, repository, keys, "--runner-key", str(other_keys.public))
    assert done.code == 0, done.err
    assert tags(repository)[TINY] == signed.image


@pytest.mark.parametrize("how", ["unsigned", "by another key", "changed afterwards", "another statement", "rubbish"])
def test_what_the_runner_did_not_sign_is_not_published(
    command: Command, signed: Stack, repository: Repository, keys: Keys, other_keys: Keys, how: str
) -> None:
    """A number within its bound is changed, which no judge can see; the runner's signature can."""
    path = certificate.path(signed.small.project, TINY, "cpu", "docker")
    scratch = signed.small.scratch()
    if how == "unsigned":
        runner.path(path).unlink()
    elif how == "by another key":
        runner.sign(path, str(keys.private), scratch)
    elif how == "rubbish":
        runner.path(path).write_bytes(b"{}")
    else:
        statement = json.loads(path.read_text())
        statement["predicate"]["probes"][0]["seconds"] = 0.75
        path.write_text(json.dumps(statement, indent=2) + "\n")
        if how == "another statement":
            shutil.copy(path, scratch / "other.json")
            shutil.copy(runner.sign(scratch / "other.json", str(other_keys.private), scratch), runner.path(path))
            signed.small.issue("docker", subject=signed.image)
    done = publish(command, signed, repository, keys, "--runner-key", str(other_keys.public))
    assert done.code == 1
    assert "has no valid certificate" in done.err
    assert tags(repository) == {}


def test_certify_signs_what_it_measured_and_an_earlier_signature_goes(
    command: Command, wheels: Small, other_keys: Keys
) -> None:
    path = certificate.path(wheels.project, TINY, "cpu", "host")
    again = ("certify", TINY, "--engine", "host", "--force")
    assert command(wheels.root, *again, "--key", str(other_keys.private)).code == 0
    envelope = json.loads(runner.path(path).read_text())
    assert envelope["signatures"]
    assert command(wheels.root, *again).code == 0
    assert not runner.path(path).exists()


def test_a_key_that_cannot_sign_is_said_before_any_work(command: Command, wheels: Small) -> None:
    answer = command(wheels.root, "certify", TINY, "--engine", "host", "--key", "nowhere.key")
    assert (answer.code, "there is no key nowhere.key" in answer.err) == (3, True)
    assert not (wheels.project.state / "host").exists()
