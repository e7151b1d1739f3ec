"""A probe: one question asked of a stack, with the bounds that its numbers must keep."""

from __future__ import annotations

import importlib.util
import inspect
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PROBES = Path(__file__).parent / "probes"


class BadProbeError(Exception):
    """A probe file that does not keep to the form that this module asks for."""


class NotApplicable(Exception):  # noqa: N818 - it is no error: the question does not arise here
    """Raised by a probe's `run`, before its first reading, with the reason of one of its skips."""


@dataclass(frozen=True)
class Skip:
    """A reason for which a probe may have nothing to ask, and where that can be true.

    `device`: only there. `versions`: only with these versions of the lock, by distribution, in PEP 440's form. Whoever
    judges a run checks both: the stack is not believed.
    """

    reason: str
    device: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)

    def __call__(self) -> NotApplicable:
        """The exception to raise."""
        return NotApplicable(self.reason)


@dataclass(frozen=True)
class Bound:
    """What a measurement must be, and why: at most one of `at_most`, `at_least` and `equals`.

    Without any of them the number is recorded and, as long as it is finite, passes. `why` tells where the bound
    comes from: the range that was observed and what a broken stack shows. The headline is the number that stands
    for the probe in a table.
    """

    name: str
    why: str
    unit: str = ""
    at_most: float | None = None
    at_least: float | None = None
    equals: float | None = None
    headline: bool = False

    def limit(self) -> dict[str, float] | None:
        """The bound as JSON: one key, or None when there is none."""
        limits = {"at_most": self.at_most, "at_least": self.at_least, "equals": self.equals}
        return {key: value for key, value in limits.items() if value is not None} or None

    def holds(self, value: float) -> bool:
        """Whether the value keeps the bound. What is not finite never does."""
        return (
            math.isfinite(value)
            and (self.at_most is None or value <= self.at_most)
            and (self.at_least is None or value >= self.at_least)
            and (self.equals is None or value == self.equals)
        )

    def __str__(self) -> str:
        """The bound in words: "at most 0.001"."""
        for key, value in (self.limit() or {}).items():
            return f"{'exactly' if key == 'equals' else key.replace('_', ' ')} {value:g}"
        return "finite"


@dataclass(frozen=True)
class Reading:
    """One number read by a probe. `detail` says more when the number breaks its bound."""

    name: str
    value: float
    detail: str = ""


@dataclass(frozen=True)
class Context:
    """What a probe is given.

    `directory` is its own, empty and writable. `distributions` is what should be installed: normalised name to version.
    """

    device: str
    seed: int
    directory: Path
    distributions: Mapping[str, str] = field(default_factory=dict)
    rank: int = 0
    ranks: int = 1


@dataclass(frozen=True)
class Probe:
    """What a probe file says about itself in its constant PROBE.

    `matters` is one sentence for whoever reads a red row: what such a failure does to a training run. `needs` are
    import names; a probe whose needs are not installed is not run. `gpus` is how many it takes when the device is
    cuda. `skips` are the reasons for which its `run` may raise NotApplicable. `ranks` processes run it together.
    `fresh` asks for a process of its own instead of a fork, where forking is not safe. A probe past `timeout_s`
    seconds or `memory_mib` MiB (all its processes together, on the host) is killed and says so.
    """

    matters: str
    bounds: tuple[Bound, ...]
    links: tuple[str, ...]
    needs: tuple[str, ...] = ()
    skips: tuple[Skip, ...] = ()
    ranks: int = 1
    gpus: int = 0
    fresh: bool = False
    timeout_s: float = 120
    memory_mib: int = 8192


@dataclass(frozen=True)
class Found:
    """A probe and the file it was found in."""

    name: str
    asks: str
    file: Path
    probe: Probe
    run: Callable[[Context], Iterable[Reading]]

    def describe(self) -> dict[str, Any]:
        """The probe's description as JSON."""
        return {
            "name": self.name,
            "asks": self.asks,
            "matters": self.probe.matters,
            "links": list(self.probe.links),
            "needs": list(self.probe.needs),
            "skips": [
                {"reason": skip.reason, "device": skip.device, "versions": dict(skip.versions)}
                for skip in self.probe.skips
            ],
            "ranks": self.probe.ranks,
            "gpus": self.probe.gpus,
            "fresh": self.probe.fresh,
            "timeout_s": self.probe.timeout_s,
            "memory_mib": self.probe.memory_mib,
            "bounds": [
                {"name": b.name, "unit": b.unit, "bound": b.limit(), "why": b.why, "headline": b.headline}
                for b in self.probe.bounds
            ],
        }


def load(file: Path) -> Found:
    """Load one probe file. It may import nothing heavy before its `run` is called. Raises BadProbeError."""
    name = file.stem.replace("_", "-")
    spec = importlib.util.spec_from_file_location(f"smoke_probe_{file.stem}", file)
    assert spec and spec.loader  # a path that ends in .py always has both
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and pickling look a class up by its module's name
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise BadProbeError(f"{file}: {type(error).__name__}: {error}") from error
    probe, run = getattr(module, "PROBE", None), getattr(module, "run", None)
    if not isinstance(probe, Probe) or not callable(run):
        raise BadProbeError(f"{file}: needs a constant PROBE and a function run(context)")
    if not module.__doc__:
        raise BadProbeError(f"{file}: needs a docstring that says what it asks")
    names = [bound.name for bound in probe.bounds]
    if len(names) != len(set(names)) or sum(bound.headline for bound in probe.bounds) != 1:
        raise BadProbeError(f"{file}: its bounds need different names and exactly one headline")
    if any(len(bound.limit() or {}) > 1 for bound in probe.bounds):
        raise BadProbeError(f"{file}: a bound is one of at_most, at_least and equals")
    return Found(name, inspect.cleandoc(module.__doc__).splitlines()[0], file, probe, run)


def discover(directory: Path = PROBES) -> dict[str, Found]:
    """All probes of a directory, by name, in the order of their names. Raises BadProbeError."""
    files = sorted(file for file in directory.glob("*.py") if not file.name.startswith("_"))
    return {found.name: found for found in map(load, files)}
