"""What the breaks share. The process of a probe ends after it, so nothing has to be repaired."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from smoke import probe
from smoke.kit import given, levels
from smoke.probe import Context, Probe, Reading

Run = Callable[[Context], Iterator[Reading]]


def sabotage(
    name: str,
    break_it: Callable[[], None],
    *,
    rows: Mapping[str, str] | None = None,
    own: Mapping[str, Any] | None = None,
) -> tuple[Probe, Run]:
    """The probe of this name, whose run comes after `break_it`, in every rank's process.

    `rows`: of a probe with a covering array, only the rows with these levels, because a break shows in many. `own`:
    what a probe of a user's configuration is given.
    """
    folder = probe.PROBES if own is None else probe.OWN
    real = probe.load(folder / f"{name.replace('-', '_')}.py")

    def run(context: Context) -> Iterator[Reading]:
        break_it()
        if own is not None:
            replace(given, "read", lambda *_: own)
        if rows:
            replace(levels, "rows", lambda right, *array: _with(rows, right(*array)))
        yield from real.run(context)

    return real.probe, run


def _with(chosen: Mapping[str, str], rows: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
    return {name: row for name, row in rows.items() if chosen.items() <= row.items()}


def replace(owner: Any, name: str, wrong: Callable[..., Any]) -> None:
    """Replace the function `name` of a module, class or object: `wrong` is called with it, then with its arguments."""
    right = getattr(owner, name)

    @functools.wraps(right)
    def replaced(*args: Any, **kwargs: Any) -> Any:
        return wrong(right, *args, **kwargs)

    setattr(owner, name, replaced)


def set_after_init(owner: type, **attributes: Any) -> None:
    """Have every new object of a class accept its arguments, and then have these attributes all the same."""

    def init(right: Any, self: Any, *args: Any, **kwargs: Any) -> None:
        right(self, *args, **kwargs)
        vars(self).update(attributes)

    replace(owner, "__init__", init)


def disable(owner: Any, name: str) -> None:
    """Have the function `name` of a module, class or object do nothing."""
    replace(owner, name, lambda *_, **__: None)
