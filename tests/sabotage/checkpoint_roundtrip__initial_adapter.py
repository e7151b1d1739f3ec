"""Does checkpoint-roundtrip notice an adapter that is saved as it was before training?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("adapter_different", "adapter_untrained", "adapter_tokens_different")


def break_it() -> None:
    from trl.trainer import grpo_trainer

    def wrap(right: Any, *args: Any, **kwargs: Any) -> Any:
        policy = right(*args, **kwargs)
        first = {name: weight.clone() for name, weight in policy.state_dict().items() if "lora_" in name}
        replace(policy, "save_pretrained", lambda save, *a, **k: save(*a, **{**k, "state_dict": first}))
        return policy

    replace(grpo_trainer, "get_peft_model", wrap)


PROBE, run = sabotage("checkpoint-roundtrip", break_it)
