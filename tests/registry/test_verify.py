"""Judging what is in a registry or a folder: what is whole is good, and every doubt is a sentence and exit code 1."""

from __future__ import annotations

import base64
import datetime
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from builder.certify import certificate
from builder.publish import attached, registry, signing
from builder.publish.reference import Repository
from builder.publish.signing import Envelope
from tests.conftest import TINY
from tests.registry.conftest import Keys, Stack, advise, make_image, on_another_machine, publish, skopeo, verify
from tests.unit.conftest import Command


def attach(stack: Stack, repository: Repository, envelopes: list[Envelope], tmp_path: Path) -> None:
    """Put these statements on the image, in place of what is there."""
    layout = tmp_path / f"attached-{len(list(tmp_path.iterdir()))}"
    digest = attached.write(stack.built.image, envelopes, layout)
    registry.push(repository, layout, digest, attached.tag(stack.image))


def there(stack: Stack, repository: Repository) -> list[Envelope]:
    return attached.fetch(repository, stack.image)


def test_a_published_image_verifies_by_tag_and_by_digest(
    command: Command, published: Stack, repository: Repository, keys: Keys
) -> None:
    for reference in (
        f"{repository}:{TINY}", f"{repository}@{published.image}", f"{repository}:{TINY}@{published.image}",
    ):  # fmt: skip
        answer = verify(command, published, reference, keys)
        assert answer.code == 0, answer.out
        assert answer.out.splitlines()[-1] == "verified"
        assert f"  image     {published.image}" in answer.out.splitlines()
        assert f"  lock      {published.small.lock.digest}" in answer.out.splitlines()


def test_as_json_it_says_the_same(command: Command, published: Stack, repository: Repository, keys: Keys) -> None:
    answer = verify(command, published, f"{repository}:{TINY}", keys, "--json")
    assert answer.code == 0
    summary = answer.json
    assert (summary["good"], summary["image"], summary["stack"], summary["doubts"]) == (True, published.image, TINY, [])
    (entry,) = summary["certificates"]
    assert (entry["issued"], entry["doubts"], entry["passed"]) == (str(certificate.today()), [], ["alpha", "beta"])


# --- what is in the registry ---------------------------------------------------------------------------------------


def test_an_image_without_attestations_is_in_doubt(
    command: Command, built: Stack, repository: Repository, keys: Keys
) -> None:
    skopeo(f"oci:{built.built.image.layout}", f"docker://{repository}:{TINY}")
    answer = verify(command, built, f"{repository}:{TINY}", keys)
    assert answer.code == 1
    assert "doubt: nothing is attached to it: it was never published with a certificate" in answer.out
    assert answer.out.splitlines()[-1] == "not verified"


@pytest.mark.parametrize("name", [":nothing", "@sha256:" + "1" * 64])
def test_an_image_that_is_not_there_is_said(
    command: Command, published: Stack, repository: Repository, keys: Keys, name: str
) -> None:
    answer = verify(command, published, f"{repository}{name}", keys)
    assert answer.code == 1
    assert f"doubt: there is no image {repository}{name}" in answer.out


def test_signed_by_another_key(command: Command, published: Stack, repository: Repository, other_keys: Keys) -> None:
    answer = verify(command, published, f"{repository}:{TINY}", other_keys)
    assert answer.code == 1
    reason = "it is signed by another key, or was changed after it was signed"
    assert answer.out.count(reason) == 4
    assert f"doubt: certificate: {reason}" in answer.out


def changed(envelope: Envelope) -> Envelope:
    """The same with one byte of its statement changed."""
    data = json.loads(envelope.raw)
    payload = base64.b64decode(data["payload"])
    place = payload.index(b"PASSED" if b"PASSED" in payload else b"tiny")
    data["payload"] = base64.b64encode(payload[:place] + b"p" + payload[place + 1 :]).decode()
    parsed = signing.parse(json.dumps(data).encode())
    assert parsed is not None
    return parsed


@pytest.mark.parametrize(("number", "kind"), [(0, "certificate"), (1, "bill of materials"), (2, "provenance")])
def test_one_byte_of_a_statement_changed(
    command: Command, published: Stack, repository: Repository, keys: Keys, tmp_path: Path, number: int, kind: str
) -> None:
    envelopes = there(published, repository)
    envelopes[number] = changed(envelopes[number])
    attach(published, repository, envelopes, tmp_path)
    answer = verify(command, published, f"{repository}:{TINY}", keys)
    assert answer.code == 1
    assert f"doubt: {'no' if number == 0 else 'there is no'} {kind}" in answer.out
    assert "was changed after it was signed" in answer.out


@pytest.mark.parametrize(("number", "kind"), [(0, "no certificate"), (1, "no bill of"), (2, "no provenance")])
def test_a_statement_is_missing(
    command: Command, published: Stack, repository: Repository, keys: Keys, tmp_path: Path, number: int, kind: str
) -> None:
    envelopes = there(published, repository)
    del envelopes[number]
    attach(published, repository, envelopes, tmp_path)
    answer = verify(command, published, f"{repository}:{TINY}", keys)
    assert answer.code == 1
    assert kind in answer.out


def test_what_is_attached_is_about_another_digest(
    command: Command, published: Stack, repository: Repository, keys: Keys, tmp_path: Path
) -> None:
    good = there(published, repository)
    other = Stack(published.small, make_image(published.small, "other"))
    skopeo(f"oci:{other.built.image.layout}", f"docker://{repository}:{TINY}")
    attach(other, repository, good, tmp_path)
    answer = verify(command, published, f"{repository}:{TINY}", keys)
    assert answer.code == 1
    assert "doubt: certificate: it is about another digest" in answer.out


