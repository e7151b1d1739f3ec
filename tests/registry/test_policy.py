"""One policy, and all who ask it: `vetted verify`, cosign with Rego, policy-controller's Rego, Kyverno's conditions."""

from __future__ import annotations

import base64
import dataclasses
import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from builder.base import machine
from builder.certify import certificate
from builder.certify.certificate import Measurement, ProbeResult, Statement
from builder.image import oci
from builder.publish import attached, registry, signing
from builder.publish.policy import manifests, policyfile, rego, rule
from builder.publish.policy.rule import Rule, Withdrawal
from builder.publish.reference import Repository
from builder.publish.signing import Envelope
from tests import parts
from tests.attacks.test_registry import FORGERIES, forge
from tests.conftest import GOOD_RUN, TINY, Small, runner
from tests.registry import opa
from tests.registry.conftest import Keys, Stack, make_image, publish
from tests.registry.statements import BAD, DAY, GOOD, resource
from tests.registry.test_documents import by_name
from tests.registry.test_verify import changed, there
from tests.unit.conftest import Command

ENGINES = ("OPA", "rego-cpp")
COMPLIANT = [{"result": True}]
LOSS = {"name": "loss", "unit": "", "bound": {"at_most": 0.5}, "why": "it is", "headline": True}
POLICY = f"""\
signed_by = ["cosign.pub"]
images = ["registry.example.org/team/vetted"]
hardware = ["H200", "{{cpu}}"]
device = "cpu"
withdrawn = ["sha256:{"8" * 64}"]
"""


@pytest.fixture
def stack(small: Small, command: Command, repository: Repository, keys: Keys) -> Stack:
    """The small stack with a number in its suite, published, and a policy beside it."""
    (small.project.smoke / "__main__.py").write_text(runner(LOSS) + GOOD_RUN)
    loss = Measurement.model_validate({**LOSS, "value": 0.1})
    passed = ProbeResult(name="alpha", outcome="passed", matters="it does", measurements=[loss])
    stack = Stack(small, make_image(small))
    small.issue("docker", subject=stack.image, probes=[passed, passed.model_copy(update={"name": "beta"})])
    cpu = machine.hardware("cpu").name.split()[0]
    (small.root / "policy.toml").write_text(POLICY.format(cpu=cpu))
    (small.root / "cosign.pub").write_bytes(keys.public.read_bytes())
    answer = publish(command, stack, repository, keys)
    assert answer.code == 0, answer.err
    return stack


