"""Publishing to a real registry: what is up afterwards, what is refused, and that a tag is never wrong."""

from __future__ import annotations

import datetime
import json
import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import zstandard
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from google.protobuf import json_format
from in_toto_attestation.predicates.provenance.v1 import provenance_pb2
from in_toto_attestation.v1 import statement as in_toto
from in_toto_attestation.v1 import statement_pb2

from builder import __version__
from builder.base import errors
from builder.base.project import sha256
from builder.certify import certificate
from builder.image import build, oci
from builder.image.origin import Origin, Tool
from builder.lock import lockfile
from builder.publish import attached, registry, signing
from builder.publish import publish as publishing
from builder.publish.reference import Repository
from tests.conftest import PATCH, TINY, Small, spawn
from tests.registry.conftest import Keys, Stack, advise, dated, publish, rewritten, skopeo, tags, tar, verify
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
    assert "no transparency log knows of it" in done.err


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
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(json.dumps(bill)) is None
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


def on_another_machine(path: Path) -> str:
    """Let a certificate say that it was earned on a larger machine."""
    hardware = "AMD EPYC 9754, 128 cores"

    def change(data: Any) -> None:
        (resource,) = [entry for entry in data["predicate"]["configuration"] if entry["name"] == "hardware"]
        resource["annotations"] = {"class": hardware, "cpu": "AMD EPYC 9754", "cores": 128}

    rewritten(path, change)
    return hardware


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
    assert "ignored an attestation of another kind: it is none of Vetted's" in answer.out


# --- refused, before anything is pushed ----------------------------------------------------------------------------


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
        (without_expiry, "it says no expiry: certify again"),
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


# --- broken off, and others at work --------------------------------------------------------------------------------


class BrokenOffError(Exception):
    """What a test throws to end a publish between two steps."""


def run(stack: Stack, repository: Repository, keys: Keys, report: Callable[[str], None]) -> publishing.Publication:
    small = stack.small
    return publishing.publish(
        small.project, small.lock, stack.built, repository, str(keys.private), small.scratch(), report
    )


STEPS = ["asking", "making and signing", "pushing", "attaching", "comparing", "moving"]


@pytest.mark.parametrize("step", STEPS)
def test_broken_off_before_any_step_the_tag_is_the_old_one_and_the_same_command_finishes(
    command: Command, certified: Stack, repository: Repository, keys: Keys, step: str
) -> None:
    assert publish(command, certified, repository, keys).code == 0
    new = certified.another("new")

    def report(what: str) -> None:
        if what.startswith(step):
            raise BrokenOffError

    with pytest.raises(BrokenOffError):
        run(new, repository, keys, report)
    assert tags(repository) == {TINY: certified.image, dated(): certified.image}
    assert publish(command, new, repository, keys).code == 0
    assert tags(repository) == {TINY: new.image, dated(): new.image}
    assert verify(command, new, f"{repository}:{TINY}", keys).code == 0


@pytest.mark.parametrize("name", [TINY, None])
def test_a_tag_that_somebody_else_moved_in_between_is_left_alone(
    command: Command, certified: Stack, repository: Repository, keys: Keys, name: str | None
) -> None:
    moved = name or dated()
    publish(command, certified, repository, keys)
    theirs = certified.another("theirs")
    skopeo(f"oci:{theirs.built.image.layout}", f"docker://{repository}:theirs")
    new = certified.another("new")

    def report(what: str) -> None:
        if what.startswith("moving"):
            skopeo(f"docker://{repository}:theirs", f"docker://{repository}:{moved}")

    with pytest.raises(errors.VettedError, match=rf"somebody else moved the tag {moved} meanwhile") as caught:
        run(new, repository, keys, report)
    assert caught.value.exit_code == 1
    assert caught.value.what.splitlines()[1:] == [f"it named  {certified.image}", f"it names  {theirs.image}"]
    expected = {"theirs": theirs.image, TINY: certified.image, dated(): certified.image, moved: theirs.image}
    assert tags(repository) == expected
    assert publish(command, new, repository, keys).code == 0
    assert tags(repository)[TINY] == new.image


def test_attestations_that_somebody_else_replaced_in_between_move_no_tag(
    command: Command, certified: Stack, repository: Repository, keys: Keys, tmp_path: Path
) -> None:
    publish(command, certified, repository, keys)
    new = certified.another("new")

    def report(what: str) -> None:
        if what.startswith("comparing"):
            digest = attached.write(new.built.image, [], tmp_path / "empty")
            registry.push(repository, tmp_path / "empty", digest, attached.tag(new.image))

    with pytest.raises(errors.VettedError, match="is not what is there now; no tag was moved"):
        run(new, repository, keys, report)
    assert tags(repository)[TINY] == certified.image


def test_killed_at_ten_random_moments_the_tag_is_never_wrong(
    command: Command, certified: Stack, repository: Repository, keys: Keys
) -> None:
    argv = ["-m", "builder", "publish", TINY, "--registry", str(repository), "--key", str(keys.private)]
    begin = time.monotonic()
    with spawn(argv, certified.root) as child:
        child.communicate()
    longest = time.monotonic() - begin
    assert registry.resolve(repository, TINY) == certified.image
    moments, good, broken_off = random.Random(0), {certified.image}, 0
    new = certified
    for part in range(10):
        before = registry.resolve(repository, TINY)
        new = certified.another(f"version {part}")
        good.add(new.image)
        with spawn(argv, certified.root) as child:
            time.sleep(longest * (part + moments.random()) / 10)
            child.send_signal(signal.SIGKILL)
        assert leftovers(certified.small) == []
        after = registry.resolve(repository, TINY)
        assert after in (before, new.image)
        broken_off += after == before
        answer = verify(command, new, f"{repository}:{TINY}", keys)
        assert answer.code == 0, answer.out
    assert broken_off > 0  # the first kills come before any request
    assert publish(command, new, repository, keys).code == 0
    assert tags(repository) == {TINY: new.image, dated(): new.image}


def leftovers(small: Small) -> list[str]:
    """Programs that work for this project still, after a moment in which their guards could end them."""
    for _ in range(100):
        lines = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and int(entry.name) != os.getpid():
                try:
                    line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
                except OSError:
                    continue
                if str(small.root) in line:
                    lines.append(line)
        if not lines:
            return []
        time.sleep(0.1)
    return lines


# --- secrets -------------------------------------------------------------------------------------------------------


def test_no_secret_stands_in_an_argument_an_answer_or_what_is_attached(
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
