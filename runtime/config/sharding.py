"""What DeepSpeed or FSDP divide among the ranks of a run, as its config and the files that it names say."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml


@dataclass(frozen=True)
class Sharding:
    """`stage` is ZeRO's, None without DeepSpeed. The two others are on the CPU if they are offloaded."""

    stage: int | None = None
    fsdp: bool = False
    cpu_weights: bool = False
    cpu_optimizer: bool = False
    mixed: str | None = None  # the precision that a config of accelerate asks for


def read(settings: Mapping[str, Any], launcher: Mapping[str, str | None], here: Path) -> Sharding:
    """`launcher`: options of `accelerate launch`, and accelerate_config, a file. What is unreadable says nothing."""
    try:
        if settings.get("deepspeed"):
            return _deepspeed(settings["deepspeed"], here)
        if settings.get("fsdp"):
            words = str(settings["fsdp"])
            return Sharding(fsdp="no_shard" not in words and words != "False", cpu_weights="offload" in words)
        if file := launcher.get("accelerate_config"):
            return _accelerate(yaml.safe_load((here / file).read_bytes()), here)
        return _launcher(launcher, here)
    except (
        OSError,
        ArithmeticError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        RecursionError,
        yaml.YAMLError,
    ):
        return Sharding()


def _deepspeed(config: Any, here: Path) -> Sharding:
    """A config of DeepSpeed: a dictionary, JSON, or a file with it."""
    if isinstance(config, str):
        config = json.loads(config if config.lstrip().startswith("{") else (here / config).read_bytes())
    zero = config.get("zero_optimization", {})
    return Sharding(
        stage=int(zero.get("stage", 0)),
        cpu_weights=_offloads(zero.get("offload_param", {}).get("device")),
        cpu_optimizer=_offloads(zero.get("offload_optimizer", {}).get("device")),
    )


def _accelerate(config: Any, here: Path) -> Sharding:
    mixed = str(config.get("mixed_precision", "no"))
    kind = str(config.get("distributed_type", "")).upper()
    if kind == "DEEPSPEED":
        options = config.get("deepspeed_config", {})
        if file := options.get("deepspeed_config_file"):
            return _deepspeed(str(file), here)
        return Sharding(
            stage=int(options.get("zero_stage", 2)),
            cpu_weights=_offloads(options.get("offload_param_device")),
            cpu_optimizer=_offloads(options.get("offload_optimizer_device")),
            mixed=mixed,
        )
    if kind == "FSDP":
        options = config.get("fsdp_config", {})
        return Sharding(fsdp=True, cpu_weights=options.get("fsdp_offload_params") is True, mixed=mixed)
    return Sharding(mixed=mixed)


def _launcher(options: Mapping[str, str | None], here: Path) -> Sharding:
    """Options of `accelerate launch`; a flag is there with None."""
    mixed = options.get("mixed_precision")
    if "use_deepspeed" in options:
        if file := options.get("deepspeed_config_file"):
            return _deepspeed(file, here)
        return Sharding(
            stage=int(options.get("zero_stage") or 2),  # accelerate's default
            cpu_weights=_offloads(options.get("offload_param_device")),
            cpu_optimizer=_offloads(options.get("offload_optimizer_device")),
            mixed=mixed,
        )
    if "use_fsdp" in options:
        return Sharding(fsdp=True, cpu_weights=options.get("fsdp_offload_params") == "true", mixed=mixed)
    return Sharding(mixed=mixed)


def _offloads(device: object) -> bool:
    return device in ("cpu", "nvme")
