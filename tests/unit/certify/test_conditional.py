"""The real advisories on the real locks: what `vetted use` writes, and what a run makes of it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from builder.base.project import Project
from builder.certify import conditional, control, verdict
from builder.certify.verdict import folder
from builder.intent import stack
from builder.lock import lockfile
from builder.lock.lockfile import Lock
from runtime import task
from runtime.check import Check
from runtime.config import advisories, sharding
from runtime.config.options import Option
from runtime.config.run import Machine, Run
from runtime.config.sharding import Sharding
from tests.conftest import ROOT, TINY, Small

PROJECT = Project(ROOT)
EXAMPLES = [*(ROOT / "examples/arithmetic").glob("*.yaml"), *(ROOT / "examples/gsm8k").glob("*.yaml")]
GPUS = ("NVIDIA H200", "NVIDIA H200")
# Options with their defaults: those of TRL 0.15, and of 0.18 and later.
OLD = {"use_vllm": False, "vllm_device": "auto", "gradient_checkpointing": False, "bf16": False, "beta": 0.04}
NEW = {"use_vllm": False, "vllm_mode": "colocate", "gradient_checkpointing": True, "bf16": None, "temperature": 1.0}
# What people do, each as settings, and what else is true of the run.
USUAL: dict[str, tuple[Mapping[str, Any], Mapping[str, Any]]] = {
    "the built-in task": (task.CONFIG, {}),
    "LoRA": ({"use_peft": True}, {}),
    "4 bits": ({"use_peft": True, "load_in_4bit": True}, {}),
    "two processes": ({}, {"ranks": 2, "launcher": "torchrun"}),
    "4 bits on two GPUs": ({"use_peft": True, "load_in_4bit": True}, {"ranks": 2, "launcher": "torchrun"}),
    "ZeRO-3": ({}, {"ranks": 2, "launcher": "accelerate", "sharding": Sharding(stage=3)}),
    "ZeRO-2": ({"gradient_accumulation_steps": 4}, {"ranks": 2, "sharding": Sharding(stage=2)}),
    "FSDP": ({}, {"ranks": 2, "launcher": "accelerate", "sharding": Sharding(fsdp=True)}),
    "vLLM": ({"use_vllm": True}, {}),
    "vLLM that sleeps": ({"use_vllm": True, "vllm_enable_sleep_mode": True}, {}),
    "another temperature": ({"use_vllm": True, "temperature": 0.7}, {}),
    "masked": ({"mask_truncated_completions": True, "num_iterations": 2, "eval_on_start": True}, {}),
}
Look = Callable[..., list[Check]]


@pytest.fixture
def look(tmp_path: Path) -> Look:
    """What the check says of a run of a stack: its lock, the settings, and what else is true of the run."""

    def checks(
        lock: Lock, settings: Mapping[str, Any], trainer: str = "grpo", gpus: tuple[str, ...] = GPUS, **run: Any
    ) -> list[Check]:
        conditional.write(PROJECT, lock, tmp_path / "run/vetted", tmp_path)
        defaults = OLD if lock.versions["trl"].startswith("0.15") else NEW
        options = {name: Option(name, "", default) for name, default in defaults.items()}
        description = {"stack": lock.name, "lock": lock.digest}
        return advisories.look(Run(trainer, settings, options, **run), Machine(gpus), description, tmp_path)

    return checks


@pytest.mark.parametrize("name", stack.names(PROJECT))
@pytest.mark.parametrize("usual", USUAL)
def test_what_people_do_in_a_committed_stack_is_no_finding(look: Look, name: str, usual: str) -> None:
    settings, run = USUAL[usual]
    assert look(lockfile.load(PROJECT, name), settings, gpus=GPUS[: run.get("ranks", 1)], **run) == []


@pytest.mark.parametrize("name", stack.names(PROJECT))
def test_no_example_is_a_finding_in_a_committed_stack(look: Look, name: str) -> None:
    lock = lockfile.load(PROJECT, name)
    for path in EXAMPLES:
        settings = yaml.safe_load(path.read_bytes())
        ranks = 2 if "zero3" in path.name else 1
        shards = sharding.read(settings, {}, path.parent)
        assert shards.stage == (3 if ranks == 2 else None)
        launcher = "torchrun" if ranks == 2 else "python"
        assert look(lock, settings, gpus=GPUS[:ranks], ranks=ranks, launcher=launcher, sharding=shards) == [], path


def test_an_adapter_and_vllm_in_trl_0_15_are_advised_against_with_the_way_out(look: Look) -> None:
    """It was read, not run: TRL 0.15 fails for some ways of wrapping a model. So nothing is refused."""
    lock = lockfile.load(PROJECT, "trl0.15-cu124")
    (check,) = look(lock, {"use_vllm": True, "use_peft": True})
    assert check.level == "advice"
    assert check.message.startswith("VETTED-0100: GRPO with an adapter and vLLM in TRL 0.14 and 0.15")
    assert check.next_step == (
        "such runs were reported to fail (use_vllm true, use_peft true)\n"
        "         use_vllm=False, or a stack with trl>=0.28.0"
    )


def test_what_a_patch_of_the_stack_mends_is_no_finding(look: Look) -> None:
    """Both wrap a 4-bit model in DataParallel where one process sees two GPUs; one is patched."""
    settings = {"load_in_4bit": True, "use_peft": True}
    (check,) = look(lockfile.load(PROJECT, "trl1.13-cu128"), settings)
    assert check.message.startswith("VETTED-0012:")
    assert look(lockfile.load(PROJECT, "trl1.13-cu128"), settings, gpus=GPUS[:1]) == []
    assert look(lockfile.load(PROJECT, "trl0.15-cu124"), settings) == []


def test_what_trains_wrongly_is_advice(look: Look) -> None:
    lock = control.load(PROJECT, "trl0.21-transformers4.57").bad
    (check,) = look(lock, {})
    assert (check.level, check.message[:11]) == ("advice", "VETTED-0007")
    assert "such a run trains wrongly, and no error says so (vllm mode off, gradient_checkpointing true)" in str(check)
    assert "gradient_checkpointing=False" in str(check)
    assert look(lock, {"gradient_checkpointing": False}) == []
    assert look(lock, {}, trainer="sft") == []  # it is TRL's, and was seen in GRPO


def test_a_crash_under_zero_3_is_refused(look: Look) -> None:
    lock = control.load(PROJECT, "deepspeed0.19.2").bad
    settings, run = {"use_peft": True, "bf16": True}, {"ranks": 2, "sharding": Sharding(stage=3)}
    assert [(check.level, check.message[:11]) for check in look(lock, settings, **run)] == [("stop", "VETTED-0026")]
    assert look(lock, settings, ranks=2) == []


def test_no_entry_needs_what_only_a_person_knows() -> None:
    for name in stack.names(PROJECT):
        for entry in conditional.of_stack(PROJECT, lockfile.load(PROJECT, name)):
            assert entry["conditions"] and "note" not in entry["conditions"]
            assert entry["remedy"] and entry["when"]


def test_it_lies_beside_the_verdict_and_not_in_the_image(small: Small) -> None:
    target = folder(small.project, TINY)
    verdict.write(small.project, small.lock, "sha256:" + "a" * 64, [], target, small.scratch())
    document = json.loads((target / conditional.FILE).read_text())
    assert document == {"stack": TINY, "lock": small.lock.digest, "advisories": []}
    assert conditional.FILE == advisories.FILE
