"""Advisories against an environment, a run and an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from doctor.answer import commands, diagnose
from doctor.base import versions
from doctor.case import Case
from doctor.read import context, requirements
from doctor.read.context import RunContext
from tests.unit.doctor.kit import KNOWLEDGE, SILENT, first, install, of, only, reported, rules
from tests.unit.intent.test_advisories import LOGS


def test_versions_that_match_are_certain_and_say_why() -> None:
    finding = first(reported(SILENT))
    assert (finding.rule, finding.confidence, finding.severity) == ("VETTED-0001", "certain", "silent-wrong")
    assert finding.evidence[:2] == ["trl 0.14.0, affected ==0.14.0", "transformers 4.52.4, affected >=4.52.1"]


def test_what_depends_on_the_run_says_what_to_look_at_until_it_is_known() -> None:
    packages = {"trl": "1.9.0", "vllm": "0.25.1"}
    finding = only(reported(packages), "VETTED-0024")
    assert finding.confidence == "possible"
    assert finding.decide == ["vllm mode colocate", "vllm_enable_sleep_mode true"]
    run = context.of_options({"use_vllm": True, "vllm_mode": "colocate", "vllm_enable_sleep_mode": True})
    assert only(reported(packages, context=run), "VETTED-0024").confidence == "certain"
    off = context.of_options({"use_vllm": True, "vllm_mode": "colocate", "vllm_enable_sleep_mode": False})
    assert "VETTED-0024" not in rules(reported(packages, context=off))


def test_an_error_brings_its_cause_to_the_front_and_decides_what_was_open() -> None:
    error = "AttributeError: 'DeepSpeedZeRoOffload' object has no attribute '_register_hooks_recursively'"
    finding = first(reported({"trl": "0.9.6", "deepspeed": "0.16.9"}, error))
    assert (finding.rule, finding.confidence, finding.shown) == ("VETTED-0010", "certain", 2)


def test_an_error_alone_is_likely_and_a_version_outside_the_range_outweighs_it() -> None:
    error = "ImportError: cannot import name 'GuidedDecodingParams' from 'vllm.sampling_params'"
    assert first(reported({}, error)).confidence == "likely"
    assert "VETTED-0021" in rules(reported({}, error))
    assert "VETTED-0021" not in rules(reported({"trl": "1.0.0"}, error))


def test_what_is_not_installed_rules_out_only_where_everything_is_known() -> None:
    error = "AttributeError: 'DeepSpeedZeRoOffload' object has no attribute '_register_hooks_recursively'"
    assert "VETTED-0010" in rules(reported({"trl": "0.14.0"}, error))
    whole = requirements.of_lines("x", "trl==0.14.0 --hash=sha256:00")
    assert "VETTED-0010" not in rules(Case(whole, error=error, knowledge=KNOWLEDGE))


def test_what_is_only_inferred_is_never_certain() -> None:
    inferred = {entry["id"] for entry in KNOWLEDGE.advisories if entry["evidence"]["kind"] == "inferred"}
    assert inferred
    for entry in KNOWLEDGE.advisories:
        packages = {name: _inside(range_) for name, range_ in entry["affected"][0].get("packages", {}).items()}
        for finding in diagnose.findings(reported(packages)):
            assert finding.rule not in inferred or finding.confidence != "certain"


def _inside(range_: str) -> str:
    return next(version for version in versions.near(range_) if versions.allows(range_, version))


def test_a_text_that_speaks_of_hanging_brings_what_hangs_forward_and_makes_it_no_surer() -> None:
    packages = {"trl": "1.0.0", "vllm": "0.17.0", "peft": "0.18.0"}
    run = context.of_options({"use_vllm": True, "vllm_mode": "colocate"})
    speaking = reported(packages, "it is stuck after the first step", context=run)
    silent = reported(packages, "it ends after the first step", context=run)
    assert (first(speaking).rule, first(speaking).confidence) == ("VETTED-0036", "possible")
    assert only(silent, "VETTED-0036").confidence == "possible"


@pytest.mark.parametrize("log", [log for log, numbers in LOGS.items() if numbers])
def test_an_error_that_an_advisory_knows_brings_it_to_the_front(log: str) -> None:
    """From the error alone: no other rule speaks louder."""
    case = reported({}, log)
    assert first(case).rule in {f"VETTED-{number:04}" for number in LOGS[log]}


def test_what_hangs_or_trains_wrongly_is_not_why_something_was_raised() -> None:
    packages, run = {"trl": "0.18.0", "vllm": "0.9.1"}, RunContext(facts={"vllm_mode": "server"})

    def confidence(error: str) -> str:
        findings = diagnose.findings(reported(packages, error, context=run))
        return next(finding.confidence for finding in findings if finding.rule == "VETTED-0053")

    assert confidence("") == "certain"
    assert confidence("it hangs at the first step") == "certain"
    assert confidence("OSError: [Errno 98] Address already in use") == "possible"


OLD_TRL = {"trl": "0.11.4", "transformers": "4.46.0"}
ARGUMENT = "TypeError: DPOTrainer.compute_loss() got an unexpected keyword argument 'num_items_in_batch'"


@pytest.mark.parametrize(
    ("script", "error", "confidence"),
    [
        ("", "", None),
        ("", ARGUMENT, "certain"),
        ("trainer = DPOTrainer(model)", "", "certain"),
        ("trainer = trl.SFTTrainer(model)", "", None),
        ("trl dpo --model x", "", "certain"),
    ],
)
def test_trainers_of_an_old_trl_fail_only_where_they_override(script: str, error: str, confidence: str | None) -> None:
    """SFTTrainer of TRL 0.11 overrides none of the methods that get more arguments."""
    case = reported(OLD_TRL, error)
    case.context = context.read(script)
    sure = {finding.rule: finding.confidence for finding in diagnose.findings(case)}
    assert sure.get("VETTED-0069") == confidence


def test_a_fault_of_a_package_that_is_absent_is_certain_where_all_packages_are_known(tmp_path: Path) -> None:
    """TRL 1.15 without Triton. No command leads into it, either."""
    apply = "AttributeError: 'NoneType' object has no attribute 'apply'"
    install(tmp_path, "trl", "1.15.0")
    finding = only(of(tmp_path), "VETTED-0158")
    assert finding.confidence == "certain" and "without triton" in finding.evidence
    assert only(reported({"trl": "1.15.0"}), "VETTED-0158").decide == ["without triton"]
    assert first(reported({"trl": "1.15.0"}, apply)).rule == "VETTED-0158"
    install(tmp_path, "triton", "3.6.0")
    assert "VETTED-0158" not in rules(of(tmp_path, error=apply))


@pytest.mark.parametrize(("package", "release"), [("liger_kernel", ">=0.6.5"), ("peft", ">=0.19.1")])
def test_of_two_combinations_the_one_of_the_traceback_is_told(package: str, release: str) -> None:
    """PEFT and Liger-Kernel import the same name: only the one whose file does it is named and upgraded."""
    finding = first(
        reported(
            {},
            f'  File ".venv/lib/python3.12/site-packages/{package}/a.py", line 21, in <module>\n'
            "ImportError: cannot import name 'HybridCache' from 'transformers.cache_utils'",
        )
    )
    name = package.replace("_", "-")
    assert finding.rule == "VETTED-0023"
    assert set(finding.packages) == {name, "transformers"}
    assert finding.remedy[0] == f"{name}{release}"


def test_the_package_of_the_traceback_is_never_left_out_of_a_fix() -> None:
    """A short list names PEFT, which is to be upgraded too; the file that failed is Liger-Kernel's."""
    case = reported(
        {"transformers": "5.0.0", "peft": "0.17.0"},
        '  File ".venv/lib/python3.12/site-packages/liger_kernel/a.py", line 21, in <module>\n'
        "ImportError: cannot import name 'HybridCache' from 'transformers.cache_utils'",
    )
    findings = diagnose.findings(case)
    commands.add(case, findings)
    assert findings[0].remedy[0] == "peft>=0.19.1 and liger-kernel>=0.6.5"
    assert "'liger-kernel>=0.6.5'" in findings[0].commands[0]
