"""The policy of a project: what it resolves to, what it writes, and what it says of a file that is wrong."""

from __future__ import annotations

import datetime
import json
import subprocess
import tarfile
from pathlib import Path

import pytest
import yaml

from builder.base import sources
from builder.certify import certificate
from builder.certify.certificate import LIFETIME
from builder.publish.policy import history, policyfile, rule
from builder.publish.policy.rule import Rule
from tests import parts
from tests.conftest import GOOD_RUN, TINY, Small
from tests.registry.conftest import advise
from tests.unit.conftest import Command
from tests.unit.publish import keyfiles

KEY = keyfiles.pem(keyfiles.ELLIPTIC)


def write(small: Small, text: str = "") -> Path:
    (small.root / "cosign.pub").write_text(KEY)
    path = small.root / "policy.toml"
    path.write_text(f'signed_by = ["cosign.pub"]\n{text}')
    return path


def resolve(small: Small, text: str = "") -> Rule:
    path = write(small, text)
    return rule.of(small.project, policyfile.read(path), path.parent, small.scratch())


def git(small: Small, *argv: str, day: datetime.date | None = None) -> str:
    date = f"{day or certificate.today()}T12:00:00Z"
    env = {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date, "HOME": str(small.root), "PATH": "/usr/bin:/bin"}
    who = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.org"]
    return subprocess.run(
        [parts.git(), *who, *argv], cwd=small.root, env=env, capture_output=True, text=True, check=True
    ).stdout.strip()


def commit(small: Small, day: datetime.date | None = None) -> str:
    git(small, "add", "lockfiles", "smoke", "images", day=day)
    git(small, "commit", "--quiet", "--message", "all", day=day)
    return git(small, "rev-parse", "HEAD")


def test_without_history_it_is_the_suite_of_today(small: Small) -> None:
    assert resolve(small).suites == (sources.digest(small.project.smoke).removeprefix("sha256:"),)


def test_this_suite_or_newer_are_those_of_the_commits_since(small: Small) -> None:
    git(small, "init", "--quiet")
    suites, commits = [], []
    for number in range(3):
        small.suite(f"{GOOD_RUN}# {number}\n")
        suites.append(sources.digest(small.project.smoke).removeprefix("sha256:"))
        commits.append(commit(small))
    assert resolve(small, f'suite_since = "{commits[1]}"').suites == tuple(suites[1:])
    git(small, "tag", "v1", commits[0])
    assert resolve(small, 'suite_since = "v1"').suites == tuple(suites)


