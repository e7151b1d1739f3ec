"""Does interactions notice that a reward model is shown the texts of an evaluation in another order?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("data_wrong",)


def break_it() -> None:
    from trl import GRPOTrainer

    def wrong(right: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        first, tokenizer = self.reward_processing_classes

        def reversed_texts(text: list[str], **options: Any) -> Any:
            return tokenizer(text=text[::-1], **options)

        self.reward_processing_classes = [first, tokenizer if self.model.training else reversed_texts]
        try:
            return right(self, *args, **kwargs)
        finally:
            self.reward_processing_classes = [first, tokenizer]

    replace(GRPOTrainer, "_calculate_rewards", wrong)


PROBE, run = sabotage("interactions", break_it, rows={"rewards": "two weighted", "evaluation": "at start and between"})
