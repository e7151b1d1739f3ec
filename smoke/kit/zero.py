"""DeepSpeed's ZeRO for the probes: its configuration, processes on CPUs, and parameters that are divided among them."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any


def config(stage: int) -> dict[str, Any]:
    """A DeepSpeed configuration of this ZeRO stage, as GRPOConfig's `deepspeed` takes it."""
    optimization: dict[str, Any] = {"stage": stage}
    if stage == 3:
        # The default leaves parameters as small as ours whole, on every rank.
        optimization["stage3_param_persistence_threshold"] = 0
    # Without train_batch_size: zero.Init would check it before accelerate has filled it in.
    return {
        "zero_optimization": optimization,
        "zero_allow_untested_optimizer": True,
        "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
    }


def options(device: str, stage: int = 3) -> dict[str, Any]:
    """The options of a trainer under ZeRO. Must be called before it is made; on CPUs it joins the ranks by gloo."""
    return {"deepspeed": config(stage), **(use_gloo() if device == "cpu" else {})}


def use_gloo() -> dict[str, Any]:
    """Set DeepSpeed up between processes on CPUs; returns the options that tell the trainer so."""
    from accelerate import PartialState

    no_compiled_collectives()
    # For DeepSpeed the trainer names no backend, and without a GPU accelerate then finds none and one process.
    os.environ["ACCELERATE_USE_DEEPSPEED"] = "true"
    PartialState(backend="gloo")
    return {"accelerator_config": {"use_configured_state": True}}


def no_compiled_collectives() -> None:
    """Leave DeepSpeed's own collectives for CPUs out.

    They are compiled at first use. That takes half a minute and a C++ compiler, which a CPU image does not carry, for
    something that no GPU runs.
    """
    import deepspeed

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


def gather(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The whole parameters, by name, on the CPU. Every rank must call it."""
    import deepspeed

    with deepspeed.zero.GatheredParameters(list(parameters.values())):
        return {name: parameter.detach().cpu().clone() for name, parameter in parameters.items()}
