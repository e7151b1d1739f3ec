"""The run monitor: judges, at every step, what a GRPO run itself produces. It changes nothing in the run.

`watch(trainer)` before `trainer.train()` is all that a script of your own needs; `vetted train` does it by itself. The
folder needs torch, transformers and TRL 0.16 or newer, and nothing else: `python -m runtime.monitor.pack` packs it into
one file for environments without Vetted.

Modules: `hooks` sees what the trainer computes; `samples`, `groups`, `loss`, `objective`, `weights`, `engine` and
`rounding` turn it into numbers; `ranks` compares processes; `table` has the bounds, and `judge` compares; `callback`
joins them at every step; `picture` and `certificate` are what remains of a run.
"""

from __future__ import annotations

from typing import Any


def watch(trainer: Any, **options: Any) -> Any:
    """Put the monitor on a trainer of TRL, before `train()`; returns the trainer.

    `options`: see `callback.Monitor`. A trainer that has a monitor already stays as it is.
    """
    from .callback import Monitor

    return Monitor.on(trainer, **options)
