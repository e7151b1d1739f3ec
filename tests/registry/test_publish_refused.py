"""What `publish` refuses before it pushes anything: no valid certificate, no image, no key."""

from __future__ import annotations

import datetime
from collections.abc import Callable
from typing import Any

import pytest
import zstandard

from builder.base import errors
from builder.certify import certificate
from builder.image import oci
from builder.publish import publish as publishing
from builder.publish import registry
from builder.publish.reference import Repository
from tests.conftest import TINY
from tests.registry.conftest import Keys, Stack, advise, publish, rewritten, tags, tar, verify
from tests.unit.conftest import Command


def uncertified(stack: Stack) -> None:
    certificate.path(stack.small.project, TINY, "cpu", "docker").unlink()


def of_another_digest(stack: Stack) -> None:
    stack.small.issue("docker", subject="sha256:" + "1" * 64)


def of_the_host(stack: Stack) -> None:
    uncertified(stack)
    stack.small.issue("host")


def of_another_suite(stack: Stack) -> None:
    stack.small.suite("# a later suite\n")


def of_another_lock(stack: Stack) -> None:
    def change(data: Any) -> None:
        data["predicate"]["configuration"][0]["digest"]["sha256"] = "2" * 64

    rewritten(certificate.path(stack.small.project, TINY, "cpu", "docker"), change)


def expired(stack: Stack) -> None:
    stack.small.issue("docker", subject=stack.image, day=datetime.date(2025, 1, 1))


def without_expiry(stack: Stack) -> None:
    def change(data: Any) -> None:
        del data["predicate"]["issued"], data["predicate"]["expires"]

    rewritten(certificate.path(stack.small.project, TINY, "cpu", "docker"), change)


def failed(stack: Stack) -> None:
    def change(data: Any) -> None:
        data["predicate"]["result"] = "FAILED"

    rewritten(certificate.path(stack.small.project, TINY, "cpu", "docker"), change)


def withdrawn(stack: Stack) -> None:
    advise(stack.small, certificate.today())


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (uncertified, "tiny has no valid certificate of sha256:"),
        (of_another_digest, f"it speaks of another subject\nexpected sha256:{{image}}\ngot      sha256:{'1' * 64}"),
        (of_the_host, "cpu-host: it was earned on a host, not in the image"),
        (of_another_suite, "it was earned with another suite"),
        (of_another_lock, f"it was earned with another lock\nexpected sha256:{{lock}}\ngot      sha256:{'2' * 64}"),
        (expired, "it expired on 2025-04-01: certify again"),
        (without_expiry, "it has no expiry date: certify again"),
        (failed, "it is the report of a run that failed"),
        (withdrawn, "withdrawn by VETTED-9001 of {today}: Tiny 1.0 greets nobody; the way out: tiny-lib>=2"),
    ],
)
def test_without_a_valid_certificate_nothing_is_pushed(
    command: Command, certified: Stack, repository: Repository, keys: Keys, spoil: Callable[[Stack], None], message: str
) -> None:
    spoil(certified)
    done = publish(command, certified, repository, keys)
    assert done.code == 1
    values = {"image": certified.image[7:], "lock": certified.small.lock.digest[7:], "today": certificate.today()}
    assert message.format(**values) in done.err
    assert f"next: vetted certify {TINY} --engine docker" in done.err
    assert registry.manifest(repository, certified.image) is None


def test_one_byte_of_the_certificate_changed_is_noticed(
    command: Command, certified: Stack, repository: Repository, keys: Keys
) -> None:
    path = certificate.path(certified.small.project, TINY, "cpu", "docker")
    good = path.read_bytes()
    place = good.index(certified.image[7:].encode())
    for spoiled, code in ((good[:place] + b"g" + good[place + 1 :], 3), (good.replace(b"PASSED", b"PASSEE"), 3)):
        path.write_bytes(spoiled)
        done = publish(command, certified, repository, keys)
        assert (done.code, "is not a certificate" in done.err) == (code, True)
    other = b"1" if good[place : place + 1] != b"1" else b"2"
    path.write_bytes(good[:place] + other + good[place + 1 :])
    assert publish(command, certified, repository, keys).code == 1
    assert tags(repository) == {}


