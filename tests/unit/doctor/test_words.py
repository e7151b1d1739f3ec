"""Names in an error that is worded in no known way."""

from __future__ import annotations

import pytest

from doctor.checks import words
from doctor.finding import Finding
from tests.unit.doctor.kit import reported


def named(packages: dict[str, str], error: str) -> list[Finding]:
    return list(words.other_names(reported(packages, error)))


@pytest.mark.parametrize(
    ("packages", "error", "rule"),
    [
        ({"vllm": "0.12.0"}, "failed to set up `GuidedDecodingParams`", "vllm.sampling_params.GuidedDecodingParams"),
        ({"transformers": "5.2.0"}, "could not build 'HybridCache' for generation", "transformers.HybridCache"),
        (
            {"peft": "0.18.1"},
            "loading failed in peft.utils.save_and_load: '_maybe_shard_state_dict_for_tp'",
            "peft.utils.save_and_load._maybe_shard_state_dict_for_tp",
        ),
    ],
)
def test_a_name_in_any_wording_is_looked_up(packages: dict[str, str], error: str, rule: str) -> None:
    (finding,) = named(packages, error)
    (package,) = packages
    assert (finding.rule, finding.confidence) == ("named-and-gone", "possible")
    assert finding.title.endswith(f", which {package} {packages[package]} does not have")
    assert rule.rpartition(".")[2] in finding.title


@pytest.mark.parametrize(
    ("packages", "error"),
    [
        ({"vllm": "0.11.0"}, "failed to set up `GuidedDecodingParams`"),  # it has it
        ({}, "failed to set up `GuidedDecodingParams`"),  # nobody said which release
        ({"trl": "1.0.0"}, "failed to set up `GuidedDecodingParams`"),
        ({"vllm": "0.12.0"}, "cannot import name 'GuidedDecodingParams' from 'vllm.sampling_params'"),  # said better
        ({"vllm": "0.12.0"}, "File \"/x/vllm/a.py\", line 1, in f\n    use('GuidedDecodingParams')"),
        ({"vllm": "0.12.0"}, "the file vllm.log and vllm.py and a.b.c"),
    ],
)
def test_what_is_there_or_said_better_is_no_finding(packages: dict[str, str], error: str) -> None:
    assert named(packages, error) == []
