"""The nearest stack, the commands, the report."""

from __future__ import annotations

from doctor.answer import commands, diagnose, nearest, report
from doctor.read.machine import Machine
from tests.conftest import ROOT
from tests.unit.doctor.kit import KNOWLEDGE, SILENT, reported


def test_the_nearest_stack_is_of_the_same_device_and_its_lock_can_be_had() -> None:
    cpu = nearest.find(reported({"trl": "1.15.0", "torch": "2.13.0+cpu", "transformers": "5.16.0"}), "doctor")
    gpu = nearest.find(
        reported({"trl": "0.15.1", "torch": "2.5.1", "transformers": "4.49.0", "vllm": "0.7.2"}), "doctor"
    )
    assert cpu is not None and gpu is not None
    assert (cpu.name, gpu.name) == ("trl1.16-cpu", "trl0.15-cu124")
    assert ("trl", "1.15.0", "1.16.0") in cpu.difference
    assert cpu.commands[0] == "doctor --lock-of trl1.16-cpu > trl1.16-cpu.txt"
    lock = nearest.lock_of(KNOWLEDGE.stacks, "trl1.16-cpu")
    locked = (ROOT / "lockfiles" / "trl1.16-cpu" / "requirements.txt").read_text()
    assert lock == "".join(line for line in locked.splitlines(keepends=True) if not line.startswith("#"))
    assert nearest.lock_of(KNOWLEDGE.stacks, "no-such") is None
    assert nearest.find(reported({"left-pad": "1.0"}), "doctor") is None


def test_a_driver_of_cuda_12_is_sent_to_no_stack_of_cuda_13() -> None:
    stack_ = nearest.find(reported({"trl": "1.16.0", "torch": "2.13.0"}, machine=Machine(driver="550.1")), "doctor")
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


def test_the_report_is_calm_and_honest_when_there_is_nothing() -> None:
    case = reported({"left-pad": "1.0"})
    text = report.text(case, [], None)
    assert "Nothing is known to be wrong with it." in text
    assert "not that it works" in text


def test_the_report_moves_no_cursor() -> None:
    case = reported(SILENT, "\x1b[31mAttributeError\x1b[0m: 'X\x07Y' has no attribute 'optimizer'\x00")
    text = report.text(case, diagnose.findings(case), None)
    assert not any(ord(letter) < 32 and letter != "\n" for letter in text)
