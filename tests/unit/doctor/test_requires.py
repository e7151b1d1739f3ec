"""Requirements that are declared and not met."""

from __future__ import annotations

from pathlib import Path

import pytest

from doctor.answer import commands, diagnose
from tests.unit.doctor.kit import install, of, only, reported, rules


def test_a_violated_requirement_is_certain_and_its_marker_is_heeded(tmp_path: Path) -> None:
    install(tmp_path, "trl", "1.16.0", ["transformers>=4.56.2", "rich>=99; extra == 'x'", "six>=9; python_version<'3'"])
    install(tmp_path, "transformers", "4.46.0")
    install(tmp_path, "rich", "13.0")
    install(tmp_path, "six", "1.0")
    findings = [finding for finding in diagnose.findings(of(tmp_path)) if finding.rule == "requires-dist"]
    assert [(finding.packages, finding.confidence) for finding in findings] == [
        ({"transformers": "4.46.0", "trl": "1.16.0"}, "certain")
    ]
    assert findings[0].commands == ["uv pip install 'transformers>=4.56.2'"]


def test_a_list_without_metadata_is_held_to_what_was_published() -> None:
    assert only(reported({"trl": "0.21.0", "transformers": "4.50.0"}), "requires-dist").sure
    assert (
        only(reported({"vllm": "0.18.0", "transformers": "5.2.0"}), "requires-dist").packages["transformers"] == "5.2.0"
    )


def test_the_triton_of_another_torch_is_seen_in_a_list() -> None:
    finding = only(reported({"torch": "2.5.1+cu121", "triton": "3.2.0"}), "requires-dist")
    assert (finding.packages, finding.confidence) == ({"triton": "3.2.0", "torch": "2.5.1+cu121"}, "certain")
    assert "requires-dist" not in rules(reported({"torch": "2.6.0", "triton": "3.2.0"}))


@pytest.mark.parametrize("torch", ["2.5.1+cpu", "2.5.1+rocm6.2", "2.7.0+gitf717b2a"])
def test_another_build_of_torch_is_not_held_to_the_triton_of_cuda(torch: str) -> None:
    assert "requires-dist" not in rules(reported({"torch": torch, "triton": "3.0.0"}))


def test_trls_range_of_vllm_is_read_from_its_extra(tmp_path: Path) -> None:
    install(tmp_path, "trl", "1.16.0", ['vllm<=0.31.0,>=0.22.0; extra == "vllm"'])
    install(tmp_path, "vllm", "0.33.0")
    assert only(of(tmp_path), "trl-vllm-range").confidence == "likely"
    assert only(reported({"trl": "1.16.0", "vllm": "0.33.0"}), "trl-vllm-range").confidence == "likely"
    assert "trl-vllm-range" not in rules(reported({"trl": "1.16.0", "vllm": "0.31.0"}))


def test_a_package_for_another_python(tmp_path: Path) -> None:
    install(tmp_path, "trl", "1.16.0", python=">=3.12")
    assert only(of(tmp_path), "requires-python").packages == {"trl": "1.16.0"}


def test_what_unsloth_published_with_the_line_ends_of_windows_is_read() -> None:
    finding = only(reported({"unsloth": "2025.4.1", "trl": "0.19.0"}), "requires-dist")
    assert finding.confidence == "certain" and "<=0.15.2" in finding.title


def test_a_companion_of_unsloth_is_read_from_what_it_published() -> None:
    """These lines had no end that a requirement may have, and the answer ended in a traceback."""
    packages = {"unsloth": "2025.3.17", "unsloth-zoo": "2025.3.15", "trl": "0.15.2", "transformers": "4.50.0"}
    case = reported(packages, "TypeError: _unsloth_get_batch_samples() takes 3 positional arguments but 4 were given")
    findings = diagnose.findings(case)
    commands.add(case, findings)
    assert findings[0].commands
