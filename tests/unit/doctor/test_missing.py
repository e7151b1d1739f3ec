"""Names that a release lacks, and models that it does not know."""

from __future__ import annotations

import pytest

from tests.unit.doctor.kit import first, reported, rules


@pytest.mark.parametrize(
    ("error", "packages", "blamed", "sure"),
    [
        ("ImportError: cannot import name 'GRPOConfig' from 'trl'", {"trl": "0.12.2"}, "trl", True),
        (
            "TypeError: GRPOConfig.__init__() got an unexpected keyword argument 'vllm_mode'",
            {"trl": "0.17.0"},
            "trl",
            True,
        ),
        (
            "TypeError: GRPOConfig.__init__() got an unexpected keyword argument 'max_prompt_length'",
            {"trl": "1.0.0"},
            "trl",
            True,
        ),
        (
            "AttributeError: type object 'TrainingArguments' has no attribute '_VALID_DICT_FIELDS'",
            {"transformers": "4.44.0"},
            "transformers",
            True,
        ),
        ("ModuleNotFoundError: No module named 'trl.extras.vllm_client'", {"trl": "0.15.2"}, "trl", True),
        ("ImportError: cannot import name 'cached_download' from 'huggingface_hub'", {}, "huggingface-hub", False),
        ("ImportError: cannot import name 'Gone' from 'somewhere.else'", {"somewhere": "1.0"}, "somewhere", False),
    ],
)
def test_a_name_that_a_release_lacks(error: str, packages: dict[str, str], blamed: str, sure: bool) -> None:
    finding = first(reported(packages, error))
    assert finding.rule in ("moved-name", "missing-name")
    assert blamed in finding.packages
    assert finding.sure is sure


def test_a_name_that_the_installed_release_has_is_not_blamed_on_it() -> None:
    error = "ImportError: cannot import name 'GRPOConfig' from 'trl'"
    assert "moved-name" not in rules(reported({"trl": "0.20.0"}, error))


def test_who_asked_is_read_from_the_traceback() -> None:
    error = (
        '  File "/v/lib/python3.11/site-packages/somebody/model.py", line 3, in <module>\n'
        "ImportError: cannot import name 'HfFolder' from 'huggingface_hub'\n"
    )
    finding = first(reported({"huggingface-hub": "1.2.0"}, error))
    assert list(finding.packages) == ["huggingface-hub", "somebody"]


@pytest.mark.parametrize(
    ("error", "package"),
    [
        ("The checkpoint has model type `qwen3` but Transformers does not recognize this architecture", "transformers"),
        ("ValueError: Model architectures ['Qwen3ForCausalLM'] are not supported for now.", "vllm"),
    ],
)
def test_a_model_that_is_not_known_yet(error: str, package: str) -> None:
    finding = first(reported({"transformers": "4.50.0", "vllm": "0.8.2"}, error))
    assert (package in finding.packages, finding.sure) == (True, True)
