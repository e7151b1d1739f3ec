"""One command for everything that is certain."""

from __future__ import annotations

import random

import pytest

from doctor.answer import commands, diagnose, nearest, outcome, report, together
from doctor.answer.shell import Shell
from doctor.answer.together import Together
from doctor.base import versions
from doctor.case import Case
from doctor.finding import Finding
from tests.unit.doctor.kit import KNOWLEDGE, reported

SHELL = Shell(doctor="doctor")
# TRL scores the wrong tokens beside this Transformers, which needs a later Accelerate; this torch knows no NumPy 2.
SEVERAL = {"trl": "0.14.0", "transformers": "4.52.4", "accelerate": "1.2.0", "torch": "2.2.2", "numpy": "2.0.2"}


def answer(case: Case) -> tuple[list[Finding], Together | None]:
    findings = diagnose.findings(case)
    joint = together.find(case, findings, SHELL)
    commands.add(case, findings, SHELL)
    return findings, joint


def fixed(case: Case) -> Together:
    joint = answer(case)[1]
    assert joint is not None
    return joint


def test_one_command_mends_all_that_is_certain() -> None:
    joint = fixed(reported(SEVERAL))
    assert joint.command == "uv pip install 'numpy<2' 'transformers<4.52'"
    assert [finding.rule for finding in joint.fixes] == ["VETTED-0001", "VETTED-0068", "VETTED-0156"]
    assert [(pin.package, [finding.rule for finding in pin.fixes]) for pin in joint.pins] == [
        ("numpy", ["VETTED-0156"]), ("transformers", ["VETTED-0001", "VETTED-0068"]),
    ]  # fmt: skip
    assert joint.left == []


def test_the_command_comes_first_and_no_finding_has_another() -> None:
    case = reported(SEVERAL)
    findings, joint = answer(case)
    text = report.text(case, findings, None, joint)
    assert joint is not None
    assert text.count("$ ") == 1 and f"   $ {joint.command}\n" in text
    assert text.index("This command fixes 1, 2 and 3 together:") < text.index("$ ") < text.index("1. TRL 0.14.0")
    assert "transformers     4.52.4           -> <4.52                fixes 1 and 2" in text
    assert report.text(case, findings, None, joint, everything=True).count("$ ") == 4
    assert report.as_json(case, findings, None, joint)["together"] == {
        "command": joint.command, "fixes": ["VETTED-0001", "VETTED-0068", "VETTED-0156"], "does_not_fix": [],
        "changes": [
            {"package": "numpy", "installed": "2.0.2", "required": "<2", "fixes": ["VETTED-0156"]},
            {"package": "transformers", "installed": "4.52.4", "required": "<4.52",
             "fixes": ["VETTED-0001", "VETTED-0068"]},
        ],
    }  # fmt: skip


def test_what_is_apart_from_the_error_is_mended_with_it() -> None:
    case = reported(SEVERAL, "Traceback (most recent call last):\nRuntimeError: Numpy is not available")
    findings, joint = answer(case)
    assert joint is not None
    assert [finding.rule for finding in joint.fixes] == ["VETTED-0156", "VETTED-0001"]
    text = report.text(case, findings, None, joint)
    assert "fixes 1 and VETTED-0001 together" in text
    assert "Apart from this error, for sure (the command above fixes it)" in text


def test_a_single_finding_keeps_its_own_command() -> None:
    assert answer(reported({"trl": "0.14.0", "transformers": "4.52.4"}))[1] is None
    assert answer(reported({"trl": "1.16.0", "transformers": "5.17.0"}))[1] is None


def test_what_contradicts_it_is_named_and_the_nearest_stack_told_in_full() -> None:
    """vLLM demands one torch, and TRL's vLLM another: whatever the rest, torch is one of them."""
    case = reported(
        {"vllm": "0.11.0", "torch": "2.9.0", "torchvision": "0.23.0", "transformers": "4.57.0", "trl": "0.15.2"},
        "Detected that vllm was built for torch 2.9",
    )
    findings = [
        Finding(rule="first", title="first", packages={"torch": "2.9.0"}, severity="crash", confidence="certain",
                evidence=[], remedy=["torch<2.9"], ways=[{"torch": "<2.9,>=2.8"}]),
        Finding(rule="second", title="second", packages={"torch": "2.9.0"}, severity="crash", confidence="certain",
                evidence=[], remedy=["torch>=2.10"], ways=[{"torch": ">=2.10"}]),
    ]  # fmt: skip
    joint = together.find(case, findings, SHELL)
    commands.add(case, findings, SHELL)
    assert joint is not None
    assert ([finding.rule for finding in joint.fixes], [finding.rule for finding in joint.left]) == (
        ["first"], ["second"],
    )  # fmt: skip
    stack = nearest.find(case, SHELL)
    text = report.text(case, findings, stack, joint)
    assert "It does not fix 2: no known releases of these packages fix all of it." in text
    assert stack is not None and stack.commands[-1] in text


