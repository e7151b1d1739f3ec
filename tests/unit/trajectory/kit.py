"""Records made of random numbers: curves that rise and waver, each seed a little differently."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

from builder.trajectory import record
from builder.trajectory.record import Place, Record

NAMES = ("reward", "loss", "kl", "entropy", "length", "grad_norm")
Change = Callable[[str, int, float], float]  # of a number, at a step, from its value


def same(_name: str, _step: int, value: float) -> float:
    """No change."""
    return value


def make(
    group: int, *, seeds: int = 12, steps: int = 60, first: int = 1, change: Change = same, noise: float = 0.03,
    apart: float = 0.02, **fields: Any,
) -> Record:  # fmt: skip
    """A record of other random numbers for each `group`; `noise` from step to step, `apart` from seed to seed."""
    made = []
    for seed in range(first, first + seeds):
        draw = random.Random(f"{group} {seed}")
        numbers = {}
        for name in NAMES:
            offset = draw.gauss(0, apart)
            curve = [1 - math.exp(-step / 20) + offset + draw.gauss(0, noise) for step in range(steps)]
            numbers[name] = [change(name, step, value) for step, value in enumerate(curve)]
        made.append(record.seed_of(seed, numbers))
    digest = "sha256:" + "0" * 64
    place = Place(device="cpu", engine="host", hardware="a machine")
    document = {
        "stack": "one", "lock": digest, "suite": digest, "task": digest, "date": "2026-11-24", "place": place,
        "steps": steps, "seeds": made,
    }  # fmt: skip
    return Record.model_validate({**document, **fields})
