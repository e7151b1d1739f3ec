"""Does generation-settings notice a model whose settings win over those asked for that equal a default?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("defaults_distance",)


def break_it() -> None:
    from transformers import GenerationConfig, GenerationMixin

    def prepare(right: Any, model: Any, settings: Any, **kwargs: Any) -> Any:
        default = GenerationConfig()._get_default_generation_params()
        for name, value in model.generation_config.to_dict().items():
            if name in default and getattr(settings, name) == default[name]:
                setattr(settings, name, value)
        return right(model, settings, **kwargs)

    replace(GenerationMixin, "_prepare_generation_config", prepare)


PROBE, run = sabotage("generation-settings", break_it)
