"""A name that is gone: what asks for it is the older party, and is changed first."""

from __future__ import annotations

import pytest

from doctor.answer import commands, diagnose
from doctor.finding import Finding
from doctor.know import owners, renames
from tests.unit.doctor.kit import KNOWLEDGE, reported

MINE = 'Traceback (most recent call last):\n  File "/home/me/grpo/train.py", line 18, in <module>\n    x()\n'
THEIRS = MINE + '  File "/v/lib/python3.11/site-packages/{}/core.py", line 7, in f\n    y()\n'
NOW = {"trl": "1.16.0", "transformers": "5.17.0", "torch": "2.13.0"}
TOKENIZER = "TypeError: GRPOTrainer.__init__() got an unexpected keyword argument 'tokenizer'"
FILTERING = "ImportError: cannot import name 'top_k_top_p_filtering' from 'transformers' (/v/x/__init__.py)"
SIX = "ModuleNotFoundError: No module named 'torch._six'"


def first(packages: dict[str, str], error: str) -> Finding:
    case = reported(packages, error)
    findings = diagnose.findings(case)
    commands.add(case, findings)
    return findings[0]


def test_an_argument_that_has_another_name_is_renamed_in_the_script() -> None:
    """GRPOTrainer never had `tokenizer`. Transformers' Trainer had it until 5.0, which its own constructor hides."""
    finding = first(NOW, MINE + TOKENIZER)
    assert "transformers" not in finding.packages and finding.confidence == "likely"
    assert finding.remedy == [
        "in your own file, line 18 of /home/me/grpo/train.py: write processing_class instead of tokenizer"
    ]
    assert finding.commands == []
    assert first(NOW, TOKENIZER).remedy == ["in your own file: write processing_class instead of tokenizer"]


@pytest.mark.parametrize(
    ("error", "edit", "back"),
    [
        (
            "TypeError: TrainingArguments.__init__() got an unexpected keyword argument 'evaluation_strategy'",
            "write eval_strategy instead of evaluation_strategy",
            "",  # this TRL declares to need a later one
        ),
        (
            "TypeError: SFTTrainer.__init__() got an unexpected keyword argument 'max_seq_length'",
            "give max_length to SFTConfig, and not max_seq_length to SFTTrainer",
            "or go back: trl<0.13.0",
        ),
        (
            "TypeError: GRPOConfig.__init__() got an unexpected keyword argument 'max_prompt_length'",
            "do without the parameter max_prompt_length of GRPOConfig",  # no other one came for it
            "or go back: trl>=0.14.0,<0.28.0",
        ),
        (FILTERING, "do without top_k_top_p_filtering in transformers", ""),
    ],
)
def test_the_users_own_file_is_edited_before_anything_goes_back(error: str, edit: str, back: str) -> None:
    finding = first(NOW, MINE + error)
    edited = f"in your own file, line 18 of /home/me/grpo/train.py: {edit}"
    assert finding.remedy == [edited, *([back] if back else [])]
    assert finding.commands == []


def test_the_package_that_asks_for_an_old_name_is_upgraded() -> None:
    torch = {"deepspeed": "0.8.1", "torch": "2.1.0"}
    assert first(torch, THEIRS.format("deepspeed") + SIX).commands == ["uv pip install 'deepspeed>=0.9.0,<0.10'"]
    # Its frame says that it is there, though the list of packages does not: which release, nobody knows.
    unstated = first({"torch": "2.1.0"}, THEIRS.format("deepspeed") + SIX)
    assert unstated.commands == ["uv pip install 'deepspeed>=0.9.0'"]
    assert (unstated.confidence, unstated.decide) == (
        "possible", ["whether the installed deepspeed is before 0.9.0"],
    )  # fmt: skip
    old = {"trl": "0.7.4", "transformers": "4.40.0"}
    assert first(old, THEIRS.format("trl") + FILTERING).commands == ["uv pip install 'trl>=0.8.0,<0.9'"]


def test_a_package_of_which_nothing_is_known_is_upgraded_to_its_newest() -> None:
    finding = first(NOW, THEIRS.format("axolotl") + FILTERING)
    later = "a later release of axolotl, or code that does without it"
    assert finding.remedy == [later]  # trl 1.16.0 declares to need a later Transformers than the name was in
    alone = first({"transformers": "5.17.0"}, THEIRS.format("axolotl") + FILTERING)
    assert alone.remedy == [later, "or go back: transformers<4.39.0"]
    assert finding.commands == ["uv pip install --upgrade axolotl"]


def test_a_release_that_has_the_name_goes_before_one_of_which_nothing_is_known() -> None:
    error = THEIRS.format("ring_flash_attn") + (
        "ImportError: cannot import name 'is_flash_attn_greater_or_equal_2_10' from "
        "'transformers.modeling_flash_attention_utils'"
    )
    finding = first({"transformers": "5.4.0", "ring-flash-attn": "0.1.8"}, error)
    assert finding.remedy[0] == "a later release of ring-flash-attn, or code that does without it"
    assert finding.commands == ["uv pip install 'transformers>=4.51.0,<5.4.0'"]


