"""Does eval-during-training notice a sampler that keeps the first weights?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("new_policy_gain",)


def break_it() -> None:
    from transformers import GenerationMixin

    first: dict[int, Any] = {}

    def generate(right: Any, model: Any, *args: Any, **kwargs: Any) -> Any:
        now = {name: weight.clone() for name, weight in model.state_dict().items()}
        model.load_state_dict(first.setdefault(id(model), now))
        completions = right(model, *args, **kwargs)
        model.load_state_dict(now)
        return completions

    replace(GenerationMixin, "generate", generate)


PROBE, run = sabotage("eval-during-training", break_it)
