"""Run by the stack's Python with TRITON_INTERPRET=1: TRL's Triton kernels of the GRPO loss against float64, on the CPU.

Prints the largest difference of each output and gradient, as JSON.
"""

from __future__ import annotations

import json
from typing import Any

import torch
from trl.kernels import chunked_logprob, logprob_entropy

# No size is a multiple of a block or a chunk.
TOKENS, HIDDEN, VOCABULARY, CHUNK, TEMPERATURE = 7, 16, 2603, 1100, 0.7


def reference(logits: Any, targets: Any) -> tuple[Any, Any]:
    """The log-probability of each target and the entropy of each row, (TOKENS,), in nats."""
    logs = (logits.double() / TEMPERATURE).log_softmax(-1)
    return logs.gather(-1, targets[:, None])[:, 0], -(logs.exp() * logs).sum(-1)


def differences(
    outputs: tuple[Any, Any], inputs: list[Any], expected: tuple[Any, Any], exact_inputs: list[Any]
) -> list[float]:
    """Those of log-probabilities and entropy, and of the gradient of a sum of both by each input."""
    values = [(output.double() - exact).abs().max().item() for output, exact in zip(outputs, expected, strict=True)]
    weights = torch.linspace(-1, 1, TOKENS)
    gradients = torch.autograd.grad((outputs[0] * weights + 0.3 * outputs[1] * weights).sum(), inputs)
    exact = torch.autograd.grad((expected[0] * weights + 0.3 * expected[1] * weights).sum(), exact_inputs)
    return values + [(mine - right).abs().max().item() for mine, right in zip(gradients, exact, strict=True)]


def main() -> None:
    torch.manual_seed(0)
    targets = torch.randint(VOCABULARY, (TOKENS,))
    hidden = torch.randn(TOKENS, HIDDEN, requires_grad=True)
    weight = torch.randn(VOCABULARY, HIDDEN, requires_grad=True)
    exact = [tensor.detach().double().requires_grad_() for tensor in (hidden, weight)]
    chunked_logprob._use_triton = lambda _: True
    function = chunked_logprob.ChunkedLogProbFunction
    outputs = function.apply(hidden, weight, None, targets, TEMPERATURE, CHUNK, None, 1.0, ("entropy",))[:2]
    chunked = differences(outputs, [hidden, weight], reference(exact[0] @ exact[1].T, targets), exact)

    logits = torch.randn(TOKENS, VOCABULARY, requires_grad=True)
    right = logits.detach().double().requires_grad_()
    outputs = logprob_entropy.selective_log_softmax_and_entropy(logits, targets, TEMPERATURE)
    whole = differences(outputs, [logits], reference(right, targets), [right])
    print(json.dumps({"chunked": chunked, "whole": whole}))


if __name__ == "__main__":
    main()