def test_an_image_that_is_not_here_is_not_published(
    command: Command, certified: Stack, repository: Repository, keys: Keys
) -> None:
    (certified.small.project.state / "images" / f"{TINY}.json").unlink()
    done = publish(command, certified, repository, keys)
    assert done.code == 1
    assert "the image of tiny is not here" in done.err


def test_a_stale_lock_is_not_published(command: Command, certified: Stack, repository: Repository, keys: Keys) -> None:
    certified.small.edit("stack.toml", "unwanted ;", "unneeded ;")
    done = publish(command, certified, repository, keys)
    assert done.code == 1
    assert "stack.toml was changed after it was locked" in done.err


def test_a_layer_that_was_changed_on_disk_is_not_pushed(
    command: Command, certified: Stack, repository: Repository, keys: Keys
) -> None:
    (layer,) = certified.built.image.layers
    path = oci.blob(certified.built.image.layout, layer.digest)
    path.write_bytes(zstandard.compress(tar({"etc/content": "other"})))
    done = publish(command, certified, repository, keys)
    assert done.code == 1
    assert "the image of tiny is not here" in done.err
    assert tags(repository) == {}


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("nowhere.key", "there is no key nowhere.key"),
        ("README.md", "README.md cannot sign"),
        ("{public}", "cannot sign"),
        ("--json", "there is no key --json"),
    ],
)
def test_what_is_no_key_ends_with_3(
    command: Command, certified: Stack, repository: Repository, keys: Keys, key: str, message: str
) -> None:
    key = key.format(public=keys.public)
    done = command(certified.root, "publish", TINY, "--registry", str(repository), f"--key={key}")
    assert done.code == 3
    assert message in done.err
    assert tags(repository) == {}


@pytest.mark.parametrize("password", ["wrong", "", None])
def test_a_wrong_or_missing_password_is_told_and_asked_of_nobody(
    command: Command, certified: Stack, repository: Repository, keys: Keys, monkeypatch: pytest.MonkeyPatch,
    password: str | None,
) -> None:  # fmt: skip
    monkeypatch.delenv("COSIGN_PASSWORD")
    if password is not None:
        monkeypatch.setenv("COSIGN_PASSWORD", password)
    done = publish(command, certified, repository, keys)
    assert done.code == 3
    assert "its password is wrong, or was not given" in done.err
    assert "export COSIGN_PASSWORD" in done.err


def test_a_key_may_be_one_of_cosigns_addresses(
    command: Command, certified: Stack, repository: Repository, keys: Keys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIGNING_KEY", keys.private.read_text())
    done = command(certified.root, "publish", TINY, "--registry", str(repository), "--key", "env://SIGNING_KEY")
    assert done.code == 0, done.err
    assert verify(command, certified, f"{repository}:{TINY}", keys).code == 0


@pytest.mark.parametrize("where", ["images", "/images", "host/images", "127.0.0.1:1/Images", "a.b/c:tag", "-x.y/z"])
def test_what_is_no_repository_ends_with_2(command: Command, certified: Stack, keys: Keys, where: str) -> None:
    done = command(certified.root, "publish", TINY, f"--registry={where}", "--key", str(keys.private))
    assert done.code == 2
    assert "--registry" in done.err


def test_a_stack_whose_name_is_no_tag_is_told(certified: Stack) -> None:
    assert certified.image
    for name in ("tiny+x", "t" * 120):
        with pytest.raises(errors.BadInputError, match="cannot be a tag"):
            publishing.tag(name)
    assert publishing.tag("t" * publishing.LONGEST)
