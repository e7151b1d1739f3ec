"""Compares the direction that the monitor expects of a gradient with that of TRL's own loss, and prints the angles.

The old policy's log-probabilities differ from the new one's, as dropout makes them, and so do the sampler's.
"""

from __future__ import annotations

import itertools
import json
from collections import defaultdict
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
from trl import GRPOTrainer

from runtime.monitor import loss, run

ROWS, TOKENS = 16, 24
LOSSES = ("grpo", "bnpo", "dr_grpo", "dapo", "luspo", "cispo", "sapo", "vespo")
LEVELS = ("token", "sequence")
CORRECTIONS = ("none", "token", "sequence")  # whether vLLM's log-probabilities are corrected for, and by which ratio
EXTRAS: tuple[dict[str, Any], ...] = (
    {}, {"delta": 1.1}, {"off_policy_mask_threshold": 0.0}, {"epsilon": 3e-4}, {"epsilon_high": 2.0},
)  # fmt: skip
ARGUMENTS: dict[str, Any] = {
    "epsilon": 0.2, "epsilon_high": None, "delta": None, "sapo_temperature_pos": 1.0, "sapo_temperature_neg": 1.05,
    "vespo_k_pos": 2.0, "vespo_lambda_pos": 3.0, "vespo_k_neg": 3.0, "vespo_lambda_neg": 2.0,
    "off_policy_mask_threshold": None, "use_bias_correction_kl": False, "steps_per_generation": 1,
}  # fmt: skip


def trainer(kind: str, level: str, correction: str, beta: float, extra: dict[str, Any]) -> Any:
    """A trainer as far as its loss needs one."""
    arguments = SimpleNamespace(**{**ARGUMENTS, **extra})
    made = object.__new__(GRPOTrainer)
    high = arguments.epsilon if arguments.epsilon_high is None else arguments.epsilon_high
    vars(made).update(
        args=arguments, loss_type=kind, importance_sampling_level=level, beta=beta, epsilon_low=arguments.epsilon,
        epsilon_high=high, top_entropy_quantile=1.0, use_vllm=correction != "none",
        off_policy_mask_threshold=arguments.off_policy_mask_threshold, max_completion_length=TOKENS,
        vllm_importance_sampling_correction=correction != "none", current_gradient_accumulation_steps=1,
        aux_loss_enabled=False, _entropy_bonus_enabled=False, model=SimpleNamespace(training=True),
        _metrics=defaultdict(lambda: defaultdict(list)),
        accelerator=SimpleNamespace(num_processes=1, gather=lambda x: x, reduce=lambda x, **_: x),
    )  # fmt: skip
    return made


def batch(dropout: float, correction: str) -> tuple[dict[str, Any], Any]:
    """What the loss is computed from, and the new policy's log-probabilities."""
    lengths = torch.randint(2, TOKENS + 1, (ROWS, 1))
    mask = (torch.arange(TOKENS) < lengths).long()
    logps = -torch.rand(ROWS, TOKENS) * 3
    old = logps + dropout * torch.randn(ROWS, TOKENS)
    sampled = old + 0.3 * torch.randn(ROWS, TOKENS)
    apart = (old - sampled) * mask
    ids = torch.ones(ROWS, 1, dtype=torch.long)
    inputs = {
        "prompt_ids": ids, "prompt_mask": ids, "completion_ids": mask, "completion_mask": mask,
        "advantages": torch.randn(ROWS), "old_per_token_logps": old, "num_items_in_batch": mask.sum(),
        "ref_per_token_logps": logps + 0.2 * torch.randn(ROWS, TOKENS),
    }  # fmt: skip
    if correction != "none":
        apart = apart.sum(-1, keepdim=True) if correction == "sequence" else apart
        inputs |= {"sampling_per_token_logps": sampled, "importance_sampling_ratio": apart.exp().clamp(0.02, 2.0)}
    return inputs, logps.requires_grad_()


def numbers(case: tuple[str, str, str, float, float, dict[str, Any]]) -> dict[str, float]:
    """The monitor's numbers of one loss."""
    kind, level, correction, beta, dropout, extra = case
    made = trainer(kind, level, correction, beta, extra)
    inputs, logps = batch(dropout, correction)
    made._get_per_token_logps_and_entropies = lambda *_, **__: (logps, torch.zeros_like(logps), None)
    made._compute_loss(made.model, inputs).backward()
    terms, pending = run.terms(made, fresh=True, first=False), loss.Pending()
    loss.on_gradient(pending, inputs, logps.detach(), logps.grad, terms)
    return pending.take()


def cases() -> Iterator[tuple[str, str, str, float, float, dict[str, Any]]]:
    yield from itertools.product(LOSSES, LEVELS, CORRECTIONS, (0.0, 0.1), (0.0, 0.1, 0.5), EXTRAS)
    yield from itertools.product(("grpo",), ("token",), ("token",), (0.1,), (0.5,), ({"use_bias_correction_kl": True},))


def main() -> None:
    for number, case in enumerate(cases()):
        kind, level, correction, *_ = case
        if kind == "vespo" and "sequence" in (level, correction):  # TRL refuses it
            continue
        torch.manual_seed(number)
        print(json.dumps({"case": case, **numbers(case)}))


if __name__ == "__main__":
    main()
