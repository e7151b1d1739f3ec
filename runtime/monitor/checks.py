"""The rows of the table of checks as objects."""

from __future__ import annotations

from dataclasses import dataclass

from .table import TABLE


@dataclass(frozen=True)
class Check:
    """A check: `column` is the number of a step, which must be at most `at_most`."""

    name: str
    column: str
    at_most: float
    level: str  # alarm: the training is wrong; advice: look at it
    asks: str
    broken: str
    cause: str
    needs: str
    advisories: tuple[str, ...] = ()
    recovers: bool = False

    def sentence(self, value: float) -> str:
        """What a value beyond the bound means."""
        return self.broken.format(value=f"{value:.3g}")


def _check(row: dict[str, object]) -> Check:
    return Check(**{**row, "advisories": tuple(row.get("advisories", ()))})  # type: ignore[arg-type]


CHECKS = tuple(_check(row) for row in TABLE)
