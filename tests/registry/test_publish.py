"""Publishing to a real registry: what is there afterwards, and that no secret shows."""

from __future__ import annotations

import datetime
import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from google.protobuf import json_format
from in_toto_attestation.predicates.provenance.v1 import provenance_pb2
from in_toto_attestation.v1 import statement as in_toto
from in_toto_attestation.v1 import statement_pb2

from builder import __version__
from builder.base.project import sha256
from builder.certify import certificate
from builder.image import build, oci
from builder.image.origin import Origin, Tool
from builder.lock import lockfile
from builder.publish import attached, registry, signing
from builder.publish.reference import Repository
from tests import schemas
from tests.conftest import PATCH, TINY
from tests.registry.conftest import Keys, Stack, dated, on_another_machine, publish, tags, verify
from tests.unit.conftest import Command


def attachments(repository: Repository, image: str) -> dict[str, dict[str, Any]]:
    """The statements on an image, by what they are."""
    envelopes = attached.fetch(repository, image)
    return {attached.KINDS[envelope.predicate_type]: envelope.statement for envelope in envelopes}


def test_the_bytes_that_were_certified_are_those_in_the_registry(
    command: Command, certified: Stack, repository: Repository, keys: Keys
) -> None:
    done = publish(command, certified, repository, keys, "--json")
    assert done.code == 0, done.err
    assert (done.json["image"], done.json["changed"]) == (certified.image, True)
    assert tags(repository) == {TINY: certified.image, dated(): certified.image}
    layout = certified.built.image.layout
    assert registry.manifest(repository, TINY) == oci.checked(layout, certified.image)
    for layer in certified.built.image.layers:
        assert registry.blob(repository, layer.digest) == oci.checked(layout, layer.digest)


def test_for_people_it_says_what_is_where_and_that_no_log_knows(
    command: Command, certified: Stack, repository: Repository, keys: Keys
) -> None:
    done = publish(command, certified, repository, keys)
    assert done.code == 0
    assert f"{TINY}: published: {repository}:{TINY}" in done.out
    assert f"{repository}@{certified.image}" in done.out
    assert "it is in no transparency log" in done.err


def test_the_certificate_is_attached_word_for_word(
    command: Command, certified: Stack, repository: Repository, keys: Keys
) -> None:
    publish(command, certified, repository, keys)
    written = certificate.path(certified.small.project, TINY, "cpu", "docker").read_bytes()
    payloads = [envelope.payload for envelope in attached.fetch(repository, certified.image)]
    assert written in payloads
    assert len(payloads) == 4


def test_the_bill_of_materials_is_cyclonedx_and_holds_the_lock(
    command: Command, certified: Stack, repository: Repository, keys: Keys
) -> None:
    publish(command, certified, repository, keys)
    bill = attachments(repository, certified.image)["bill of materials"]["predicate"]
    assert schemas.bill_error(json.dumps(bill)) == ""
    lock = certified.small.lock
    by_url = {component["purl"]: component for component in bill["components"]}
    assert len(by_url) == len(lock.python) + len(lock.debian)
    distribution = by_url["pkg:pypi/tiny-lib@1.0"]
    assert distribution["hashes"] == [{"alg": "SHA-256", "content": lock.python[0].sha256}]
    assert distribution["licenses"] == [{"license": {"id": "Apache-2.0", "acknowledgement": "declared"}}]
    assert distribution["pedigree"]["patches"][0]["diff"]["text"]["content"] == certified.small.patch.read_text()
    assert PATCH in distribution["pedigree"]["notes"]
    package = by_url[f"pkg:deb/debian/bsdutils@{lock.debian[0].version.replace('+', '%2B')}?distro=bookworm"]
    assert package["licenses"] == [{"license": {"name": "GPL-2+", "acknowledgement": "declared"}}]


def test_the_provenance_is_slsa_and_names_every_input(
    command: Command, certified: Stack, repository: Repository, keys: Keys
) -> None:
    publish(command, certified, repository, keys)
    statement = attachments(repository, certified.image)["provenance"]
    in_toto.Statement.copy_from_pb(json_format.ParseDict(statement, statement_pb2.Statement())).validate()
    read = json_format.ParseDict(statement["predicate"], provenance_pb2.Provenance())
    assert read.build_definition.external_parameters["lock"] == certified.small.lock.digest
    assert dict(read.run_details.builder.version) == {"vetted": __version__, "buildkit": "v0"}
    named = {resource.name: resource.digest["sha256"] for resource in read.build_definition.resolved_dependencies}
    lock = certified.small.lock
    assert named == {
        f"images/{TINY}/Dockerfile": sha256(certified.small.project.dockerfile(TINY).read_bytes())[7:],
        PATCH: sha256(certified.small.patch.read_bytes())[7:],
        **{entry.name: entry.sha256 for entry in (*lock.python, *lock.build, *lock.debian)},
    }


def test_publishing_again_changes_nothing(
    command: Command, certified: Stack, repository: Repository, keys: Keys
) -> None:
    first = publish(command, certified, repository, keys, "--json").json
    again = publish(command, certified, repository, keys, "--json")
    assert (again.code, again.json["changed"]) == (0, False)
    assert again.json["attestations"] == first["attestations"]
    assert "is published already" in publish(command, certified, repository, keys).out


