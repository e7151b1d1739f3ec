"""Names in a history of our own, in the form of the real one."""

from __future__ import annotations

from typing import Any

import pytest

from doctor.answer import diagnose
from doctor.case import Case
from doctor.finding import Finding
from doctor.know import data, history
from doctor.know.data import Api, Knowledge
from doctor.read import requirements


def api(changes: dict[str, str], requires: dict[str, list[str]] | None = None) -> Api:
    """A package's history, given by the whole names of its facts."""
    return Api({fact: {history: ""} for fact, history in changes.items()}, requires or {})


# A history of our own, in the form of doctor/know/apis.json.gz: packages, and a library that derives from one of them.
APIS = {
    "transformers": api(
        {
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
            "Rotary(config": "+4.3.0",
            "Rotary(dim": "+0 -4.8.0",
            "transformers.strict:AmbiguousLayerError": "+5.1.0",
            "transformers.strict:AssertionError": "+5.2.0",
            "GenerationMixin.generate(old": "+0 -4.6.0",
        },
        {"4.5.0": ["tokenizers<0.20,>=0.10"]},
    ),
    "trl": api({"GRPOTrainer.llm": "+0 -0.16.0", "helper(flag": "+0.5.0"}),
    "vllm": api({"vllm models:NewForCausalLM": "+0.9.0"}),
    "liger-kernel": api({"liger_kernel.transformers.monkey_patch:apply_liger_kernel_to_new3": "+0.5.7"}),
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
            "TypeError: Rotary.__init__() missing 1 required positional argument: 'config'",
            {"transformers": "4.9.0"},
            "signature",
            "transformers",
            [">=4.8.0"],
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
        (
            "Model architectures ['NewForCausalLM'] failed to be inspected.",  # it is listed, so something else moved
            {"vllm": "0.9.1"},
            "unknown-model",
            "vllm",
            ["<=0.9.1"],
        ),
        (
            "    apply_fn = MODEL_TYPE_TO_APPLY_LIGER_FN[model_type]\nKeyError: 'new3'",
            {"transformers": "4.50.0"},
            "moved-name",
            "liger-kernel",
            ["<0.5.7"],
        ),
    ],
)
def test_what_an_error_names_is_looked_up(
    error: str, packages: dict[str, str], rule: str, blamed: str, ranges: list[str]
) -> None:
    finding = first(packages, error)
    assert finding.rule == rule
    assert blamed in finding.packages
    assert finding.ranges.get(blamed, []) == ranges


@pytest.mark.parametrize(
    ("error", "packages"),
    [
        ("'NoneType' object has no attribute 'tied_keys'", {}),
        ("'MyBertModel' object has no attribute 'head_mask'", {"transformers": "4.9.0"}),
        ("reward() got an unexpected keyword argument 'completion_ids'", {"trl": "1.0.0"}),
        ("NameError: name 'NewConfig' is not defined", {"transformers": "4.9.0"}),
        ("AmbiguousLayerError: 'head_dim' varies", {"transformers": "4.9.0"}),
        ("KeyError: 'question'", {"trl": "1.0.0"}),
        ("AssertionError: only supports init=False", {"transformers": "5.2.0"}),  # Python's own, not that of a module
    ],
)
def test_what_no_release_explains_is_not_blamed_on_one(error: str, packages: dict[str, str]) -> None:
    about = {"moved-name", "new-name", "undefined-name", "new-error", "missing-name", "signature"}
    assert not about & {finding.rule for finding in diagnose.findings(reported(packages, error))}


def test_the_call_in_a_traceback_tells_which_argument_an_override_lacks() -> None:
    call = '  File "/env/lib/python3.9/site-packages/transformers/trainer.py", line 9, in run\n    self._sampler({})\n'
    error = "TypeError: _sampler() takes 2 positional arguments but 3 were given"
    finding = first({"transformers": "4.6.0"}, call.format("rows, dataset") + error)
    assert (finding.rule, finding.confidence, finding.ranges) == ("signature", "likely", {"transformers": [">=4.5.0"]})
    assert finding.remedy[0].startswith("let the override of _sampler take dataset")
    assert finding.ways == [{"transformers": "<4.5.0"}]
    notebook = "File /env/lib/python3.9/site-packages/transformers/trainer.py:9, in Trainer.run(self)\n      8 go = 1\n"
    assert first({"transformers": "4.6.0"}, f"{notebook}----> 9 self._sampler(rows, dataset)\n\n{error}") == finding
    # The call of another file, and an error that misses an argument.
    own = (
        call.replace("_sampler", "step")
        + '  File "/home/me/train.py", line 9, in run\n    self._sampler(rows, dataset)\n'
    )
    assert first({"transformers": "4.6.0"}, own + error).confidence == "possible"
    missing = "TypeError: _sampler() missing 1 required positional argument: 'x'"
    assert first({"transformers": "4.6.0"}, call.format("rows, dataset") + missing).confidence == "possible"
    # An argument that was always there, and a release without the new one, explain nothing.
    assert first({"transformers": "4.6.0"}, call.format("rows, again") + error).confidence == "possible"
    older = diagnose.findings(reported({"transformers": "4.4.0"}, call.format("rows, dataset") + error))
    assert not [finding for finding in older if finding.confidence == "likely"]


