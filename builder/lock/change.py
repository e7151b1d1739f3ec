"""How the distributions of two locks differ."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Change:
    """One distribution that two locks do not have in common. None: that lock is without it."""

    name: str
    old: str | None
    new: str | None

    def __str__(self) -> str:
        if self.old is None:
            return f"{self.name} {self.new} added"
        return f"{self.name} {self.old} → {self.new}" if self.new else f"{self.name} {self.old} removed"


def changes(old: Mapping[str, str], new: Mapping[str, str]) -> list[Change]:
    """Every change from one set of versions (distribution to version) to another, by name."""
    names = sorted({*old, *new})
    return [Change(name, old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)]
