"""A user's own configuration of a run: its settings, its model's config.json, and which probes apply to it."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from builder.base import errors, reading
from builder.certify.catalogue import Probe

TRUE = ("true", "t", "1", "yes", "y", "on")  # as TRL reads them
LARGEST = 1 << 20  # bytes of a model's config.json
MODEL = "--model-config FILE names one"
# What own-options judges in their place.
COMBINATIONS = ("interactions", "interactions-ranks", "sampler-handover")


@dataclass(frozen=True)
class Configuration:
    """The settings by TRL's names; `model` is empty where no config.json was found.

    `processes` are those of the run, of which the probes start two at most; `zero` is DeepSpeed's stage, 0 without it.
    """

    file: str
    settings: Mapping[str, Any]
    model: Mapping[str, Any] = field(default_factory=dict)
    model_file: str = ""
    processes: int = 1
    zero: int = 0

    def get(self, name: str, default: Any) -> Any:
        """The value of a setting, or TRL's default where it is not set."""
        value = self.settings.get(name)
        return default if value is None else value

    def number(self, name: str, default: float) -> float:
        """The same for a number, which YAML may have as text: 1e-6."""
        try:
            number = float(self.get(name, default))
        except (TypeError, ValueError, OverflowError):
            return default
        return number if math.isfinite(number) else default

    def on(self, name: str, default: bool = False) -> bool:
        """The same for a switch."""
        return str(self.get(name, default)).lower() in TRUE

    def off(self, name: str, default: str) -> bool:
        """Whether a strategy, such as eval_strategy, is "no"; YAML reads that as false."""
        return str(self.get(name, default)).lower() in ("no", "false")


def read(file: Path, model: Path | None = None, environ: Mapping[str, str] = os.environ) -> Configuration:
    """Read a config of `trl grpo` or `vetted train`. `model`: its model's config.json, if it is elsewhere.

    Without `model` it is looked for in the folder that the config names, and in the Hub's cache. Raises BadInputError.
    """
    try:
        from runtime.config import source
    except ModuleNotFoundError as error:
        raise errors.MissingToolError(
            "there is no runtime/ here, which reads configs", cause="a bundle leaves it behind",
            next_step="do this in a clone of the project",
        ) from error  # fmt: skip
    try:
        reading.content(file, str(file))  # what runs in an image would wait for a pipe
        config = source.read(file, [])
    except (OSError, source.ConfigError) as error:
        why = f"{file}: {error.strerror}" if isinstance(error, OSError) else str(error)
        raise errors.BadInputError(why, next_step="name the file that `vetted train --config` takes") from error
    settings = {setting.name: setting.value for setting in config.settings}
    here = file.parent if str(file.parent) else Path()
    found = model or _model_file(settings, (Path(), here), environ)
    return Configuration(
        file=str(file), settings=settings, model=_json(found) if found else {}, model_file=str(found or ""),
        processes=_processes(settings, (Path(), here)), zero=_zero(settings, (Path(), here)),
    )  # fmt: skip


def _model_file(settings: Mapping[str, Any], places: Iterable[Path], environ: Mapping[str, str]) -> Path | None:
    """The config.json of the model that the settings name; None where it is not on this machine."""
    from runtime.config import files

    name = str(settings.get("model_name_or_path") or "")
    if not name:
        return None
    for place in places:
        path = place / name / "config.json"
        with suppress(OSError):  # such as a name that is too long
            if path.is_file():
                return path
    try:
        cache = files.cached("models", name, environ)
        commit = (cache / "refs" / str(settings.get("model_revision") or "main")).read_text(encoding="utf-8").strip()
        path = cache / "snapshots" / commit / "config.json"
        return path if path.is_file() else None
    except (OSError, ValueError):
        return None


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(reading.content(path, str(path), most=LARGEST))
    except (OSError, ValueError, RecursionError) as error:
        why = error.strerror if isinstance(error, OSError) else f"it is not JSON: {error}"
        raise errors.BadInputError(f"{path}: {why}", next_step=MODEL) from error
    if not isinstance(content, dict) or "model_type" not in content:
        raise errors.BadInputError(f"{path} is no model's config.json: it has no model_type", next_step=MODEL)
    return content


def _launcher(settings: Mapping[str, Any], places: Iterable[Path]) -> dict[str, Any]:
    """The config of accelerate that the settings name; {} without one."""
    name = str(settings.get("accelerate_config") or "")
    for path in (place / name for place in places if name):
        try:
            content = yaml.safe_load(path.read_bytes())
        except (OSError, ValueError, yaml.YAMLError, RecursionError):
            continue
        if isinstance(content, dict):
            return content
    return {}


def _processes(settings: Mapping[str, Any], places: tuple[Path, ...]) -> int:
    named = settings.get("num_processes") or _launcher(settings, places).get("num_processes")
    try:
        return max(1, int(float(str(named))))
    except (ValueError, OverflowError):
        # A config that comes with TRL, such as zero2 or multi_gpu, is for several; only single_gpu is not.
        return 1 if str(settings.get("accelerate_config") or "single_gpu").startswith("single") else 2


def _zero(settings: Mapping[str, Any], places: tuple[Path, ...]) -> int:
    from runtime.config import sharding

    name = str(settings.get("accelerate_config") or "")
    if name in ("zero1", "zero2", "zero3"):
        return int(name[-1])
    launcher = {key: str(settings[key]) for key in ("accelerate_config",) if settings.get(key)}
    try:
        return max((sharding.read(settings, launcher, place).stage or 0 for place in places), default=0)
    except OverflowError:
        return 0


def left_out(probes: Iterable[Probe], configuration: Configuration) -> dict[str, str]:
    """The probes whose question the configuration does not ask, with the reason."""
    reasons = {probe.name: _reason(probe, configuration) for probe in probes}
    return {name: reason for name, reason in reasons.items() if reason}


def _reason(probe: Probe, own: Configuration) -> str:
    quantised = own.on("load_in_4bit")
    vllm = own.on("use_vllm")
    if probe.name in COMBINATIONS:
        return "own-options runs your combination"
    if "vllm" in probe.needs and not vllm:
        return "no vLLM"
    if probe.name == "vllm-sleep-mode" and not own.on("vllm_enable_sleep_mode"):
        return "vLLM does not sleep"
    if "deepspeed" in probe.needs and not own.zero:
        return "no DeepSpeed"
    if any(f"zero{stage}" in probe.name for stage in (2, 3) if stage != own.zero):
        return f"ZeRO-{own.zero}"
    if "bitsandbytes" in probe.needs and not quantised:
        return "no 4-bit weights"
    if max(probe.ranks, probe.gpus) > 1 and own.processes == 1:
        return "one process"
    return next((reason for name, reason, applies in _options(own) if probe.name == name and not applies), "")


def _options(own: Configuration) -> tuple[tuple[str, str, bool], ...]:
    """Probes of one option, the reason when it is not used, and whether it is."""
    saves = not own.off("save_strategy", "steps")
    return (
        ("eval-during-training", "no evaluation", not own.off("eval_strategy", "no")),
        ("dataloader-workers", "no workers for the data", own.number("dataloader_num_workers", 0) > 0),
        ("kl-reference", "no KL divergence", own.number("beta", 0.0) != 0),
        ("checkpoint-resume", "no checkpoints", saves),
        ("checkpoint-roundtrip", "no checkpoints", saves),
        ("gradient-accumulation", "no accumulation", own.number("gradient_accumulation_steps", 1) > 1),
        ("grpo-bf16-recipe", "no bfloat16", own.on("bf16", not own.on("fp16"))),
    )