def test_a_name_is_searched_for_in_its_own_class_first() -> None:
    apis = {"one": api({"Trainer.x": "+1.0"}), "two": api({"GRPOTrainer.x": "+2.0", "SFTTrainer.x": "+3.0"})}
    fact = history.of_class(apis, "GRPOTrainer", ".x")
    assert fact is not None
    assert (fact.package, fact.name, fact.since) == ("two", "GRPOTrainer.x", "2.0")
    assert history.of_class(apis, "Tensor", ".x") is None


def partly_read(changes: dict[str, str]) -> history.Fact:
    """A fact of a package of which 1.0.0, 1.1.0 and 2.0.0 were read, and 1.0.5, 1.1.3 and 1.1.4 were not."""
    package = Api(api(changes).grouped, {}, ["1.0.0", "1.1.0", "2.0.0"], ["1.0.5", "1.1.3", "1.1.4"])
    fact = history.exact({"vllm": package}, "vllm.moved:", "vllm")
    assert fact is not None
    return fact


@pytest.mark.parametrize(
    ("changes", "version", "has"),
    [
        ("+0 -2.0.0", "1.0.0", True),
        ("+0 -2.0.0", "1.0.5", True),  # both releases around it have the name
        ("+0 -2.0.0", "1.1.4", None),  # vLLM 0.8.5 lacked what 0.8.0 had
        ("+0 -2.0.0", "1.1.0.post1", None),
        ("+0 -2.0.0", "1.1.0+cu128", True),
        ("+0 -2.0.0", "2.0.0", False),
        ("+0 -2.0.0", "2.0.1", False),  # it did not come back
        ("+0 -2.0.0", "0.9.0", None),
        ("+1.1.0", "1.0.5", None),
        ("+1.1.0", "1.1.3", True),
        ("+1.1.0", "2.5.0", None),  # nobody has read it
        ("+1.1.0", "0.9.0", False),
        ("+1.1.0 -2.0.0", "1.1.3", None),
        ("+0 -2.0.0", ">=2.0.0", False),
    ],
)
def test_nothing_is_concluded_between_two_releases_that_were_read(changes: str, version: str, has: bool | None) -> None:
    assert partly_read({"vllm.moved:": changes}).in_release(version) is has


def test_releases_that_were_not_read_are_in_no_range() -> None:
    assert partly_read({"vllm.moved:": "+0 -2.0.0"}).spans() == ([">=2.0.0"], ["<1.1.3"])
    assert partly_read({"vllm.moved:": "+1.1.0"}).spans() == (["<1.0.5"], [">=1.1.0"])


@pytest.mark.parametrize(
    ("version", "bad", "remedy"),
    [
        ("1.1.4", [">1.1.0,<2.0.0", ">=2.0.0"], "vllm<1.1.4,"),
        ("1.1.3", [">1.1.0,<2.0.0", ">=2.0.0"], "vllm<=1.1.0,"),  # withdrawn: no list has it
        ("2.0.0", [">=2.0.0"], "or go back: vllm<1.1.4"),
        ("0.5", ["<1.0.0"], "vllm>=1.0.0,<1.1.4,"),  # too old: the first release that was read has it
    ],
)
def test_an_error_decides_what_the_releases_around_it_leave_open(version: str, bad: list[str], remedy: str) -> None:
    apis = {"vllm": Api({"vllm.moved:": {"+0 -2.0.0": ""}}, {}, ["1.0.0", "1.1.0", "2.0.0"], ["1.1.4"])}
    environment = requirements.of_versions("a report", {"vllm": version})
    case = Case(environment, error="No module named 'vllm.moved'", knowledge=Knowledge(apis=apis))
    (finding,) = [finding for finding in diagnose.findings(case) if finding.rule == "moved-name"]
    assert (finding.confidence, finding.ranges["vllm"]) == ("likely", bad)
    unread = [line for line in finding.evidence if "was not read" in line]
    assert len(unread) == (version != "2.0.0")
    assert any(line.startswith(remedy) for line in finding.remedy)
