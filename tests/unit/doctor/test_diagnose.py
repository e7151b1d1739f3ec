"""Which finding comes first, and when there is none."""

from __future__ import annotations

import pytest

from doctor.answer import diagnose
from doctor.case import Case
from doctor.read import requirements
from tests.unit.doctor.kit import KNOWLEDGE, reported, rules


def test_the_worst_comes_first_when_there_is_no_error() -> None:
    packages = {"trl": "0.14.0", "transformers": "4.52.4", "peft": "0.17.0", "numpy": "2.1", "vllm": "0.7.2"}
    findings = [finding for finding in diagnose.findings(reported(packages)) if finding.confidence == "certain"]
    assert [finding.severity for finding in findings] == sorted(
        (finding.severity for finding in findings), key=("silent-wrong", "hang", "crash", "waste", "resolve").index
    )
    assert {finding.severity for finding in findings} >= {"silent-wrong", "resolve"}


@pytest.mark.parametrize(
    "error",
    [
        "",
        "Why does the loss start at 0 when I train GRPO, and then possibly increase?",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB",
        "ValueError: The global train batch size (7 x 1) must be evenly divisible by the number of generations",
        "{'loss': 0.0, 'grad_norm': 0.0, 'reward_std': 0.0, 'frac_reward_zero_std': 1.0}",
        "KeyError: 'prompt'",
        "FileNotFoundError: [Errno 2] No such file or directory: 'data/train.jsonl'",
        "The reward does not increase after 200 steps with a learning rate of 1e-6.",
        "huggingface_hub.errors.GatedRepoError: 401 Client Error: access to model is restricted",
        "AssertionError",
        "ModuleNotFoundError: No module named 'math_verify'",
        "IndexError: pop from an empty deque",
        "AttributeError: 'NoneType' object has no attribute 'start'",
        "RuntimeError: NCCL communicator was aborted on rank 3: watchdog timeout",
        "ImportError: cannot import name 'reward' from 'my_rewards' (/home/me/my_rewards.py)",
        "TypeError: GRPOTrainer.__init__() got an unexpected keyword argument 'reward_fn'",
        "ValueError: too many values to unpack (expected 2)",
        "Expected all tensors to be on the same device, but found at least two devices, cuda:0 and cuda:1!",
        "RuntimeError: expected scalar type Half but found Float",
        "RuntimeError: The size of tensor a (10) must match the size of tensor b (11) at non-singleton dimension 1",
        "The model answers in the wrong language since I lowered the temperature.",
        "kl is negative in the first steps of GRPO, is that a bug?",
        "How do I use GRPO with two reward functions in trl?",
    ],
)
def test_what_is_nobodys_version_is_not_blamed_on_one(error: str) -> None:
    certified = next(finding for finding in KNOWLEDGE.stacks if finding["certified"])
    nothing: dict[str, str] = {}
    for packages in (nothing, certified["versions"]):
        assert [finding.rule for finding in diagnose.findings(reported(packages, error)) if finding.sure] == []


def test_nothing_is_known_to_be_wrong_with_a_stack_of_ours() -> None:
    for locked in KNOWLEDGE.stacks:
        lines = "".join(f"{name}=={version}\n" for name, version in locked["versions"].items())
        case = Case(requirements.of_lines(locked["name"], lines), knowledge=KNOWLEDGE)
        assert [(finding.rule, finding.title) for finding in diagnose.findings(case) if finding.sure] == [], locked[
            "name"
        ]


def test_a_guess_stands_behind_what_is_sure_unless_an_error_was_raised() -> None:
    packages = {"trl": "0.15.2", "transformers": "4.48.3"}
    guess = "it broke after upgrading deepspeed from 0.15.0 to 0.16.0"
    assert rules(reported(packages, guess))[:2] == ["VETTED-0003", "told"]
    assert rules(reported(packages, f"SomeError: {guess}"))[:2] == ["told", "VETTED-0003"]
