"""The doctor and names: what the errors of Python and of pip say, looked up in the history of the releases."""

from __future__ import annotations

import gzip
import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from doctor.answer import diagnose
from doctor.case import Case
from doctor.finding import Finding
from doctor.know import data, history
from doctor.know.data import Api, Knowledge
from doctor.read import requirements, symptoms
from doctor.read.context import Context
from scripts import api_changes, api_facts

# A history of our own, in the form of doctor/know/apis.json.gz: packages, and a library that derives from one of them.
APIS: dict[str, Api] = {
    "transformers": {
        "first": "4.0.0",
        "requires": {"4.5.0": ["tokenizers<0.20,>=0.10"]},
        "changes": {
            "transformers:OldCache": "+0 -5.0.0",
            "transformers:NewConfig": "+5.0.0",
            "transformers.lately:": "+4.5.0",
            "PreTrainedModel.tied_keys": "+5.0.0",
            "ModuleUtilsMixin.head_mask": "+0 -5.0.0",
            "PreTrainedConfig.pad_id": "+0 -5.0.0",
            "DynamicCache.seen": "+0 -4.2.0",
            "Cache.seen": "+0 -4.9.0",
            "Trainer._sampler(dataset": "+4.5.0",
            "Accelerated(dispatch": "+0 -4.4.0",
            "transformers.strict:AmbiguousLayerError": "+5.1.0",
            "GenerationMixin.generate(old": "+0 -4.6.0",
        },
    },
    "trl": {"first": "0.1.0", "requires": {}, "changes": {"GRPOTrainer.llm": "+0 -0.16.0", "helper(flag": "+0.5.0"}},
    "vllm": {"first": "0.1.0", "requires": {}, "changes": {"vllm models:NewForCausalLM": "+0.9.0"}},
}
KNOWLEDGE = Knowledge(data.load().advisories, data.load().stacks, APIS)


def reported(packages: dict[str, str], error: str, **more: Any) -> Case:
    return Case(requirements.of_versions("a report", packages), error=error, knowledge=KNOWLEDGE, **more)


def first(packages: dict[str, str], error: str, **more: Any) -> Finding:
    return diagnose.findings(reported(packages, error, **more))[0]


@pytest.mark.parametrize(
    ("error", "packages", "rule", "blamed", "ranges"),
    [
        # What a class of somebody's lacks, its base class has lost.
        ("'MyBertModel' object has no attribute 'head_mask'", {}, "moved-name", "transformers", [">=5.0.0"]),
        ("'MyBertConfig' object has no attribute 'pad_id'", {}, "moved-name", "transformers", [">=5.0.0"]),
        ("'MyGRPOTrainer' object has no attribute 'llm'", {}, "moved-name", "trl", [">=0.16.0"]),
        ("'GRPOEnvTrainer' object has no attribute 'llm'", {}, "moved-name", "trl", [">=0.16.0"]),
        # It is gone when the last class that has it gives it up.
        ("'DynamicCache' object has no attribute 'seen'", {}, "moved-name", "transformers", [">=4.9.0"]),
        # The library expects of a model's own code what came later than that code.
        (
            "'RemoteModel' object has no attribute 'tied_keys'",
            {"transformers": "5.2.0"},
            "new-name",
            "transformers",
            [">=5.0.0"],
        ),
        (
            "MyTrainer._sampler() got an unexpected keyword argument 'dataset'",
            {"transformers": "4.4.0"},
            "moved-name",
            "transformers",
            ["<4.5.0"],
        ),
        ("helper() got an unexpected keyword argument 'flag'", {"trl": "0.4.0"}, "moved-name", "trl", ["<0.5.0"]),
        (
            "TypeError: __init__() got an unexpected keyword argument 'dispatch'",
            {"transformers": "4.4.0"},
            "moved-name",
            "transformers",
            [">=4.4.0"],
        ),
        (
            "ValueError: Some specified arguments are not used by the HfArgumentParser: ['--dispatch', 'x']",
            {},
            "moved-name",
            "transformers",
            [">=4.4.0"],
        ),
        ("`np.float_` was removed in the NumPy 2.0 release.", {"numpy": "2.1.0"}, "removed", "numpy", [">=2.0"]),
        ("cannot import name 'lately' from 'transformers'", {}, "moved-name", "transformers", ["<4.5.0"]),
        (
            "NameError: name 'NewConfig' is not defined",
            {"transformers": "5.0.0rc1", "unsloth": "2025.9.9"},
            "undefined-name",
            "unsloth",
            [],
        ),
        (
            "MyTrainer._sampler() takes 1 positional argument but 2 were given",
            {"transformers": "4.6.0"},
            "signature",
            "transformers",
            [">=4.5.0"],
        ),
        (
            "AmbiguousLayerError: 'head_dim' varies",
            {"transformers": "5.2.0"},
            "new-error",
            "transformers",
            [">=5.1.0"],
        ),
        (
            "Model architectures ['NewForCausalLM'] are not supported for now.",
            {"vllm": "0.8.0"},
            "unknown-model",
            "vllm",
            ["<0.9.0"],
        ),
    ],
)
def test_what_an_error_names_is_looked_up(
    error: str, packages: dict[str, str], rule: str, blamed: str, ranges: list[str]
) -> None:
    found = first(packages, error)
    assert found.rule == rule
    assert blamed in found.packages
    assert found.ranges.get(blamed, []) == ranges


