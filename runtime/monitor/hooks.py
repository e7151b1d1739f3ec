"""What the monitor sees of a trainer of TRL: methods of this one object, each wrapped so that it does what it did.

The original is called first, with its own arguments, and its result is handed on untouched. An observer that fails
turns the monitor off, never the run.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

LOGPS = ("_get_per_token_logps_and_entropies", "_get_per_token_logps")  # since TRL 0.20; before


def until_idle() -> None:
    """Wait until the GPU has done what it was given."""
    import torch

    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()


class Guard:
    """Calls observers until one fails: then none any more. `seconds`: how long they have taken, all together."""

    def __init__(self, failed: Callable[[Exception], None], wait: Callable[[], None] = until_idle) -> None:
        self.failed, self.wait = failed, wait
        self.on = True
        self.seconds = 0.0

    def __call__(self, observer: Callable[..., None], *args: Any) -> None:
        if not self.on:
            return
        started = time.perf_counter()
        try:
            observer(*args)
        except Exception as error:  # whatever it is, the run matters more
            self.on = False
            self.failed(error)
        self.seconds += time.perf_counter() - started

    def settle(self) -> None:
        """Before an observer fetches numbers: wait for the run's own work, which is not the observer's time."""
        started = time.perf_counter()
        self.wait()
        self.seconds -= time.perf_counter() - started


def after(owner: Any, name: str, guard: Guard, observer: Callable[..., None]) -> bool:
    """Have `observer(result, *arguments)` called after the method; False if the owner has no such method."""
    method = getattr(owner, name, None)
    if method is None:
        return False

    @functools.wraps(method)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        result = method(*args, **kwargs)
        guard(observer, result, *args)
        return result

    setattr(owner, name, wrapped)
    return True


def before(owner: Any, name: str, guard: Guard, observer: Callable[[], None]) -> bool:
    """Have `observer()` called before the method; False if the owner has no such method."""
    method = getattr(owner, name, None)
    if method is None:
        return False

    @functools.wraps(method)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        guard(observer)
        return method(*args, **kwargs)

    setattr(owner, name, wrapped)
    return True


def around(owner: Any, name: str, guard: Guard, enter: Callable[..., None], leave: Callable[[], None]) -> bool:
    """Have `enter(*arguments)` called before the method and `leave()` after it, whatever happens."""
    method = getattr(owner, name, None)
    if method is None:
        return False

    @functools.wraps(method)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        guard(enter, *args)
        try:
            return method(*args, **kwargs)
        finally:
            guard(leave)

    setattr(owner, name, wrapped)
    return True


def logps_and_entropies(result: Any) -> tuple[Any, Any]:
    """Log-probabilities and entropies, of what the releases of TRL return: a tensor, a tuple or a dictionary."""
    if isinstance(result, dict):
        return result["logps"], result.get("entropies")
    if isinstance(result, tuple):
        return result[0], result[1] if len(result) > 1 else None
    return result, None
