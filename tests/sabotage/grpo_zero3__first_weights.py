"""Does grpo-zero3 notice a sampler that keeps the first weights?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("last_generation_diff",)


def break_it() -> None:
    from transformers import GenerationMixin

    first: dict[str, Any] = {}

    def generate(right: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
        # Gathered for the generation, and afterwards forgotten.
        for name, weight in model.named_parameters():
            weight.data.copy_(first.setdefault(name, weight.detach().clone()))
        return right(model, *args, **kwargs)

    replace(GenerationMixin, "generate", generate)


PROBE, run = sabotage("grpo-zero3", break_it)
