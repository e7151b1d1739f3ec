"""A check before a run, with its result."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

# What a compose.yaml that `vetted use --into` wrote has not: the command, and the suite.
ELSEWHERE = {
    "vetted use": "in a clone of Vetted, with --into and the path of this folder",
    "vetted list": "in a clone of Vetted",
    "docker compose run smoke": "in a clone of Vetted",
}

Level = Literal["ok", "advice", "stop"]


@dataclass(frozen=True)
class Check:
    """What a check says, with the next step if there is one."""

    level: Level
    message: str
    next_step: str = ""

    def __str__(self) -> str:
        return self.message + (f"\n         {self.next_step}{self._where()}" if self.next_step else "")

    def _where(self) -> str:
        """Where the commands of the next step are, if they are not beside the compose.yaml."""
        if not os.environ.get("VETTED_INTO"):
            return ""
        return next((f" ({where})" for words, where in ELSEWHERE.items() if words in self.next_step), "")