def test_earlier_commits_are_unpacked_by_a_python_without_filters(
    small: Small, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Debian 12 has Python 3.11.2, whose tarfile knows none."""

    def of_old(self: tarfile.TarFile, path: str = ".", members: object = None, *, numeric_owner: bool = False) -> None:
        raise AssertionError(f"{self.name!r} is unpacked to {path} without a filter: {members}, {numeric_owner}")

    monkeypatch.setattr(tarfile.TarFile, "extractall", of_old)
    git(small, "init", "--quiet")
    digest = sources.digest(small.project.smoke).removeprefix("sha256:")
    assert resolve(small, f'suite_since = "{commit(small)}"').suites == (digest,)


def test_a_commit_that_is_not_there_ends_with_3(small: Small, command: Command) -> None:
    write(small, 'suite_since = "--output=x"')
    answer = command(small.root, "policy", "policy.toml", "--output", "rules")
    assert answer.code == 3
    assert "this clone has no commit --output=x" in answer.err and "git fetch --unshallow" in answer.err
    assert not (small.root / "x").exists()


def test_an_advisory_withdraws_the_locks_of_earlier_commits_too(small: Small) -> None:
    git(small, "init", "--quiet")
    locks = []
    for day in (300, 100, 10, 0):
        small.edit("lock.toml", f"epoch = {small.lock.epoch}", f"epoch = {small.lock.epoch + 1}")
        locks.append(small.lock.digest.removeprefix("sha256:"))
        commit(small, certificate.today() - datetime.timedelta(days=day))
    assert {lock.digest.removeprefix("sha256:") for lock in history.locks(small.project, small.scratch())} == {
        *locks[1:]
    }
    advise(small, certificate.today() - datetime.timedelta(days=400), probe="beta")
    withdrawals = resolve(small).withdrawals
    assert {(entry.lock, entry.advisory, entry.published) for entry in withdrawals} == {
        (lock, "VETTED-9001", "") for lock in locks[1:]
    }


def test_a_clone_without_the_history_of_these_days_is_refused(small: Small, command: Command, tmp_path: Path) -> None:
    """Rules from it would admit what an advisory withdraws. CI makes such clones."""
    git(small, "init", "--quiet")
    for day in (10, 0):
        small.edit("lock.toml", f"epoch = {small.lock.epoch}", f"epoch = {small.lock.epoch + 1}")
        git(small, "add", ".", day=certificate.today() - datetime.timedelta(days=day))
        git(small, "commit", "--quiet", "--message", "all", day=certificate.today() - datetime.timedelta(days=day))
    shallow = tmp_path / "shallow"
    git(small, "clone", "--quiet", "--depth=1", f"file://{small.root}", str(shallow))
    (shallow / "policy.toml").write_text(write(small).read_text())
    (shallow / "cosign.pub").write_text(KEY)
    answer = command(shallow, "policy", "policy.toml", "--output", "rules")
    assert answer.code == 3
    assert "this clone is shallow" in answer.err and "git fetch --unshallow" in answer.err
    assert not (shallow / "rules").exists()


def test_a_copy_without_a_history_is_told_what_its_rules_lack(small: Small, command: Command) -> None:
    write(small)
    answer = command(small.root, "policy", "policy.toml", "--output", "rules")
    assert answer.code == 0
    assert "can withdraw only today's locks" in answer.err


@pytest.mark.parametrize(("days", "counts"), [(0, True), (LIFETIME.days - 1, True), (LIFETIME.days, False)])
def test_an_advisory_in_some_context_counts_while_a_certificate_from_before_it_may_live(
    small: Small, days: int, counts: bool
) -> None:
    published = certificate.today() - datetime.timedelta(days=days)
    advise(small, published, probe="beta", context="[affected.context]\nzero_stage = [3]\n")
    expected = {(small.lock.digest.removeprefix("sha256:"), str(published), ("beta",))} if counts else set()
    assert {(entry.lock, entry.published, entry.probes) for entry in resolve(small).withdrawals} == expected


def test_the_rules_are_written_and_checked(small: Small, command: Command) -> None:
    write(small, 'images = ["registry.example.org/team/vetted"]')
    argv = ("policy", "policy.toml", "--output", "rules")
    assert command(small.root, *argv, "--check").code == 1
    assert not (small.root / "rules").exists()
    assert "cosign.rego: written" in command(small.root, *argv).out
    assert command(small.root, *argv, "--check").code == 0
    names = {path.name for path in (small.root / "rules").iterdir()}
    assert names == {"cosign.rego", "policy-controller.yaml", "kyverno.yaml"}
    small.suite(GOOD_RUN + "# another\n")
    answer = command(small.root, *argv, "--check", "--json")
    assert (answer.code, set(answer.json["stale"])) == (1, names)


def test_a_policy_without_images_is_for_hosts_alone(small: Small, command: Command) -> None:
    write(small)
    answer = command(small.root, "policy", "policy.toml", "--output", "rules")
    assert answer.code == 0 and "there are no rules for a cluster" in answer.err
    assert [path.name for path in (small.root / "rules").iterdir()] == ["cosign.rego"]


def test_the_manifests_are_about_the_images_and_the_keys(small: Small, command: Command) -> None:
    write(small, 'images = ["registry.example.org:5000/team/vetted"]')
    command(small.root, "policy", "policy.toml", "--output", "rules")
    controller = yaml.safe_load((small.root / "rules" / "policy-controller.yaml").read_text())
    globs = ["registry.example.org:5000/team/vetted:*", "registry.example.org:5000/team/vetted@*"]
    assert [entry["glob"] for entry in controller["spec"]["images"]] == globs
    (authority,) = controller["spec"]["authorities"]
    assert authority["key"]["data"] == KEY
    (attestation,) = authority["attestations"]
    assert attestation["predicateType"] == certificate.PREDICATE
    assert attestation["policy"]["data"].splitlines()[1] == "package sigstore"
    kyverno = yaml.safe_load((small.root / "rules" / "kyverno.yaml").read_text())
    (verification,) = kyverno["spec"]["rules"][0]["verifyImages"]
    assert (verification["imageReferences"], verification["failureAction"]) == (globs, "Enforce")
    (entry,) = verification["attestations"][0]["attestors"][0]["entries"]
    assert entry["keys"]["publicKeys"] == KEY


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('hardwear = ["H200"]', "unknown key; did you mean `hardware`?"),
        ('hardware = ["H200|.*"]', "is not the name of a GPU or processor"),
        ('images = ["team/vetted"]', "is not HOST/PATH"),
        ('withdrawn = ["abc"]', "withdrawn[0]"),
        ('device = "tpu"', "`device`"),
        ("signed_by = []", "not TOML"),
    ],
)
def test_a_policy_that_is_wrong_ends_with_3(small: Small, command: Command, text: str, message: str) -> None:
    write(small, text)
    answer = command(small.root, "policy", "policy.toml", "--output", "rules")
    assert answer.code == 3
    assert message in answer.err and "policy.toml" in answer.err


def test_a_policy_or_key_that_is_not_there_ends_with_3(small: Small, command: Command) -> None:
    answer = command(small.root, "policy", "policy.toml", "--output", "rules")
    assert answer.code == 3 and "there is no policy policy.toml" in answer.err
    write(small)
    (small.root / "cosign.pub").unlink()
    answer = command(small.root, "verify", "registry.example.org/a/b:c", "--policy", "policy.toml")
    assert answer.code == 3 and "there is no public key" in answer.err


@pytest.mark.parametrize("option", [("--key", "cosign.pub"), ("--hardware", "H200")])
def test_keys_and_hardware_are_the_policys(small: Small, command: Command, option: tuple[str, str]) -> None:
    write(small)
    answer = command(small.root, "verify", "registry.example.org/a/b:c", "--policy", "policy.toml", *option)
    assert answer.code == 2 and "the policy names keys and hardware" in answer.err


def test_hardware_is_a_whole_word_in_any_case(small: Small) -> None:
    resolved = resolve(small, 'hardware = ["H20", "Xeon(R) w9-3495X"]')
    small.issue("docker", subject="sha256:" + "1" * 64)
    path = certificate.path(small.project, TINY, "cpu", "docker")
    for model, runs in (("NVIDIA H20", True), ("NVIDIA h20", True), ("NVIDIA H200", False), ("GH20", False),
                        ("Intel(R) Xeon(R) w9-3495X", True), ("Intel XeonR w9-3495X", False)):  # fmt: skip
        statement = json.loads(path.read_text())
        (hardware,) = [entry for entry in statement["predicate"]["configuration"] if entry["name"] == "hardware"]
        hardware["annotations"] = {"class": "x", "cpu": "x", "cores": 2, "gpus": [model], "driver": "580"}
        doubts = resolved.doubts(certificate.Statement.model_validate(statement), certificate.today())
        assert (doubts == []) is runs, (model, doubts)