def test_the_same_image_from_another_commit_changes_nothing(
    command: Command, certified: Stack, repository: Repository, keys: Keys
) -> None:
    small, built = certified.small, certified.built
    tools = (Tool(name="uv", digest="sha256:" + "3" * 64),)
    for number, came in enumerate([Origin(commit="1" * 40, tools=tools), Origin(commit="2" * 40, tools=tools)]):
        build.put_record(small.project, small.lock, replace(built, origin=came), small.scratch())
        done = publish(command, certified, repository, keys, "--json")
        assert (done.code, done.json["changed"]) == (0, number == 0), done.err
        assert verify(command, certified, f"{repository}:{TINY}", keys).code == 0
    statement = attachments(repository, certified.image)["provenance"]
    in_toto.Statement.copy_from_pb(json_format.ParseDict(statement, statement_pb2.Statement())).validate()
    read = json_format.ParseDict(statement["predicate"], provenance_pb2.Provenance())
    assert dict(read.build_definition.resolved_dependencies[0].digest) == {"gitCommit": "1" * 40}
    assert [resource.name for resource in read.run_details.builder.builder_dependencies] == ["uv"]


def test_a_new_image_moves_the_tags_and_the_old_one_stays_verified(
    command: Command, certified: Stack, repository: Repository, keys: Keys
) -> None:
    publish(command, certified, repository, keys)
    new = certified.another("new")
    assert publish(command, new, repository, keys).code == 0
    assert tags(repository) == {TINY: new.image, dated(): new.image}
    assert verify(command, new, f"{repository}@{certified.image}", keys).code == 0


def test_a_renewed_certificate_takes_the_place_of_the_old_one(
    command: Command, certified: Stack, repository: Repository, keys: Keys
) -> None:
    yesterday = certificate.today() - datetime.timedelta(days=1)
    certified.small.issue("docker", subject=certified.image, day=yesterday)
    publish(command, certified, repository, keys)
    certified.small.issue("docker", subject=certified.image)
    assert publish(command, certified, repository, keys).code == 0
    (judged,) = verify(command, certified, f"{repository}:{TINY}", keys, "--json").json["certificates"]
    assert judged["issued"] == str(certificate.today())
    assert len(attached.fetch(repository, certified.image)) == 4


def test_certificates_of_other_hardware_stay_while_they_hold(
    command: Command, certified: Stack, repository: Repository, keys: Keys
) -> None:
    path = certificate.path(certified.small.project, TINY, "cpu", "docker")
    elsewhere = on_another_machine(path)
    publish(command, certified, repository, keys)
    certified.small.issue("docker", subject=certified.image)
    assert publish(command, certified, repository, keys).code == 0
    judged = verify(command, certified, f"{repository}:{TINY}", keys, "--json").json["certificates"]
    assert len(judged) == 2
    assert elsewhere in {entry["hardware"] for entry in judged}


def test_attestations_of_others_stay(
    command: Command, certified: Stack, repository: Repository, keys: Keys, other_keys: Keys, tmp_path: Path
) -> None:
    publish(command, certified, repository, keys)
    predicate = tmp_path / "scan.json"
    predicate.write_text("{}")
    subprocess.run(
        ["cosign", "attest", "--yes", "--tlog-upload=false", "--allow-insecure-registry", "--key", other_keys.private,
         "--type", "vuln", "--predicate", predicate, f"{repository}@{certified.image}"],
        check=True, capture_output=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert publish(command, certified, repository, keys).code == 0
    assert len(attached.fetch(repository, certified.image)) == 5
    answer = verify(command, certified, f"{repository}:{TINY}", keys)
    assert answer.code == 0
    assert "ignored an attestation of another kind: it is not Vetted's" in answer.out


def test_no_secret_is_in_an_argument_an_answer_or_a_statement(
    command: Command, certified: Stack, repository: Repository, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every program is started by way of a script that writes down what it was started with."""
    heard, folder = tmp_path / "heard", tmp_path / "bin"
    folder.mkdir()
    for tool in ("cosign", "oras"):
        real = subprocess.run(["which", tool], check=True, capture_output=True, text=True).stdout.strip()
        (folder / tool).write_text(f'#!/bin/sh\nprintf "%s\\n" "$0 $*" >> {heard}\nexec {real} "$@"\n')
        (folder / tool).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    secret = "swordfish-of-cosign"
    subprocess.run(
        ["cosign", "generate-key-pair"], cwd=tmp_path, env={**os.environ, "COSIGN_PASSWORD": secret}, check=True,
        capture_output=True, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    monkeypatch.setenv("COSIGN_PASSWORD", secret)
    own = Keys(tmp_path / "cosign.key", tmp_path / "cosign.pub")
    done = publish(command, certified, repository, own, "--json")
    assert done.code == 0
    arguments = heard.read_text()
    assert "sign-blob" in arguments and "cp" in arguments
    text = arguments + done.out + done.err
    text += json.dumps(attachments(repository, certified.image))
    for word in (secret, own.private.read_text().splitlines()[1]):
        assert word not in text
    state = [path.read_bytes() for path in certified.small.project.state.rglob("*") if path.is_file()]
    assert not any(secret.encode() in content for content in state)


def test_what_is_signed_is_dsse(certified: Stack, keys: Keys) -> None:
    envelope = signing.sign(b'{"predicateType": "x"}', str(keys.private), certified.small.scratch())
    assert signing.parse(envelope.raw) == envelope
    assert json.loads(envelope.raw)["payloadType"] == "application/vnd.in-toto+json"
    assert lockfile.load(certified.small.project, TINY).name == TINY
