"""The data that the doctor carries."""

from __future__ import annotations

from builder.base.project import Project
from builder.intent import advisory, stack
from builder.pages import generate, knowledge
from tests.unit.doctor.kit import KNOWLEDGE


def test_what_it_knows_is_what_the_project_holds_today(real: Project) -> None:
    assert knowledge.path(real) not in generate.stale(real)
    assert {entry["id"] for entry in KNOWLEDGE.advisories} == set(advisory.names(real))
    assert [entry["name"] for entry in KNOWLEDGE.stacks] == stack.names(real)


def test_the_names_of_releases_are_those_of_the_published_wheels() -> None:
    known = {
        ("transformers", "transformers:HybridCache"): "-5.0.0",
        ("transformers", "PreTrainedModel.warnings_issued"): "-5.1.0",
        ("trl", "trl:GRPOConfig"): "+0.14.0",
        ("trl", "GRPOConfig(vllm_mode"): "+0.18.0",
        ("peft", "peft.utils.save_and_load:_maybe_shard_state_dict_for_tp"): "+0.19.0",
    }
    for (package, fact), change in known.items():
        assert change in KNOWLEDGE.apis[package].changes[fact].split()
    assert "transformers>=4.56.2" in KNOWLEDGE.requires("trl")["1.16.0"]
