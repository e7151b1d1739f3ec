"""What is known of a run before it starts: its settings, with the defaults of the installed release."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from runtime.config.names import TRUE
from runtime.config.options import UNKNOWN, Option
from runtime.config.sharding import Sharding


@dataclass(frozen=True)
class Machine:
    """This machine and its stack. `gpus`: the models that a process sees; `memory`: bytes of the smallest of them.

    `fused`: AdamW works in place by default, from torch 2.8 on.
    """

    gpus: tuple[str, ...] = ()
    driver: str | None = None
    cuda: str | None = None
    memory: int | None = None
    fused: bool = True


@dataclass(frozen=True)
class Run:
    """A run of a trainer of TRL. `settings` are merged; `options` are those of the installed release, by name.

    `launcher` is what starts its `ranks`: python, accelerate or torchrun.
    """

    trainer: str
    settings: Mapping[str, Any]
    options: Mapping[str, Option] = field(default_factory=dict)
    launcher: str = "python"
    ranks: int = 1
    sharding: Sharding = field(default_factory=Sharding)

    def value(self, name: str) -> Any:
        """The value of an option, or its default; None where neither is known."""
        if (value := self.settings.get(name)) is not None:
            return value
        option = self.options.get(name)
        if option is None or option.default is UNKNOWN:
            return None
        if name == "bf16" and option.default is None:
            return not self.true("fp16")  # TRL's rule
        return option.default

    def true(self, name: str) -> bool:
        return str(self.value(name)).lower() in TRUE

    def number(self, name: str) -> float | None:
        try:
            number = float(str(self.value(name)))
        except ValueError:
            return None
        return number if math.isfinite(number) else None

    @property
    def bf16(self) -> bool:
        """Whether it computes in bfloat16 what is stored in float32."""
        return self.true("bf16") or self.sharding.mixed == "bf16"

    @property
    def quantisation(self) -> str | None:
        return next((f"{bits}bit" for bits in (4, 8) if self.true(f"load_in_{bits}bit")), None)

    @property
    def vllm_mode(self) -> str | None:
        """Where completions come from: off, in-process, colocate or server; None for a trainer that makes none."""
        if "use_vllm" not in self.options:
            return None
        if not self.true("use_vllm"):
            return "off"
        if "vllm_mode" in self.options:
            return str(self.value("vllm_mode"))
        return "in-process" if "vllm_device" in self.options else "server"  # before TRL 0.16, and before 0.18