def test_an_old_name_in_the_users_own_file_blames_no_package() -> None:
    finding = first({"torch": "2.1.0"}, MINE + SIX)
    assert list(finding.packages) == ["torch"] and finding.commands == []
    assert finding.remedy == ["in your own file, line 18 of /home/me/grpo/train.py: do without the module torch._six"]


def test_what_is_too_old_for_a_name_is_upgraded_whoever_asks() -> None:
    error = MINE + "TypeError: GRPOConfig.__init__() got an unexpected keyword argument 'vllm_mode'"
    assert first({"trl": "0.15.2"}, error).commands == ["uv pip install 'trl>=0.18.0,<0.19'"]


@pytest.mark.parametrize(
    ("package", "owner", "parameter", "installed", "expected"),
    [
        ("trl", "SFTConfig", "max_seq_length", "1.0.0", "max_length"),
        ("trl", "GRPOConfig", "wandb_log_unique_prompts", "1.0.0", "log_unique_prompts"),
        ("transformers", "Trainer", "tokenizer", "5.1.0", "processing_class"),  # as TRL's trainers call it
        ("transformers", "Trainer", "tokenizer", "4.45.0", None),  # not yet
        ("transformers", "LlamaForCausalLM", "num_logits_to_keep", "4.50.0", "logits_to_keep"),
        ("trl", "GRPOConfig", "max_prompt_length", "1.0.0", None),  # max_completion_length was there beside it
        ("trl", "GRPOConfig", "vllm_device", "0.20.0", None),  # several came when it went
        ("trl", "GRPOConfig", "no_such", "1.0.0", None),
        ("no-such", "A", "b", "1.0", None),
    ],
)
def test_a_rename_shows_in_the_history(
    package: str, owner: str, parameter: str, installed: str, expected: str | None
) -> None:
    rename = renames.of_parameter(KNOWLEDGE.apis, package, owner, parameter, installed)
    assert (rename.name if rename else None) == expected


@pytest.mark.parametrize(
    ("text", "file", "package"),
    [
        ('File "/v/site-packages/trl/t.py", line 3, in f', "/v/site-packages/trl/t.py", "trl"),
        ('File "C:\\Lib\\site-packages\\trl\\t.py", line 3, in f', "C:\\Lib\\site-packages\\trl\\t.py", "trl"),
        ("File ~/a/b.py:3, in f()", "~/a/b.py", None),
        ("Cell In[4], line 3", "cell 4", None),
        ("File <ipython-input-3-abc>:3", "<ipython-input-3-abc>", None),
        ('File "/x/src/llamafactory/train/w.py", line 3, in r', "/x/src/llamafactory/train/w.py",
         "llamafactory"),
        ('File "/x/trl/examples/scripts/sft.py", line 3, in r', "/x/trl/examples/scripts/sft.py", None),
        ('File "/x/unsloth_compiled_cache/UnslothGRPOTrainer.py", line 3, in r',
         "/x/unsloth_compiled_cache/UnslothGRPOTrainer.py", "unsloth"),
    ],
)  # fmt: skip
def test_the_last_frame_is_a_packages_or_the_users(text: str, file: str, package: str | None) -> None:
    assert owners.last_frame(text, KNOWLEDGE.apis) == owners.Frame(file, "3", package)


def test_a_frame_of_python_itself_is_nobodys() -> None:
    for text in ('File "/usr/lib/python3.10/runpy.py", line 3', 'File "<frozen importlib>", line 3', "no frame"):
        assert owners.last_frame(text, KNOWLEDGE.apis) is None


def test_an_edit_for_a_release_that_nobody_stated_is_possible() -> None:
    stated, unstated = (first(packages, MINE + TOKENIZER) for packages in (NOW, {}))
    assert (stated.confidence, unstated.confidence) == ("likely", "possible")
    assert unstated.decide


def test_another_module_with_the_name_is_no_edit_where_nobody_knows_who_asks() -> None:
    error = "ImportError: cannot import name 'refresh_access_token' from 'huggingface_hub.nowhere'"
    assert not any("in your own file" in line for line in first({"huggingface-hub": "1.20.0"}, error).remedy)


def test_a_name_that_came_back_later_needs_the_later_release() -> None:
    """unsloth-zoo dropped the parameter in 2025.9.4 and has it again since 2025.12.6; Unsloth 2025.12.7 passes it."""
    error = "TypeError: get_transformers_model_type() got an unexpected keyword argument 'trust_remote_code'"
    finding = first({"unsloth": "2025.12.7", "unsloth-zoo": "2025.12.5"}, error)
    assert finding.commands == ["uv pip install 'unsloth-zoo>=2025.12.6,<2025.13'"]
    assert not any(line.startswith("or go back") for line in finding.remedy)


def test_a_release_that_is_too_old_is_upgraded_before_a_caller_that_is_not_there() -> None:
    """bitsandbytes 0.38.1 is older than all that were read; Unsloth asked for the name once."""
    finding = first(
        {"bitsandbytes": "0.38.1"}, "AttributeError: module 'bitsandbytes.nn' has no attribute 'Linear4bit'"
    )
    assert finding.remedy[0].startswith("bitsandbytes>=")
    assert "unsloth" not in finding.packages
