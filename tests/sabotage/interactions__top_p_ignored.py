"""Does interactions notice that top_p is accepted and has no effect?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("sampling_distance",)


def break_it() -> None:
    from transformers.generation.logits_process import TopPLogitsWarper

    def ignored(_right: Any, _self: Any, _ids: Any, scores: Any) -> Any:
        return scores

    replace(TopPLogitsWarper, "__call__", ignored)


PROBE, run = sabotage("interactions", break_it, rows={"sampling": "hot, top-p", "architecture": "llama"})
