"""Runs one step of the run monitor on a device that is not the CPU, and prints its numbers as JSON.

The device is torch's "meta": its tensors have shapes and no values, and like a GPU's they cannot be joined with others.
`--spread`: a part of the model is on the CPU.
"""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace
from typing import Any

import numpy
import torch

from runtime.monitor.hooks import Guard
from runtime.monitor.observer import Observer

ROWS, TOKENS, WIDTH = 8, 6, 32
DEVICE = "meta"


class GRPOTrainer:
    """What the monitor uses of TRL's trainer."""

    num_generations, num_iterations, beta, epsilon_high = 4, 1, 0.1, 0.2

    def __init__(self, second: str) -> None:
        self.model = model(DEVICE, second)
        self.args = SimpleNamespace(beta=0.1, use_vllm=True, steps_per_generation=1, get_warmup_steps=lambda _: 0)
        self.state = SimpleNamespace(global_step=0, max_steps=1)
        self.accelerator = SimpleNamespace(process_index=0, num_processes=2, unwrap_model=lambda model: model)
        self.processing_class = SimpleNamespace(eos_token_id=1, pad_token_id=0)
        runner = SimpleNamespace(model=model(DEVICE, DEVICE))
        executor = SimpleNamespace(driver_worker=SimpleNamespace(model_runner=runner))
        self.llm = SimpleNamespace(llm_engine=SimpleNamespace(model_executor=executor), generate=lambda: None)

    def _move_model_to_vllm(self) -> None: ...

    def _calculate_rewards(self) -> Any:
        return torch.zeros(ROWS, 1, device=DEVICE)

    def _generate_and_score_completions(self) -> dict[str, Any]:
        self._move_model_to_vllm()
        self.llm.generate()
        self._calculate_rewards()
        ids = torch.ones(ROWS, TOKENS, dtype=torch.long, device=DEVICE)
        numbers = torch.zeros(ROWS, TOKENS, device=DEVICE)
        return {
            "prompt_ids": ids, "completion_ids": ids, "completion_mask": ids, "advantages": numbers[:, 0],
            "ref_per_token_logps": numbers, "old_per_token_logps": numbers, "sampling_per_token_logps": numbers,
        }  # fmt: skip

    def _get_per_token_logps_and_entropies(self) -> tuple[Any, Any]:
        logps = self.model[0].sum().expand(ROWS, TOKENS) * 1.0
        return logps, logps.detach()

    def compute_loss(self, _model: Any, inputs: Any) -> Any:
        return -(self._get_per_token_logps_and_entropies()[0] * inputs["advantages"][:, None]).mean()


def model(*devices: str) -> Any:
    """A model of one weight on each device."""
    return torch.nn.ParameterList(torch.zeros(WIDTH, WIDTH, device=device) for device in devices)


def failed(error: Exception) -> None:
    raise error


def alone(_: Any) -> bool:
    raise AssertionError("a number is fetched alone")


def main() -> None:
    trainer = GRPOTrainer("cpu" if "--spread" in sys.argv else DEVICE)
    observer = Observer(trainer, Guard(failed))
    observer.begin(trainer.model)
    trainer.compute_loss(trainer.model, trainer._generate_and_score_completions()).backward()
    trainer.model[1].grad = torch.zeros_like(trainer.model[1])
    observer.unscaled()
    observer.pending.add("tokens", torch.zeros(()))  # of a part on the CPU
    print(json.dumps({"absent": observer.absent, "numbers": observer.row()}))


if __name__ == "__main__":
    # There are no values: each is zero. And none may be fetched alone: a GPU's would be waited for.
    torch.Tensor.tolist = lambda tensor: numpy.zeros(tuple(tensor.shape)).tolist()
    torch.Tensor.__bool__ = alone
    main()
