"""Does qlora-no-dataparallel notice a 4-bit model that is wrapped like any other?"""

from __future__ import annotations

from typing import Any

from tests.sabotage._break import replace, sabotage

CAUGHT_BY = ("wrapped_4bit",)


def break_it() -> None:
    import torch
    from transformers import Trainer
    from trl import GRPOTrainer

    def init(right: Any, trainer: Any, *, args: Any, **kwargs: Any) -> None:
        args._n_gpu, gpus = 1, args.n_gpu  # it refuses to start with more
        right(trainer, args=args, **kwargs)
        args._n_gpu = gpus

    replace(GRPOTrainer, "__init__", init)
    replace(Trainer, "_wrap_model", lambda _, __, model: torch.nn.DataParallel(model))


PROBE, run = sabotage("qlora-no-dataparallel", break_it)