def signed_again(
    stack: Stack, repository: Repository, keys: Keys, tmp_path: Path, number: int, change: Callable[[Any], None]
) -> None:
    """Change a statement and sign it with the right key: anyone with it may say anything."""
    envelopes = there(stack, repository)
    statement = envelopes[number].statement
    change(statement)
    envelopes[number] = signing.sign((json.dumps(statement, indent=2) + "\n").encode(), str(keys.private), tmp_path)
    attach(stack, repository, envelopes, tmp_path)


def _two_subjects(statement: Any) -> None:
    statement["subject"].append({"name": "another", "digest": {"sha256": "1" * 64}})


def _failed(statement: Any) -> None:
    statement["predicate"]["result"] = "FAILED"


def _unknown_key(statement: Any) -> None:
    statement["predicate"]["mood"] = "good"


def _another_lock(statement: Any) -> None:
    statement["predicate"]["configuration"][0]["digest"]["sha256"] = "2" * 64


def _without_dates(statement: Any) -> None:
    del statement["predicate"]["issued"], statement["predicate"]["expires"]


def _bill_of_another_lock(statement: Any) -> None:
    (locked,) = [entry for entry in statement["predicate"]["metadata"]["properties"] if entry["name"] == "vetted:lock"]
    locked["value"] = "sha256:" + "2" * 64


def _bill_of_nothing(statement: Any) -> None:
    statement["predicate"] = {"components": 7}


def _another_stack(statement: Any) -> None:
    statement["predicate"]["buildDefinition"]["externalParameters"]["stack"] = "../../etc"


def _no_parameters(statement: Any) -> None:
    statement["predicate"]["buildDefinition"] = []


@pytest.mark.parametrize(
    ("number", "change", "message"),
    [
        (0, _two_subjects, "it is about another digest"),
        (0, _failed, "it is the report of a run that failed"),
        (0, _unknown_key, "a certificate is signed, but cannot be read"),
        (0, _another_lock, "it was earned with another lock"),
        (0, _without_dates, "it has no expiry date: certify again"),
        (1, _bill_of_another_lock, f"the bill of materials is of lock sha256:{'2' * 64}, the provenance of"),
        (1, _bill_of_nothing, "was not made by Vetted"),
        (2, _another_stack, "this project has no stack '../../etc'"),
        (2, _no_parameters, "was not made by Vetted"),
    ],
)
def test_what_is_signed_and_wrong_is_in_doubt(
    command: Command, published: Stack, repository: Repository, keys: Keys, tmp_path: Path, number: int,
    change: Callable[[Any], None], message: str,
) -> None:  # fmt: skip
    signed_again(published, repository, keys, tmp_path, number, change)
    answer = verify(command, published, f"{repository}:{TINY}", keys)
    assert answer.code == 1
    assert message in answer.out


# --- what has become of it since -----------------------------------------------------------------------------------


def test_an_expired_certificate(
    command: Command, published: Stack, repository: Repository, keys: Keys, tmp_path: Path
) -> None:
    def change(statement: Any) -> None:
        statement["predicate"] |= {"issued": "2025-01-01", "expires": "2025-04-01"}

    signed_again(published, repository, keys, tmp_path, 0, change)
    answer = verify(command, published, f"{repository}:{TINY}", keys)
    assert answer.code == 1
    assert "doubt: it expired on 2025-04-01: certify again" in answer.out


def test_an_advisory_of_later_withdraws_what_it_covers(
    command: Command, published: Stack, repository: Repository, keys: Keys
) -> None:
    later = certificate.today() + datetime.timedelta(days=1)
    advise(published.small, later, versions=">=2")
    assert verify(command, published, f"{repository}:{TINY}", keys).code == 0
    advise(published.small, later)
    answer = verify(command, published, f"{repository}:{TINY}", keys)
    assert answer.code == 1
    assert f"doubt: withdrawn by VETTED-9001 of {later}: Tiny 1.0 greets nobody" in answer.out
    assert "the way out: tiny-lib>=2" in answer.out


def test_a_suite_or_lock_of_later_is_in_doubt(
    command: Command, published: Stack, repository: Repository, keys: Keys
) -> None:
    published.small.suite("# a later suite\n")
    answer = verify(command, published, f"{repository}:{TINY}", keys)
    assert answer.code == 1
    assert "doubt: it was earned with another suite\n         expected sha256:" in answer.out
    published.small.edit("lock.toml", "1700000000", "1700000001")
    assert (
        "built from another lock of tiny than this project's"
        in verify(command, published, f"{repository}:{TINY}", keys).out
    )


def test_a_project_that_has_not_the_stack_cannot_tell(
    command: Command, published: Stack, repository: Repository, keys: Keys
) -> None:
    folder = published.small.file("stack.toml").parent
    folder.rename(folder.with_name("other"))
    answer = verify(command, published, f"{repository}:{TINY}", keys)
    assert answer.code == 1
    assert "doubt: this project has no stack 'tiny'" in answer.out


def test_hardware_is_asked_for_by_whole_words(
    command: Command, certified: Stack, repository: Repository, keys: Keys
) -> None:
    on_another_machine(certificate.path(certified.small.project, TINY, "cpu", "docker"))
    publish(command, certified, repository, keys)
    for hardware, code in (("9754", 0), ("amd epyc", 0), ("128", 0), ("975", 1), ("7763", 1), ("cores", 0), (".*", 2)):
        answer = verify(command, certified, f"{repository}:{TINY}", keys, "--hardware", hardware)
        assert answer.code == code, hardware
        if code == 1:
            assert f"doubt: no certificate was earned on {hardware}, only on: AMD EPYC 9754, 128 cores" in answer.out
