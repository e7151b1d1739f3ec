"""A check before a run, with its result."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Level = Literal["ok", "advice", "stop"]


@dataclass(frozen=True)
class Check:
    """What a check says, with the next step if there is one."""

    level: Level
    message: str
    next_step: str = ""

    def __str__(self) -> str:
        return self.message + (f"\n         {self.next_step}" if self.next_step else "")
