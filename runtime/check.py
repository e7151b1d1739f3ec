"""A check before a run, with its result."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Literal

# Commands that are not beside a compose.yaml that `vetted use --into` wrote, and where they are.
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
        return self.message + (f"\n         {self._step()}" if self.next_step else "")

    def _step(self) -> str:
        """The next step; a command that is elsewhere with its place."""
        if not os.environ.get("VETTED_INTO"):
            return self.next_step
        commands = "|".join(map(re.escape, ELSEWHERE))
        return re.sub(rf"({commands})[^;,]*", lambda match: f"{match[0]} ({ELSEWHERE[match[1]]})", self.next_step)
