"""Errors that pass through Unsloth."""

from __future__ import annotations

import pytest

from doctor.answer import diagnose
from tests.unit.doctor.kit import only, reported, rules

CACHE = '  File "/content/unsloth_compiled_cache/UnslothGRPOTrainer.py", line 84, in compute_loss\nValueError: x'
INSTALLED = {"unsloth": "2025.6.1", "unsloth-zoo": "2025.6.1", "trl": "0.22.0", "transformers": "4.55.4"}


def test_what_unsloth_declares_is_told_and_the_release_that_knows_this_trl() -> None:
    finding = only(reported(INSTALLED, CACHE), "unsloth-range")
    assert finding.confidence == "possible"
    assert "unsloth 2025.6.1 declares trl>=0.7.9, transformers>=4.51.3, torch<=2.7.0,>=2.4.0" in finding.evidence
    # Between them no release names an end of its range.
    assert finding.remedy[0] == "unsloth>=2025.9.10 with its unsloth-zoo, the first that declares trl<=0.23.0,>=0.7.9"
    assert "remove the folder unsloth_compiled_cache" in finding.remedy[-1]


def test_a_trl_outside_of_what_unsloth_declares_goes_back() -> None:
    packages = {"unsloth": "2026.9.1", "trl": "1.16.0", "transformers": "5.5.0"}
    finding = only(reported(packages, CACHE), "unsloth-range")
    assert any(line.startswith("trl!=0.19.0,<=0.24.0") for line in finding.remedy)


@pytest.mark.parametrize(
    "error",
    [
        "TypeError: UnslothGRPOConfig.__init__() got an unexpected keyword argument 'x'",
        "AttributeError: '_UnslothSFTTrainer' object has no attribute 'x'",
        '  File "/v/lib/python3.12/dist-packages/unsloth_zoo/compiler.py", line 432, in f\nValueError: x',
        "RuntimeError: Unsloth: Please file a bug report! Error patching GRPOTrainer",
    ],
)
def test_unsloth_shows_in_many_ways(error: str) -> None:
    assert "unsloth-range" in rules(reported(INSTALLED, error))


def test_where_unsloth_is_not_it_is_not_named() -> None:
    assert "unsloth-range" not in rules(reported(INSTALLED, "ValueError: x"))
    case = reported({"trl": "1.0.0"}, CACHE)
    case.environment.complete = True
    assert "unsloth-range" not in rules(case)


def test_a_loss_that_gets_an_argument_twice() -> None:
    error = "TypeError: grpo_compute_loss() got multiple values for argument 'sampling_per_token_logps'"
    case = reported({"unsloth": "2026.4.4", "trl": "0.24.0"}, error)
    finding = diagnose.findings(case)[0]
    assert (finding.rule, finding.confidence) == ("VETTED-0157", "certain")
