"""A name that moved is fixed by the package that asks for it, where a release of it does without."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from doctor.answer import commands, diagnose
from doctor.case import Case
from doctor.checks import asking
from doctor.know import data
from doctor.know.data import Api, Knowledge
from doctor.read import requirements
from scripts import use_history

USES = {
    "trl": {"vllm.sampling_params:GuidedDecodingParams": "0.27.0", "Accelerator(dispatch_batches": "0.9.0"},
    "verl": {"vllm.lora.models:": "0.7.0", "requires pyairports": "0.2.0"},
    "sglang": {"vllm.lora.models:": "0.5.0"},
}
APIS = {
    "vllm": Api({"": {"+0 -0.12.0": "vllm.sampling_params:GuidedDecodingParams", "+0 -0.13.0": "vllm.lora.models:"}}),
    "accelerate": Api({"": {"+0 -1.0.0": "Accelerator(dispatch_batches"}}),
}
KNOWLEDGE = Knowledge(apis=APIS, uses=USES)
MOVED = (
    "ImportError: cannot import name 'GuidedDecodingParams' from 'vllm.sampling_params' (/x/vllm/sampling_params.py)"
)


def case(packages: dict[str, str], error: str, whole: bool = False) -> Case:
    environment = requirements.of_versions("a report", packages)
    environment.complete = whole
    return Case(environment, error=error, knowledge=KNOWLEDGE)


def test_the_caller_is_upgraded_and_the_package_is_the_second_way() -> None:
    of = case({"trl": "0.25.0", "vllm": "0.12.0"}, MOVED)
    (finding,) = diagnose.findings(of)
    assert finding.packages == {"trl": "0.25.0", "vllm": "0.12.0"}
    assert finding.remedy[0] == "trl>=0.27.0, which does without it"
    assert finding.remedy[1].startswith("or go back: vllm<0.12.0")
    commands.add(of, [finding])
    assert finding.commands == ["uv pip install 'trl>=0.27.0,<0.28'"]


@pytest.mark.parametrize(
    ("packages", "error", "whole", "expected"),
    [
        ({"trl": "0.25.0"}, MOVED, False, "trl"),
        ({"trl": "0.28.0"}, MOVED, False, None),  # this one does not ask for it
        ({}, MOVED, False, None),  # it may be the user's own code that asks
        ({}, 'File "/x/site-packages/trl/a.py", line 1\n' + MOVED, False, "trl"),
        ({}, "trl grpo: " + MOVED, False, "trl"),
        ({"vllm": "0.12.0"}, 'File "/x/site-packages/trl/a.py"\n' + MOVED, True, None),  # it is not installed
    ],
)
def test_only_a_caller_that_there_is_evidence_for(
    packages: dict[str, str], error: str, whole: bool, expected: str | None
) -> None:
    caller = asking.only(case(packages, error, whole), "vllm.sampling_params:GuidedDecodingParams")
    assert (caller.package if caller else None) == expected


def test_of_two_callers_the_one_of_the_last_frame() -> None:
    frames = 'File "/x/site-packages/sglang/a.py"\nFile "/x/site-packages/verl/b.py"\n'
    callers = asking.of_name(case({}, frames), "vllm.lora.models:")
    assert [caller.package for caller in callers] == ["verl", "sglang"]
    assert asking.only(case({}, ""), "vllm.lora.models:", alone=True) is None


def test_a_parameter_is_asked_for_too() -> None:
    error = "TypeError: Accelerator.__init__() got an unexpected keyword argument 'dispatch_batches'"
    (finding,) = diagnose.findings(case({"trl": "0.8.0", "accelerate": "1.2.0"}, error))
    assert finding.remedy[0] == "trl>=0.9.0, which does without it"


def test_a_distribution_that_is_gone_from_the_index_is_asked_for_by_an_old_release() -> None:
    error = "Because pyairports was not found in the package registry and you require pyairports, we can conclude"
    (finding,) = diagnose.findings(case({"verl": "0.1.0"}, error))
    assert (finding.rule, finding.confidence, finding.remedy) == ("absent-distribution", "likely", ["verl>=0.2.0"])
    (finding,) = diagnose.findings(case({}, "importlib.metadata.PackageNotFoundError: flashinfer"))
    assert "now called flashinfer-python" in finding.title
    assert not diagnose.findings(case({}, "PackageNotFoundError: No package metadata was found for left-pad"))


SOURCE = """
import vllm.lora.models
from transformers import Trainer, old_name
from . import local
from vllm import LLM as Engine
from torch.distributed import *
try:
    from vllm.a import guarded
except ImportError:
    guarded = None
if Version(vllm.__version__) < Version("0.12"):
    from vllm.b import of_an_old_release
if is_vllm_available():
    from vllm.c import needed
try:
    from vllm.d import reached
finally:
    pass
Trainer(tokenizer=1, **more)
unknown(tokenizer=1)
"""


def test_what_counts_as_used() -> None:
    assert use_history.uses_of(SOURCE) == {
        "vllm.lora.models:", "transformers:", "transformers:Trainer", "transformers:old_name", "vllm:", "vllm:LLM",
        "vllm.c:", "vllm.c:needed", "vllm.d:", "vllm.d:reached", "Trainer(tokenizer", "torch.distributed:",
    }  # fmt: skip
    assert use_history.uses_of("not python(") == set()


def test_a_name_is_dropped_by_the_release_after_the_last_that_used_it(tmp_path: Path) -> None:
    for version, uses in {"0.9.0": ["a:x", "a:y"], "0.10.0": ["a:x", "a:z"], "0.11.0": ["a:z"]}.items():
        (tmp_path / f"trl=={version}.uses.json").write_text(json.dumps(uses))
    assert use_history.dropped("trl", tmp_path) == {"a:x": "0.11.0", "a:y": "0.10.0"}


def test_what_is_shipped_names_releases_of_known_callers() -> None:
    assert use_history.wrong(use_history.FOLDER) == []
    uses = data.load().uses
    assert set(uses) <= set(use_history.CALLERS)
    assert uses["trl"]["vllm.sampling_params:GuidedDecodingParams"] == "0.27.0"