def test_what_a_release_needs_moves_with_it() -> None:
    packages = {"trl": "0.15.2", "transformers": "4.48.3", "deepspeed": "0.19.8"}
    error = "The size of tensor a (13) must match the size of tensor b (14) at non-singleton dimension 2"
    joint = fixed(reported(packages, error))
    assert joint.command == "uv pip install 'transformers>=4.55.0,<4.56' 'trl>=0.22.0,<0.23'"
    assert [pin.fixes for pin in joint.pins if pin.package == "transformers"] == [[]]  # the others need it


def test_a_pin_is_for_the_python_of_the_environment() -> None:
    case = reported(SEVERAL)
    case.environment.executable = "/opt/my venv/bin/python"
    assert fixed(case).command == "uv pip install --python '/opt/my venv/bin/python' 'numpy<2' 'transformers<4.52'"


@pytest.mark.parametrize("seed", range(12))
def test_nothing_certain_is_left_and_nothing_new_is_brought(seed: int) -> None:
    """Environments of random releases: the doctor is asked again about what the command would install."""
    choose = random.Random(seed)
    packages = {}
    for name in ("trl", "transformers", "vllm", "torch", "peft", "accelerate", "deepspeed", "datasets", "numpy"):
        releases = [release for release in sorted(KNOWLEDGE.requires(name)) if "rc" not in release]
        if releases and choose.random() < 0.8:
            packages[name] = choose.choice(releases)
    case = reported(packages)
    findings, joint = answer(case)
    if joint is None:
        return
    after = outcome.after(case, {pin.package: pin.range_ for pin in joint.pins}).environment.packages
    remaining = {key(finding) for finding in diagnose.findings(reported({name: after[name].version for name in after}))
             if finding.confidence == "certain"}  # fmt: skip
    assert not remaining & {key(finding) for finding in joint.fixes}
    assert remaining <= {key(finding) for finding in findings}
    assert all(versions.specifiers(pin.range_) is not None for pin in joint.pins)


def key(finding: Finding) -> tuple[str, ...]:
    return (finding.rule, *sorted(finding.packages))


def test_the_package_that_does_not_fit_the_rest_moves_itself() -> None:
    """vLLM 0.14.0 needs another torch than the one that everything else here has."""
    packages = {"vllm": "0.14.0", "torch": "2.10.0", "torchvision": "0.25.0", "trl": "1.13.0", "numpy": "2.2.6",
                "transformers": "4.57.6", "tokenizers": "0.21.0"}  # fmt: skip
    joint = fixed(reported(packages))
    assert [pin.package for pin in joint.pins] == ["tokenizers", "vllm"] and joint.left == []
    assert "'vllm>=0.17.0,<=0.19.1'" in joint.command


def test_what_another_move_mends_needs_no_pin() -> None:
    """torchvision fits once torch is what the others need."""
    packages = {"vllm": "0.19.1", "torch": "2.13.0", "torchvision": "0.25.0", "trl": "1.13.0", "transformers": "4.57.6"}
    joint = fixed(reported(packages))
    assert [pin.package for pin in joint.pins] == ["torch"] and joint.left == []
    assert {"torch-family", "requires-dist"} <= {finding.rule for finding in joint.fixes}


def test_what_another_move_mends_is_named_there() -> None:
    """vLLM moves for torch, and what it needs of NumPy goes with it: its line says both."""
    joint = fixed(reported({"torch": "2.6.0", "vllm": "0.7.3", "numpy": "2.0.2"}))
    named = {id(finding) for pin in joint.pins for finding in pin.fixes}
    assert [finding.title for finding in joint.fixes if id(finding) not in named] == []
