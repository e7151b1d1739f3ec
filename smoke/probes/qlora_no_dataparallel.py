"""Is a 4-bit model kept out of nn.DataParallel when one process sees several GPUs?

Catches the failure of `python train.py` on a machine with several GPUs: Trainer wraps the model in nn.DataParallel,
which copies it to all of them without its scales, and the first step fails with "All input tensors need to be on the
same GPU, but found some tensors to not be on a GPU". transformers excludes 4-bit models since 5.6; TRL refuses since
1.15.

Creates a trainer for a 4-bit model with an adapter, and one for a plain model to compare with, with two visible GPUs,
and checks how Trainer wraps them. On a CPU, torch is patched to report two GPUs, which is all that Trainer checks; no
training. Needs one process; on GPUs, two of them.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from unittest import mock

from smoke.kit import grpo, quantized, tiny
from smoke.probe import Bound, Context, Probe, Reading

GPUS = 2

PROBE = Probe(
    matters="on a machine with several GPUs the run fails in its first step, unless a launcher starts it",
    bounds=(
        Bound(
            "wrapped_4bit",
            "whether the 4-bit model ends in nn.DataParallel: 0 when Trainer leaves it alone or TRL refuses to start; "
            "1 with transformers below 5.6 and TRL below 1.15",
            equals=0,
            headline=True,
        ),
        Bound(
            "noticed_plain",
            "whether the plain model is wrapped or refused; if not, Trainer did not see the second GPU",
            equals=1,
        ),
    ),
    links=(
        "https://github.com/huggingface/trl/issues/2760",
        "https://github.com/huggingface/transformers/pull/45407",
    ),
    needs=("torch", "transformers", "datasets", "trl", "peft", "bitsandbytes"),
    gpus=GPUS,
)


def run(context: Context) -> Iterator[Reading]:
    """Check how Trainer treats both models."""
    directory = tiny.save(context.directory / "model", context.seed)
    plain = _fate(context, directory)
    quantised = quantized.load(directory, quantized.device(context))
    kept = _fate(context, quantised, peft_config=quantized.lora())
    yield Reading("wrapped_4bit", float(kept == "DataParallel"), f"Trainer made it a {kept}")
    yield Reading("noticed_plain", float(plain in ("DataParallel", "refused")), f"the plain model: {plain}")


def _fate(context: Context, model: Any, **options: Any) -> str:
    """The class that Trainer wraps the model in, or "refused"."""
    with _two_gpus(context.device):
        try:
            trainer = grpo.make_trainer(context, model, grpo.Reward(), **options)
        except ValueError as error:
            if "DataParallel" not in str(error):
                raise
            return "refused"
        wrapped = trainer._wrap_model(trainer.model_wrapped)
    return type(wrapped).__name__


def _two_gpus(device: str) -> contextlib.AbstractContextManager[Any]:
    import torch

    if device == "cpu":
        return mock.patch.object(torch.cuda, "device_count", return_value=GPUS)
    return contextlib.nullcontext()