@pytest.fixture
def resolved(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> Rule:
    """The rule, as it would be with an earlier suite, and with advisories against two earlier locks."""
    make = rule.of

    def of(*arguments: Any) -> Rule:
        policy = make(*arguments)
        later = Withdrawal("a" * 64, "VETTED-9002", str(certificate.today() + 365 * DAY), ("beta",))
        withdrawals = (Withdrawal("9" * 64, "VETTED-9001"), later)
        return dataclasses.replace(policy, suites=("4" * 64, *policy.suites), withdrawals=withdrawals)

    monkeypatch.setattr(rule, "of", of)
    path = stack.root / "policy.toml"
    return rule.of(stack.small.project, policyfile.read(path), path.parent, stack.small.scratch())


def good(stack: Stack) -> Any:
    """The certificate that was published."""
    return json.loads(certificate.path(stack.small.project, TINY, "cpu", "docker").read_text())


def written(statement: Any) -> bytes:
    return (json.dumps(statement, indent=2) + "\n").encode()


def attach(stack: Stack, repository: Repository, envelopes: list[Envelope], tmp_path: Path) -> None:
    """Put these statements on the image, in place of what is there."""
    layout = shutil.copytree(stack.built.image.layout, tmp_path / f"attached-{len(list(tmp_path.iterdir()))}")
    attached.add(layout, stack.built.image, envelopes)
    registry.push(repository, layout, str(oci.descriptors(layout)[-1]["digest"]), attached.tag(stack.image))


def cosign(stack: Stack, repository: Repository, keys: Keys, *options: str) -> subprocess.CompletedProcess[str]:
    argv = [
        "cosign", "verify-attestation", "--key", str(keys.public), "--insecure-ignore-tlog",
        "--allow-insecure-registry", "--type", certificate.PREDICATE, *options, by_name(repository, stack.image),
    ]  # fmt: skip
    return subprocess.run(argv, capture_output=True, text=True, stdin=subprocess.DEVNULL, check=False)


def payloads(printed: str) -> list[Any]:
    """The statements that cosign prints, an envelope a line."""
    envelopes = [json.loads(line) for line in printed.splitlines() if line.startswith("{")]
    return [json.loads(base64.b64decode(envelope["payload"])) for envelope in envelopes]


@pytest.fixture(scope="module")
def opa_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return opa.installed(tmp_path_factory.mktemp("opa"))


def evaluated(resolved: Rule, statements: list[Any], opa_folder: Path) -> list[dict[str, Any]]:
    """What the engines of the three clients make of each statement: Rego by two of them."""
    request = {
        "cosign": rego.render(resolved, "cosign"),
        "policy-controller": rego.render(resolved, "policy-controller"),
        "kyverno": list(manifests.conditions(resolved)),
        "statements": statements,
    }
    argv = [machine.uv_binary(), "run", "--quiet", "--no-project", "--with=regopy==1.5.2", "--with=jmespath==1.1.0"]
    script = Path(__file__).with_name("engines.py")
    done = subprocess.run(
        [*argv, "python", str(script)], input=json.dumps(request), env={**os.environ, "PYTHONPATH": str(opa_folder)},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    answers: list[dict[str, Any]] = json.loads(done.stdout)
    return answers


def test_all_who_ask_give_the_same_answer(
    command: Command, stack: Stack, repository: Repository, keys: Keys, other_keys: Keys, resolved: Rule,
    tmp_path: Path, opa_folder: Path,
) -> None:  # fmt: skip
    """Nothing that is good is refused, and all that is forged, failed, expired or mismatched."""
    others = [envelope for envelope in there(stack, repository) if envelope.predicate_type != certificate.PREDICATE]
    envelopes: dict[str, Envelope] = {}
    for name, change in {**GOOD, **BAD}.items():
        statement = good(stack)
        change(statement)
        envelopes[name] = signing.sign(written(statement), str(keys.private), tmp_path)
    original = envelopes["as it was issued"]
    envelopes["changed after it was signed"] = changed(original)
    envelopes["signed by another key"] = signing.sign(original.payload, str(other_keys.private), tmp_path)

    verified, printed = {}, {}
    for name, envelope in envelopes.items():
        attach(stack, repository, [envelope, *others], tmp_path)
        answer = command(stack.root, "verify", f"{repository}@{stack.image}", "--policy", "policy.toml")
        verified[name] = (answer.code == 0, answer.out)
        done = cosign(stack, repository, keys)
        printed[name] = payloads(done.stdout) if done.returncode == 0 else []
    statements = [(name, statement) for name, listed in printed.items() for statement in listed]
    answers = evaluated(resolved, [statement for _, statement in statements], opa_folder)
    rules_of = dict(zip((name for name, _ in statements), answers, strict=True))

    wrong = {}
    for name in envelopes:
        rules = rules_of.get(name)
        kinds = {
            "verify": verified[name][0],
            **{f"cosign, {engine}": bool(rules and rules["cosign"][engine] is True) for engine in ENGINES},
            **{
                f"policy-controller, {engine}": bool(rules and rules["policy-controller"][engine] == COMPLIANT)
                for engine in ENGINES
            },
            "kyverno": bool(rules and rules["kyverno"]),
        }
        if name == "two subjects":  # Kyverno's conditions see the predicate alone
            assert kinds.pop("kyverno")
        if set(kinds.values()) != {name in GOOD}:
            wrong[name] = (kinds, verified[name][1], rules)
    assert not wrong, json.dumps(wrong, indent=1)
    assert len(BAD) + 2 >= 20 and len(printed) == len(envelopes)
    # Of what the key signed, all but two are about the image: those cosign itself refuses.
    refused_by_cosign = {name for name, listed in printed.items() if not listed}
    assert {"another digest", "changed after it was signed", "signed by another key"} <= refused_by_cosign
    assert len(refused_by_cosign) <= 5


def test_a_policy_for_gpus_refuses_a_certificate_that_was_earned_without(
    stack: Stack, resolved: Rule, opa_folder: Path
) -> None:
    """OPA takes calls out of a negation: what they are undefined for would end the rule, and no doubt would be left."""
    without, none, some = good(stack), good(stack), good(stack)
    resource(none, "hardware")["annotations"]["gpus"] = []
    resource(some, "hardware")["annotations"].update(gpus=["H200"], driver="580")
    answers = evaluated(dataclasses.replace(resolved, device="cuda"), [without, none, some], opa_folder)
    assert [answer["cosign"]["OPA"] for answer in answers] == [False, False, True]
    assert [answer["cosign"]["rego-cpp"] for answer in answers] == [False, False, True]
    subjectless = good(stack)
    del subjectless["subject"]
    (answer,) = evaluated(resolved, [subjectless], opa_folder)
    assert answer["cosign"] == dict.fromkeys(ENGINES, False)


@pytest.mark.parametrize("how", FORGERIES)
def test_an_envelope_that_reads_in_two_ways_is_refused(
    command: Command, stack: Stack, repository: Repository, tmp_path: Path, how: str
) -> None:
    forge(stack, repository, tmp_path / "forged", how)
    answer = command(stack.root, "verify", f"{repository}@{stack.image}", "--policy", "policy.toml")
    assert answer.code == 1, answer.out


def test_a_certificate_of_an_earlier_lock_may_run(
    command: Command, stack: Stack, repository: Repository, keys: Keys
) -> None:
    """The clone has moved on since the image was published: `verify --key` doubts it, the policy does not."""
    reference = f"{repository}@{stack.image}"
    stack.small.edit("lock.toml", "1700000000", "1700000001")
    answer = command(stack.root, "verify", reference, "--key", str(keys.public))
    assert answer.code == 1 and "another lock" in answer.out
    answer = command(stack.root, "verify", reference, "--policy", "policy.toml")
    assert answer.code == 0, answer.out


def test_one_good_certificate_is_enough_for_verify_and_not_for_cosign(
    command: Command, stack: Stack, repository: Repository, keys: Keys, resolved: Rule, tmp_path: Path, opa_folder: Path
) -> None:
    statement = good(stack)
    BAD["other hardware"](statement)
    elsewhere = signing.sign(written(statement), str(keys.private), tmp_path)
    attach(stack, repository, [*there(stack, repository), elsewhere], tmp_path)
    answer = command(stack.root, "verify", f"{repository}@{stack.image}", "--policy", "policy.toml")
    assert answer.code == 0, answer.out
    statements = payloads(cosign(stack, repository, keys).stdout)
    answers = [answer["cosign"] for answer in evaluated(resolved, statements, opa_folder)]
    assert answers == [dict.fromkeys(ENGINES, True), dict.fromkeys(ENGINES, False)]


def test_both_engines_of_rego_say_the_same_of_every_statement(stack: Stack, resolved: Rule, opa_folder: Path) -> None:
    """Also of those that cosign itself refuses, and with the same reasons."""
    statements = []
    for change in {**GOOD, **BAD}.values():
        statements.append(good(stack))
        change(statements[-1])
    answers = evaluated(resolved, statements, opa_folder)
    for name, answer in zip({**GOOD, **BAD}, answers, strict=True):
        for program in ("cosign", "policy-controller"):
            assert answer[program]["OPA"] == answer[program]["rego-cpp"], name
        if name != "another digest":  # which a signature's reader compares, and Rego does not see
            assert answer["cosign"]["OPA"] is (name in GOOD), name


def test_cosign_itself_evaluates_the_rego(
    command: Command, stack: Stack, repository: Repository, keys: Keys, tmp_path: Path
) -> None:
    assert command(stack.root, "policy", "policy.toml", "--output", str(tmp_path / "rules")).code == 0
    done = cosign(stack, repository, keys, "--policy", str(tmp_path / "rules" / "cosign.rego"))
    built_in = "expected .cue" not in done.stderr
    parts.need(
        "Rego in cosign", built_in, how="Debian builds it without; v2.5.0 of sigstore/cosign has it", in_ci=False
    )
    assert done.returncode == 0, done.stderr


MODEL = """
import sys, yaml
from cloudcoil.models.kyverno.v1 import ClusterPolicy
document = yaml.safe_load(sys.stdin)
model = ClusterPolicy.model_validate(document)
assert model.model_dump(mode="json", by_alias=True, exclude_unset=True) == document
"""


def test_kyverno_knows_every_key_of_its_rule(resolved: Rule) -> None:
    argv = [machine.uv_binary(), "run", "--quiet", "--no-project", "--with=cloudcoil-models-kyverno==1.13.4.0"]
    for text, code in ((manifests.kyverno(resolved), 0), (manifests.kyverno(resolved).replace("rekor:", "recor:"), 1)):
        done = subprocess.run(
            [*argv, "--with=pyyaml", "python", "-c", MODEL], input=text, capture_output=True, text=True, check=False
        )
        assert done.returncode == code, done.stderr


def test_the_rule_judges_a_statement_as_verify_does(resolved: Rule, stack: Stack) -> None:
    assert yaml.safe_load(manifests.cluster_image_policy(resolved))["spec"]["authorities"][0]["key"]["data"]
    assert resolved.doubts(Statement.model_validate(good(stack)), certificate.today()) == []
