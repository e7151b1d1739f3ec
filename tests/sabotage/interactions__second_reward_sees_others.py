"""Does interactions notice that only the first reward function is shown each completion beside its own prompt?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("data_wrong",)


def break_it() -> None:
    from trl import GRPOTrainer

    def wrong(right: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        first, second = self.reward_funcs

        def of_others(completions: list[Any], **columns: Any) -> Any:
            return second(completions=completions[::-1], **columns)

        self.reward_funcs = [first, of_others]
        try:
            return right(self, *args, **kwargs)
        finally:
            self.reward_funcs = [first, second]

    replace(GRPOTrainer, "_calculate_rewards", wrong)


PROBE, run = sabotage("interactions", break_it, rows={"rewards": "none for some completions", "adapter": "LoRA"})
