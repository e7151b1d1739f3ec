"""Does checkpoint-roundtrip notice a checkpoint of the model as it was before training?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("tensors_different", "tensors_untrained", "tokens_different")


def break_it() -> None:
    from transformers import AutoModelForCausalLM, Trainer

    def save(right: Any, trainer: Any, directory: str, **kwargs: Any) -> None:
        right(trainer, directory, **kwargs)
        AutoModelForCausalLM.from_pretrained(trainer.model.name_or_path).save_pretrained(directory)

    replace(Trainer, "save_model", save)


PROBE, run = sabotage("checkpoint-roundtrip", break_it)