@pytest.mark.parametrize(
    ("error", "packages"),
    [
        ("'NoneType' object has no attribute 'tied_keys'", {}),
        ("'MyBertModel' object has no attribute 'head_mask'", {"transformers": "4.9.0"}),
        ("reward() got an unexpected keyword argument 'completion_ids'", {"trl": "1.0.0"}),
        ("NameError: name 'NewConfig' is not defined", {"transformers": "4.9.0"}),
        ("AmbiguousLayerError: 'head_dim' varies", {"transformers": "4.9.0"}),
        ("KeyError: 'question'", {"trl": "1.0.0"}),
    ],
)
def test_what_no_release_explains_is_not_blamed_on_one(error: str, packages: dict[str, str]) -> None:
    about = {"moved-name", "new-name", "undefined-name", "new-error", "missing-name", "signature"}
    assert not about & {one.rule for one in diagnose.findings(reported(packages, error))}


def test_a_name_is_searched_for_in_its_own_class_first() -> None:
    apis: dict[str, Api] = {
        "one": {"changes": {"Trainer.x": "+1.0"}},
        "two": {"changes": {"GRPOTrainer.x": "+2.0", "SFTTrainer.x": "+3.0"}},
    }
    found = history.of_class(apis, "GRPOTrainer", ".x")
    assert found is not None
    assert (found.package, found.name, found.since) == ("two", "GRPOTrainer.x", "2.0")
    assert history.of_class(apis, "Tensor", ".x") is None


@pytest.mark.parametrize(
    ("text", "packages", "ranges"),
    [
        ("downgrading DeepSpeed to 0.15.3 appears to solve this", {}, {"deepspeed": [">0.15.3"]}),
        ("it works with trl 0.19.0", {"trl": "0.18.0"}, {"trl": ["<0.19.0"]}),
        ("this was fixed in vllm 0.9.1", {}, {"vllm": ["<0.9.1"]}),
        ("prompts are no longer cut (since v0.25.0)", {"trl": "0.25.0"}, {"trl": ["==0.25.0"]}),
        ("verl 0.5 is not compatible with vllm 0.11", {}, {"verl": ["==0.5"], "vllm": ["==0.11"]}),
    ],
)
def test_what_a_report_itself_says_of_releases_is_a_guess(
    text: str, packages: dict[str, str], ranges: dict[str, list[str]]
) -> None:
    found = next(one for one in diagnose.findings(reported(packages, text)) if one.rule == "told")
    assert found.ranges == ranges
    assert found.confidence == "possible"


def test_two_packages_that_must_be_alike_say_which_they_are() -> None:
    found = first({}, "RuntimeError: flashinfer-cubin version (0.6.1) does not match flashinfer version (0.5.3).")
    assert (found.rule, found.confidence) == ("unlike-pair", "certain")
    assert found.packages == {"flashinfer-cubin": "0.6.1", "flashinfer-python": "0.5.3"}
    assert found.commands == ["uv pip install 'flashinfer-cubin==0.5.3'"]


def test_what_the_installed_release_has_was_not_removed_from_it() -> None:
    error = "`np.float_` was removed in the NumPy 2.0 release."
    assert "removed" not in {one.rule for one in diagnose.findings(reported({"numpy": "1.26.4"}, error))}


def test_what_pip_does_not_find_may_have_many_causes() -> None:
    found = first({}, "ERROR: No matching distribution found for unsloth_zoo>=2025.3.9")
    assert (found.rule, found.confidence, found.ranges) == ("not-found", "possible", {"unsloth-zoo": ["<2025.3.9"]})


