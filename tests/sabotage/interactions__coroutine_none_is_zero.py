"""Does interactions notice that a coroutine's None is taken for a reward of 0?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("metric_error",)


def break_it() -> None:
    from trl import GRPOTrainer

    def wrong(right: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        first, second = self.reward_funcs

        async def zero(**columns: Any) -> Any:
            return [reward or 0.0 for reward in await second(**columns)]

        self.reward_funcs = [first, zero]
        try:
            return right(self, *args, **kwargs)
        finally:
            self.reward_funcs = [first, second]

    replace(GRPOTrainer, "_calculate_rewards", wrong)


PROBE, run = sabotage("interactions", break_it, rows={"rewards": "none for some prompts", "prompts": "chat"})
