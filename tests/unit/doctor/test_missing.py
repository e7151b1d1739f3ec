"""Names that a release lacks, and models that it does not know."""

from __future__ import annotations

import pytest

from doctor.checks import missing
from doctor.know.data import Api, Knowledge
from scripts import api_changes
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


NAMES: dict[str, dict[str, list[str]]] = {"old": {"1.0": [], "2.0": []}}


@pytest.mark.parametrize(
    ("name", "version", "way"),
    [
        # No release that was read has it: it is older, whatever is installed.
        ("old.core:never", None, "old<1.0"),
        ("old.core:never", "2.0", "old<1.0"),
        ("old.core:never", "0.5", None),
        # Every one has it: what is installed is older than they are.
        ("old.core:here", None, "old>=1.0"),
        ("old.core:here", "0.5", "old>=1.0"),
        ("old.core:here", "2.0", None),
        # Of a module that takes names from others nothing is known.
        ("old:never", None, "old>=1.0"),
        ("old:never", "2.0", "old<1.0"),
        ("old.asked:never", "2.0", "old<1.0"),
    ],
)
def test_a_name_without_a_history_is_in_every_release_or_in_none(
    name: str, version: str | None, way: str | None
) -> None:
    facts = ["old:", "old.core:", "old.core:here", "old.asked:", "old.asked:__getattr__"]
    newest = api_changes.always("old", facts, {})
    case = reported({"old": version} if version else {}, f"cannot import name '{name.partition(':')[2]}' from "
                    f"'{name.partition(':')[0]}'")  # fmt: skip
    case.knowledge = Knowledge(apis={"old": Api({}, NAMES["old"], ["1.0", "2.0"], [], newest)})
    (finding,) = missing.missing_names(case)
    assert finding.remedy[0].partition(",")[0] == (way or "install versions of old that belong together")
