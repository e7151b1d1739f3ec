"""Does eval-during-training notice a prompt that takes another one's place in an evaluation?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("eval_prompts_wrong",)


def break_it() -> None:
    from trl import GRPOTrainer

    def sample(right: Any, *args: Any) -> Any:
        return [max(1, index) for index in right(*args)]

    replace(GRPOTrainer, "_get_eval_sampler", sample)


PROBE, run = sabotage("eval-during-training", break_it)
