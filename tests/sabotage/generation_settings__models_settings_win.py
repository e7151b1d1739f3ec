"""Does generation-settings notice a model whose settings win over all those asked for?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("defaults_distance", "unusual_distance", "length_error")


def break_it() -> None:
    from transformers import GenerationMixin

    def prepare(right: Any, model: Any, settings: Any, **kwargs: Any) -> Any:
        settings.update(**model.generation_config.to_diff_dict())
        return right(model, settings, **kwargs)

    replace(GenerationMixin, "_prepare_generation_config", prepare)


PROBE, run = sabotage("generation-settings", break_it)
