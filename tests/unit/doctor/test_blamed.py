"""Releases that a report blames."""

from __future__ import annotations

import pytest

from doctor.answer import diagnose
from tests.unit.doctor.kit import first, reported, rules


def test_what_a_report_itself_blames_is_a_guess() -> None:
    finding = first(reported({}, "Loss is much higher after upgrading transformers from 4.60.1 to 4.61.0"))
    assert (finding.rule, finding.confidence, finding.ranges) == (
        "told",
        "possible",
        {"transformers": [">4.60.1,<=4.61.0"]},
    )
    log = "Traceback (most recent call last):\n" + "after upgrading transformers from 4.60.1 to 4.61.0"
    assert "told" not in rules(reported({}, log))


@pytest.mark.parametrize(
    "text", ["prompts are no longer cut (since v0.25.0)", "verl 0.5 is not compatible with vllm 0.11"]
)
def test_a_release_that_is_only_named_is_no_finding(text: str) -> None:
    assert "told" not in rules(reported({"trl": "0.25.0"}, text))


@pytest.mark.parametrize(
    ("text", "packages", "ranges"),
    [
        ("downgrading DeepSpeed to 0.15.3 appears to solve this", {}, {"deepspeed": [">0.15.3"]}),
        ("it works with trl 0.19.0", {"trl": "0.18.0"}, {"trl": ["<0.19.0"]}),
        ("this was fixed in vllm 0.9.1", {}, {"vllm": ["<0.9.1"]}),
        ("GRPO fails after vLLM released 0.8.0", {}, {"vllm": [">=0.8.0"]}),
        ("the loss is zero when I upgraded deepspeed==0.12.2", {}, {"deepspeed": [">=0.12.2"]}),
    ],
)
def test_what_a_report_itself_says_of_releases_is_a_guess(
    text: str, packages: dict[str, str], ranges: dict[str, list[str]]
) -> None:
    finding = next(finding for finding in diagnose.findings(reported(packages, text)) if finding.rule == "told")
    assert finding.ranges == ranges
    assert finding.confidence == "possible"
