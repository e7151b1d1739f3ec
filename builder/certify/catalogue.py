"""The suite's catalogue: the declarations of its probes, read from the project and never from a stack."""

from __future__ import annotations

import difflib
import sys
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Literal

from packaging.specifiers import SpecifierSet
from pydantic import BaseModel, ConfigDict, TypeAdapter

from builder.base import errors, process, sources
from builder.base.text import word

Limit = dict[Literal["at_most", "at_least", "equals"], float]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Bound(_Model):
    """A number of a probe: its unit, what it must be, and why."""

    name: str
    unit: str
    bound: Limit | None
    why: str
    headline: bool

    def holds(self, value: float) -> bool:
        """Whether a number is within the bound."""
        limit = self.bound or {}
        return (
            value <= limit.get("at_most", value)
            and value >= limit.get("at_least", value)
            and value == limit.get("equals", value)
        )


class Skip(_Model):
    """A reason for which a probe may not apply, and where that can be true."""

    reason: str
    device: str | None
    versions: dict[str, str]

    def applies(self, device: str, versions: dict[str, str]) -> bool:
        """Whether the reason can be true on that device, with these locked versions."""
        return self.device in (None, device) and all(
            name in versions and SpecifierSet(specifier).contains(versions[name], prereleases=True)
            for name, specifier in self.versions.items()
        )


class Probe(_Model):
    """The declaration of a probe; see smoke/probe.py."""

    name: str
    asks: str
    matters: str
    links: list[str]
    needs: list[str]
    skips: list[Skip]
    ranks: int
    gpus: int
    fresh: bool
    forks: bool
    timeout_s: float
    memory_mib: int
    bounds: list[Bound]

    @property
    def headline(self) -> Bound:
        """The number that stands for the probe."""
        return next(bound for bound in self.bounds if bound.headline)


_PROBES = TypeAdapter(tuple[Probe, ...])


def read(smoke: Path) -> tuple[Probe, ...]:
    """Every probe of a suite, in the order in which they run."""
    return _read(smoke, sources.digest(smoke))


def require(smoke: Path, names: Sequence[str]) -> None:
    """Raise BadInputError, with the nearest name, unless the suite has all of these probes. Runs nothing."""
    known = [path.stem.replace("_", "-") for path in (smoke / "probes").glob("[!_]*.py")]
    for name in names:
        if known and name not in known:
            close = difflib.get_close_matches(name, known, n=1)
            raise errors.BadInputError(
                f"there is no probe {name}" + (f"; did you mean {close[0]}?" if close else ""),
                next_step=f"ls {word(smoke.name)}/probes",
            )


@cache
def _read(smoke: Path, digest: str) -> tuple[Probe, ...]:
    # In a process of its own, because the suite is not part of the tool. And from a copy: stray files beside the suite
    # and in its bytecode caches are not in its digest, but Python would import them in place of a module.
    with tempfile.TemporaryDirectory(prefix="vetted-") as beside:
        if sources.copy(smoke, Path(beside)) != digest:
            raise errors.VettedError(
                f"{smoke.name}/ changed while it was read",
                cause="an editor or git wrote there",
                next_step="run this again",
            )
        argv = [sys.executable, "-I", "-S", "-B", str(Path(beside) / "smoke" / "__main__.py"), "--list"]
        return _PROBES.validate_json(process.check("listing the probes", argv).stdout)
