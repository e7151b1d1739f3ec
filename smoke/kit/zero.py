"""DeepSpeed's ZeRO for the probes: its configuration, CPU processes, and divided parameters."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any


def config(stage: int) -> dict[str, Any]:
    """A DeepSpeed configuration of this ZeRO stage, as GRPOConfig's `deepspeed` takes it."""
    optimization: dict[str, Any] = {"stage": stage}
    if stage == 3:
        # By default, parameters as small as ours stay whole on every rank.
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
    """The options of a trainer with ZeRO. Call it before creating the trainer; on CPUs it connects ranks by gloo."""
    return {"deepspeed": config(stage), **(use_gloo() if device == "cpu" else {})}


def use_gloo() -> dict[str, Any]:
    """Set up DeepSpeed for CPU processes; returns the options for the trainer."""
    from accelerate import PartialState

    no_compiled_collectives()
    # With DeepSpeed the trainer sets no backend; without a GPU, accelerate would then use one process.
    os.environ["ACCELERATE_USE_DEEPSPEED"] = "true"
    PartialState(backend="gloo")
    return {"accelerator_config": {"use_configured_state": True}}


def no_compiled_collectives() -> None:
    """Disable DeepSpeed's own CPU collectives.

    They are compiled at first use, which takes half a minute and a C++ compiler. A CPU image has none, and no GPU run
    uses them.
    """
    import deepspeed

    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False


def gather(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The whole parameters, by name, on the CPU. All ranks must call it."""
    import deepspeed

    with deepspeed.zero.GatheredParameters(list(parameters.values())):
        return {name: parameter.detach().cpu().clone() for name, parameter in parameters.items()}