def test_where_an_error_was_raised_is_the_last_thing_to_say() -> None:
    frames = 'File "/x/site-packages/trl/a.py", line 1\nFile "/x/site-packages/torch/b.py", line 2\n'
    found = first({"trl": "1.0.0"}, frames + "RuntimeError: the shapes differ")
    assert (found.rule, found.packages, found.confidence) == ("raised-in", {"trl": "1.0.0"}, "possible")
    named = diagnose.findings(
        reported({}, frames + "AttributeError: 'MyBertModel' object has no attribute 'head_mask'")
    )
    assert [one.rule for one in named if one.shown][-1] == "raised-in"
    assert named[0].rule == "moved-name"


def test_what_hangs_or_trains_wrongly_is_not_why_something_was_raised() -> None:
    packages, run = {"trl": "0.18.0", "vllm": "0.9.1"}, Context(facts={"vllm_mode": "server"})

    def confidence(error: str) -> str:
        found = diagnose.findings(reported(packages, error, context=run))
        return next(one.confidence for one in found if one.rule == "VETTED-0053")

    assert confidence("") == "certain"
    assert confidence("it hangs at the first step") == "certain"
    assert confidence("OSError: [Errno 98] Address already in use") == "possible"


def test_a_library_that_the_default_torch_brings_and_that_is_missing_means_another_torch() -> None:
    error = "ImportError: libcudart.so.12: cannot open shared object file"
    assert first({"vllm": "0.16.0", "torch": "2.9.1"}, error).rule == "cuda-runtime"
    rules = {one.rule for one in diagnose.findings(reported({"vllm": "0.16.0", "torch": "2.9.1+cu128"}, error))}
    assert "cuda-runtime" not in rules


def test_a_word_longer_than_any_name_is_cut_so_that_no_pattern_runs_over_it() -> None:
    assert symptoms.plain("Ab" * 5000 + "Error: c") == "Ab" * 150 + ": c"


# How the history is made.


def wheel(folder: Path, version: str, source: str) -> Path:
    path = folder / f"thing-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("thing/__init__.py", "from thing.core import act\n")
        archive.writestr("thing/core.py", source)
        archive.writestr(f"thing-{version}.dist-info/METADATA", "Name: thing\nRequires-Dist: other>=1\n\nText\n")
    return path


def test_the_history_is_read_out_of_wheels(tmp_path: Path) -> None:
    sources = {
        "1.0": "def act(a): ...\nclass MyTrainer:\n    def __init__(self, x): self.seen = x\n",
        "2.0": "class OddError(Exception): ...\n@deprecate_kwarg('a', version='3.0')\ndef act(b): ...\n"
        "class MyTrainer:\n    def __init__(self, y): ...\n    def run(self, step): ...\n",
        "3.0": "class OddError(Exception): ...\ndef act(b): ...\n",
    }
    for version, source in sources.items():
        scanned = api_facts.scan(wheel(tmp_path, version, source), "thing")
        assert scanned["requires"] == ["other>=1"]
        packed = gzip.compress(json.dumps(scanned).encode())
        (tmp_path / f"thing=={version}.json.gz").write_bytes(packed)
    history_ = api_changes.history("thing", tmp_path, every=False)
    assert history_ is not None
    flat = data.flat(history_["changes"])
    assert flat["act(a"] == "+0 -3.0.0"  # a decorator still took it in 2.0
    assert flat["act(b"] == "+2.0.0"
    assert flat["thing.core:OddError"] == "+2.0.0"
    assert flat["MyTrainer(x"] == "+0 -2.0.0"
    assert flat["thing.core:MyTrainer"] == "+0 -3.0.0"
    assert "MyTrainer.run(step" not in flat  # it came and went with MyTrainer.run
    assert history_["requires"]["3.0"] == ["other>=1"]


def test_the_history_that_is_kept_knows_what_people_ask_for() -> None:
    apis = data.load().apis
    known = {
        ("vllm", "vllm.sampling_params:GuidedDecodingParams"): "-0.12.0",
        ("vllm", "EngineArgs(worker_extension_cls"): "+0.8.0",
        ("torch", "torch.distributed.fsdp:fully_shard"): "+2.6.0",
        ("peft", "LoraConfig(corda_config"): "+0.15.0",
        ("transformers", "Trainer.compute_loss(num_items_in_batch"): "+4.46.0",
        ("transformers", "ModuleUtilsMixin.get_head_mask"): "-5.0.0",
    }
    for (package, fact), change in known.items():
        assert change in apis[package]["changes"][fact].split(), fact
    assert "peft" in " ".join(apis["unsloth"]["requires"]["2025.9.1"])
