"""A stand-in for vLLM's engine: it notes what TRL hands over, and samples with the plain decoder from those weights.

So what happens on the way to the sampler shows in every environment, without vLLM: weights under which names, merged or
not, before or after a step; prompts in which order; settings; a cache that is not reset, a sleep that nobody ends. Its
logits are a little sharper than the policy's, as those of another implementation in another precision would be, so that
the correction for it has something to correct.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

from smoke.kit import adapter, decoder, journal, sampled, tiny
from smoke.kit.decoder import Shape
from smoke.kit.journal import Generation, Tokens, Weights

SHARPER = 1.1


@dataclass
class Handover:
    """What was wrong with what the engine was given, and what it sampled, to be called with each generation."""

    shape: Shape
    settings: dict[str, Any]
    # The weights that the policy has at this moment, merged, by their names in Transformers.
    policy: Callable[[], Weights] | None = None
    note: Callable[[Generation], None] | None = None
    wrong: list[str] = field(default_factory=list)
    error: float = 0.0


class _Engine:
    """In the place of vllm.LLM."""

    def __init__(self, handover: Handover, **arguments: Any) -> None:
        self._handover = handover
        self._model = Path(arguments["model"])
        self._processed = arguments.get("logprobs_mode") == "processed_logprobs"
        self._weights: Weights = {}
        self._cached = False
        model = SimpleNamespace(load_weights=self._load)
        # Where trainers look the model up.
        runner = SimpleNamespace(model_runner=SimpleNamespace(model=model))
        self.llm_engine = SimpleNamespace(model_executor=SimpleNamespace(driver_worker=runner))

    def _load(self, weights: Sequence[tuple[str, Any]]) -> None:
        for name, weight in weights:
            self._weights[name] = weight.detach().cpu().clone()
        self._cached = True

    def reset_prefix_cache(self) -> bool:
        """Forget what the last weights computed."""
        self._cached = False
        return True

    def collective_rpc(self, method: str, **_: Any) -> list[None]:
        """Do what TRL calls by name: "reload_weights" reads the model that the engine was started with."""
        from safetensors.torch import load_file

        if method != "reload_weights":
            raise NotImplementedError(method)
        self._weights = dict(load_file(self._model / "model.safetensors"))
        return [None]

    def sleep(self, level: int = 1) -> None:
        """At level 2 the weights are gone."""
        if level == 2:
            self._weights = {}

    def wake_up(self, tags: Sequence[str] | None = None) -> None:
        """Nothing to do: the weights do not come back by themselves."""

    def generate(self, prompts: Sequence[Any], sampling_params: Any, **_: Any) -> list[Any]:
        """A completion of every prompt, drawn with torch's own random numbers, and its log-probabilities."""
        handover = self._handover
        rows = [_tokens(prompt) for prompt in prompts]
        self._compare(sampling_params)
        if not self._weights:
            raise RuntimeError("asked to generate without weights")
        completions, processed, raw = _draw(handover, self._weights, rows)
        if handover.note is not None:
            handover.note(Generation(0, 0, rows, completions, logprobs=processed))
        shown = processed if self._processed else raw
        return [
            SimpleNamespace(
                prompt_token_ids=list(row),
                outputs=[
                    SimpleNamespace(
                        token_ids=list(completion),
                        logprobs=[
                            {token: SimpleNamespace(logprob=logprob, rank=1)}
                            for token, logprob in zip(completion, logprobs, strict=True)
                        ],
                    )
                ],
            )
            for row, completion, logprobs in zip(rows, completions, shown, strict=True)
        ]

    def _compare(self, sampling_params: Any) -> None:
        handover = self._handover
        if self._cached:
            handover.wrong.append("the prefix cache was not reset after new weights")
        offered = vars(sampling_params)
        for name, value in handover.settings.items():
            if offered.get(name) != value:
                handover.wrong.append(f"{name} is {offered.get(name)}, not {value}")
        if handover.policy is None:
            return
        expected = handover.policy()
        if handover.shape.tied:
            expected.pop("lm_head.weight", None)
        for name in sorted({*expected, *self._weights}):
            if name not in expected or name not in self._weights:
                if name != "lm_head.weight":
                    handover.wrong.append(f"{name} was {'not handed over' if name in expected else 'handed over'}")
                continue
            off = (self._weights[name].double() - expected[name]).norm() / expected[name].norm().clamp(min=1e-12)
            handover.error = max(handover.error, off.item())


def _tokens(prompt: Any) -> Tokens:
    if isinstance(prompt, dict):
        return tuple(prompt["prompt_token_ids"])
    return journal.tokens_of(prompt) if isinstance(prompt, str) else tuple(prompt)


def _draw(
    handover: Handover, weights: Weights, prompts: Sequence[Tokens]
) -> tuple[list[Tokens], list[list[float]], list[list[float]]]:
    """Completions, the log-probabilities that they were drawn with, and those without any settings."""
    import torch

    settings = handover.settings
    pad, end = (tiny.VOCABULARY.index(token) for token in tiny.SPECIAL[:2])
    # The embedding is loaded under one name only where it is also the output layer.
    rows = [list(prompt) for prompt in prompts]
    processed: list[list[float]] = [[] for _ in rows]
    raw: list[list[float]] = [[] for _ in rows]
    open_rows = list(range(len(rows)))
    double = {name: weight.double() for name, weight in weights.items()}
    for _ in range(settings["max_tokens"]):
        with torch.no_grad():
            logits = decoder.logits(handover.shape, double, [rows[i] for i in open_rows], pad)
        last = torch.stack([logits[j, len(rows[i]) - 1] for j, i in enumerate(open_rows)]).double() * SHARPER
        chances, _ = sampled.settled(settings, last)
        plain = last.log_softmax(dim=-1)
        drawn = torch.multinomial(chances, 1)[:, 0].tolist()
        for j, (i, token) in enumerate(zip(list(open_rows), drawn, strict=True)):
            rows[i].append(token)
            processed[i].append(chances[j, token].log().item())
            raw[i].append(plain[j, token].item())
        open_rows = [i for i, token in zip(list(open_rows), drawn, strict=True) if token != end]
        if not open_rows:
            break
    completions = [tuple(row[len(prompt) :]) for row, prompt in zip(rows, prompts, strict=True)]
    return completions, processed, raw


@contextlib.contextmanager
def in_place_of_vllm(handover: Handover) -> Iterator[None]:
    """A context in which trainers start this engine."""
    module = adapter.engine_module()

    def start(**arguments: Any) -> _Engine:
        return _Engine(handover, **arguments)

    replaced = {
        "LLM": start,
        "SamplingParams": SimpleNamespace,
        "GuidedDecodingParams": SimpleNamespace,
        "is_vllm_available": lambda *_, **__: True,
    }
    with contextlib.ExitStack() as stack:
        for name, value in replaced.items():
            # Without vLLM the module has no such names; they stay for the process, which ends after the row.
            stack.enter_context(mock.patch.object(module, name, value, create=True))
        yield
