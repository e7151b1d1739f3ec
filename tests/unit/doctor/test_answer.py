"""The nearest stack, the commands, the report."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from doctor.answer import commands, diagnose, nearest, report
from doctor.answer.shell import Shell
from doctor.finding import EXPLAINS, Finding
from doctor.read import context
from doctor.read.machine import Machine
from tests.conftest import ROOT
from tests.unit.doctor.kit import KNOWLEDGE, SILENT, of, reported

SHELL = Shell(doctor="doctor")


def finding(rule: str, **more: Any) -> Finding:
    usual: dict[str, Any] = {
        "rule": rule, "title": f"{rule} is wrong", "packages": {}, "severity": "crash", "confidence": "certain",
        "evidence": [], "remedy": ["do it"],
    }  # fmt: skip
    return Finding(**{**usual, **more})


def test_the_nearest_stack_is_of_the_same_device_and_its_lock_can_be_had() -> None:
    cpu = nearest.find(reported({"trl": "1.15.0", "torch": "2.13.0+cpu", "transformers": "5.16.0"}), SHELL)
    gpu = nearest.find(reported({"trl": "0.15.1", "torch": "2.5.1", "transformers": "4.49.0", "vllm": "0.7.2"}), SHELL)
    assert cpu is not None and gpu is not None
    assert (cpu.name, gpu.name) == ("trl1.16-cpu", "trl0.15-cu124")
    assert ("trl", "1.15.0", "1.16.0") in cpu.difference
    assert cpu.commands[0] == "doctor --lock-of trl1.16-cpu > trl1.16-cpu.txt"
    lock = nearest.lock_of(KNOWLEDGE.stacks, "trl1.16-cpu")
    locked = (ROOT / "lockfiles" / "trl1.16-cpu" / "requirements.txt").read_text()
    assert lock == "".join(line for line in locked.splitlines(keepends=True) if not line.startswith("#"))
    assert nearest.lock_of(KNOWLEDGE.stacks, "no-such") is None
    assert nearest.find(reported({"left-pad": "1.0"}), SHELL) is None


@pytest.mark.parametrize(
    ("packages", "expected"),
    [
        ({"vllm": "0.11.0"}, "trl1.13-cu128"),  # which has 0.19.1; four minor versions back there is 0.7.2
        ({"vllm": "0.11.0", "torch": "2.8.0", "transformers": "4.57.1", "trl": "0.24.0"}, "trl1.13-cu128"),
        ({"vllm": "0.8.5"}, "trl0.15-cu124"),
        ({"trl": "0.20.0"}, "trl0.15-cu124"),
        ({"trl": "0.25.1", "transformers": "4.57.1"}, "trl1.13-cu128"),  # which has 4.57.6
        ({"trl": "1.14.0", "torch": "2.11.0"}, "trl1.16-torch2.11-cu130"),
    ],
)
def test_an_older_stack_is_farther_than_a_newer_one(packages: dict[str, str], expected: str) -> None:
    stack_ = nearest.find(reported(packages), SHELL)
    assert stack_ is not None and stack_.name == expected


def test_a_driver_of_cuda_12_is_sent_to_no_stack_of_cuda_13() -> None:
    stack_ = nearest.find(reported({"trl": "1.16.0", "torch": "2.13.0"}, machine=Machine(driver="550.1")), SHELL)
    assert stack_ is not None
    assert stack_.name == "trl1.13-cu128"


def test_a_command_takes_the_smallest_step_and_what_must_move_with_it() -> None:
    case = reported({"trl": "0.15.2", "transformers": "4.52.4"})
    findings = diagnose.findings(case)
    commands.add(case, findings)
    assert findings[0].commands == ["uv pip install 'transformers>=4.49.0,<4.52'"]
    case = reported(
        {"trl": "0.15.2", "transformers": "4.48.3", "deepspeed": "0.19.8"},
        "The size of tensor a (13) must match the size of tensor b (14) at non-singleton dimension 2",
    )
    findings = diagnose.findings(case)
    commands.add(case, findings)
    assert findings[0].commands == ["uv pip install 'trl>=0.22.0,<0.23' 'transformers>=4.55.0,<4.56'"]


def test_what_is_not_installed_needs_no_upgrade() -> None:
    """VETTED-0023 is about PEFT, or Liger: who has PEFT alone upgrades that, and does not go back with Transformers."""
    case = reported(
        {"peft": "0.17.0", "transformers": "5.0.0"}, "ImportError: cannot import name 'HybridCache' from 'transformers'"
    )
    findings = diagnose.findings(case)
    commands.add(case, findings)
    assert findings[0].rule == "VETTED-0023"
    assert findings[0].commands == ["uv pip install 'peft>=0.19.1,<0.20'"]


@pytest.mark.parametrize(
    ("packages", "error", "rule", "command"),
    [
        # TRL 0.27 would fix it, and ask for an Accelerate and a Transformers that this vLLM cannot run with.
        (
            {"trl": "0.11.4", "transformers": "4.46.0", "accelerate": "1.1.0", "vllm": "0.6.3", "torch": "2.4.0"},
            "TypeError: compute_loss() got an unexpected keyword argument 'num_items_in_batch'",
            "VETTED-0069",
            ["uv pip install 'transformers<4.46'"],
        ),
        # A later TRL would fix it, too, and lead into two others that are as sure.
        (
            {"trl": "0.16.0", "vllm": "0.8.1", "torch": "2.6.0", "transformers": "4.50.0", "accelerate": "1.5.2"},
            "AttributeError: 'LLMEngine' object has no attribute 'model_executor'",
            "VETTED-0064",
            ["uv pip install trl==0.15.2 vllm==0.7.2"],
        ),
    ],
)
def test_no_command_leads_into_what_an_advisory_is_certain_of(
    packages: dict[str, str], error: str, rule: str, command: list[str]
) -> None:
    case = reported(packages, error)
    findings = diagnose.findings(case)
    commands.add(case, findings)
    assert (findings[0].rule, findings[0].commands) == (rule, command)
    assert findings[0].remedy


def test_what_a_short_list_leaves_out_is_upgraded_before_its_neighbour_goes_back() -> None:
    error = "ImportError: cannot import name 'log' from 'torch.distributed.elastic.agent.server.api'"
    case = reported({"torch": "2.6.0", "trl": "0.16.0"}, error)  # DeepSpeed, which asks for it, is not in the list
    findings = diagnose.findings(case)
    commands.add(case, findings)
    assert findings[0].rule == "VETTED-0154"
    assert findings[0].commands == ["uv pip install 'deepspeed>=0.14.1'"]


@pytest.mark.parametrize(
    "error",
    [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB",
        "huggingface_hub.errors.GatedRepoError: 401 Client Error",
        "huggingface_hub.errors.HFValidationError: Repo id must be in the form 'repo_name'",
        "ZeroDivisionError: division by zero",
    ],
)
def test_what_no_release_causes_is_blamed_on_none(error: str) -> None:
    case = reported({"trl": "0.24.0", "torch": "2.8.0", "peft": "0.17.0", "datasets": "4.0.0"}, error)
    assert [finding.rule for finding in diagnose.findings(case) if finding.shown] == []


def test_the_report_is_calm_and_honest_when_there_is_nothing() -> None:
    case = reported({"left-pad": "1.0"})
    text = report.text(case, [], None)
    assert "Nothing is known to be wrong with it." in text
    assert "not that it works" in text


def test_the_report_moves_no_cursor() -> None:
    case = reported(SILENT, "\x1b[31mAttributeError\x1b[0m: 'X\x07Y' has no attribute 'optimizer'\x00")
    text = report.text(case, diagnose.findings(case), None)
    assert not any(ord(letter) < 32 and letter != "\n" for letter in text)


def test_three_are_told_in_full_and_the_rest_is_folded() -> None:
    case = reported({"trl": "1.0.0"}, "ValueError: x")
    findings = [finding(f"sure-{number}") for number in range(5)]
    findings += [finding(f"guess-{number}", confidence="possible", shown=EXPLAINS) for number in range(4)]
    text = report.text(case, findings, None)
    assert [text.count("do it"), text.count("3. "), text.count("4. ")] == [3, 1, 0]
    assert "Also for sure: sure-3 is wrong  [sure-3]" in text and "Also for sure: sure-4 is wrong" in text
    assert "4 more may apply: --all prints them" in text
    assert report.text(case, findings, None, everything=True).count("do it") == 9


def test_a_guess_that_does_not_speak_of_the_error_is_folded() -> None:
    guess = finding("guess", confidence="possible")
    assert "1 more may matter for some models or settings" in report.text(reported({}, "ValueError: x"), [guess], None)
    assert "1. guess is wrong" in report.text(reported({}), [guess], None)
    idle = finding("guess", confidence="possible", idle=True)
    assert "1. guess is wrong" not in report.text(reported({}), [idle], None)


def test_an_error_that_nobody_knows_does_not_hide_what_trains_wrongly() -> None:
    sure = {each.rule for each in diagnose.findings(reported(SILENT)) if each.confidence == "certain"}
    assert sure
    case = reported(SILENT, "ValueError: the moon is full")
    findings = diagnose.findings(case)
    assert sure == {each.rule for each in findings if each.apart}
    assert not any(each.sure for each in findings)  # of the error nothing is known
    text = report.text(case, findings, None)
    heading, titles = "Apart from this error, for sure", [each.title for each in findings if each.apart]
    assert heading in text and all(title in text.partition(heading)[2] for title in titles)


def test_who_got_past_a_crash_has_another_environment() -> None:
    packages = {"bitsandbytes": "0.41.0", "triton": "3.3.0", "torch": "2.7.0"}
    crashes = [each for each in diagnose.findings(reported(packages)) if each.severity == "crash" and each.sure]
    assert crashes
    assert not any(each.apart for each in diagnose.findings(reported(packages, "ValueError: the moon is full"))
                   if each.severity == "crash")  # fmt: skip


@pytest.mark.parametrize("rule", ["VETTED-0116", "VETTED-0122"])
def test_what_waits_for_a_model_that_nobody_named_is_not_told_to_everybody(rule: str) -> None:
    case = reported({"trl": "0.20.0", "vllm": "0.11.0", "torch": "2.8.0"})
    findings = diagnose.findings(case)
    assert rule in [finding.rule for finding in findings]
    assert rule not in report.text(case, findings, None)
    assert rule in report.text(case, findings, None, everything=True)


def test_the_json_of_an_issue_says_what_was_given() -> None:
    run = context.of_options({"use_vllm": True, "vllm_mode": "colocate"})
    case = reported({"trl": "1.0.0"}, "ValueError: x", context=run)
    document = report.as_json(case, [], None)
    assert document["packages"] == {"trl": "1.0.0"}
    assert document["run"] == {
        "facts": {"vllm_mode": "colocate"}, "options": run.flags, "error": "ValueError: x", "folder_of_the_error": None,
        "unreadable": None, "silent": None, "damaged": [], "blank": [],
    }  # fmt: skip


def test_an_error_of_another_environment_is_said_to_be_one(tmp_path: Path) -> None:
    here, there = (tmp_path / name / "lib" / "python3.11" / "site-packages" for name in ("here", "there"))
    here.mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "here")
    frame = '  File "{}/trl/trainer/grpo_trainer.py", line 1, in f\n    f()\nValueError: x'
    case = of(here, error=frame.format(there))
    assert f"another environment: {there}. Use --python" in report.text(case, [], None)
    assert report.as_json(case, [], None)["run"]["folder_of_the_error"] == str(there)
    linked = tmp_path / "link" / "lib" / "python3.11" / "site-packages"
    same = [of(here, error=error) for error in (frame.format(here), frame.format(linked), "ValueError: x")]
    for own in (*same, reported({"trl": "1.0.0"}, frame.format(there))):
        assert "another environment" not in report.text(own, [], None)


def test_the_nearest_stack_is_brief_beside_a_smaller_step() -> None:
    case = reported({"trl": "1.15.0", "torch": "2.13.0+cpu", "transformers": "5.16.0"})
    stack = nearest.find(case, SHELL)
    assert stack is not None
    fixed = finding("sure", commands=["uv pip install x"])
    for findings, everything, brief in (([fixed], False, True), ([fixed], True, False), ([], False, False)):
        text = report.text(case, findings, stack, everything=everything)
        assert stack.name in text and (stack.commands[1] in text) is not brief


def test_of_two_spans_that_have_a_name_the_nearer_is_installed() -> None:
    error = "AttributeError: 'DynamicCache' object has no attribute 'get_max_length'"
    case = reported({"transformers": "4.49.0"}, error)
    findings = diagnose.findings(case)
    commands.add(case, findings)
    assert findings[0].commands == ["uv pip install 'transformers<4.49.0'"]


def test_what_its_author_tried_comes_before_words_in_common() -> None:
    case = reported({"deepspeed": "0.13.5"}, "loss is nan when deepspeed==0.13.5 but ok with deepspeed==0.10.2")
    assert diagnose.findings(case)[0].remedy == ["deepspeed==0.10.2, which the report says worked"]


def test_the_patches_of_a_stack_are_counted_by_package() -> None:
    stack_ = nearest.find(reported({"trl": "0.15.2", "vllm": "0.7.2", "torch": "2.5.1"}), SHELL)
    assert stack_ is not None and stack_.name == "trl0.15-cu124"
    (note,) = stack_.notes
    assert note == "the image also has 12 patches (9 of trl, 3 of transformers): images/patches/"
