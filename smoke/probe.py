"""A probe: one question about a stack, with bounds for the numbers that answer it."""

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
OWN = Path(__file__).parent / "own"  # of a user's configuration: a caller copies them among the others


class BadProbeError(Exception):
    """A probe file without the form that this module requires."""


class NotApplicable(Exception):  # noqa: N818 - not an error: the question does not arise here
    """Raised by a probe's `run`, before its first reading, with the reason of one of its skips."""


@dataclass(frozen=True)
class Skip:
    """A reason why a probe may not apply, and where that can be true.

    `device`: on this device only. `versions`: with these versions in the lock only, as PEP 440 specifiers by
    distribution. The host checks both when it judges a run, because the stack is not trusted.
    """

    reason: str
    device: str | None = None
    versions: Mapping[str, str] = field(default_factory=dict)

    def __call__(self) -> NotApplicable:
        """The exception to raise."""
        return NotApplicable(self.reason)


@dataclass(frozen=True)
class Bound:
    """The bound of one measurement, and the reason for it: at most one of `at_most`, `at_least` and `equals`.

    Without any of them the number is recorded, and passes if it is finite. `why` says where the bound comes from: the
    observed range, and what a broken stack shows. The headline is the number that tables show for the probe.
    """

    name: str
    why: str
    unit: str = ""
    at_most: float | None = None
    at_least: float | None = None
    equals: float | None = None
    headline: bool = False

    def limit(self) -> dict[str, float] | None:
        """The bound as JSON with one key, or None if there is no bound."""
        limits = {"at_most": self.at_most, "at_least": self.at_least, "equals": self.equals}
        return {key: value for key, value in limits.items() if value is not None} or None

    def holds(self, value: float) -> bool:
        """Whether the value is within the bound. NaN and infinities never are."""
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
    """One number that a probe measured. `detail` explains it when it breaks its bound."""

    name: str
    value: float
    detail: str = ""


@dataclass(frozen=True)
class Context:
    """The input of a probe.

    `directory` is empty, writable and its own. `distributions` should be installed: normalised name to version.
    """

    device: str
    seed: int
    directory: Path
    distributions: Mapping[str, str] = field(default_factory=dict)
    rank: int = 0
    ranks: int = 1


@dataclass(frozen=True)
class Probe:
    """The constant PROBE of a probe file.

    `matters` is one sentence for the reader of a red row: what such a failure does to a training run. `needs` are
    import names; without these packages the probe is not run. `gpus` is the number of GPUs that it uses when the
    device is cuda. `skips` are the reasons for which its `run` may raise NotApplicable. `ranks` is the number of
    processes that run it together. `fresh` starts a new process instead of a fork, where forking is not safe. `forks`:
    it forks processes that must use the GPU, so its own must not have started CUDA. A probe that exceeds `timeout_s`
    seconds or `memory_mib` MiB (all its processes together, on the host) is killed.
    """

    matters: str
    bounds: tuple[Bound, ...]
    links: tuple[str, ...]
    needs: tuple[str, ...] = ()
    skips: tuple[Skip, ...] = ()
    ranks: int = 1
    gpus: int = 0
    fresh: bool = False
    forks: bool = False
    timeout_s: float = 120
    memory_mib: int = 8192


@dataclass(frozen=True)
class ProbeFile:
    """A probe and its file. `name` comes from the file's name, `asks` is the first line of its docstring."""

    name: str
    asks: str
    path: Path
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
            "forks": self.probe.forks,
            "timeout_s": self.probe.timeout_s,
            "memory_mib": self.probe.memory_mib,
            "bounds": [
                {"name": b.name, "unit": b.unit, "bound": b.limit(), "why": b.why, "headline": b.headline}
                for b in self.probe.bounds
            ],
        }


def load(path: Path) -> ProbeFile:
    """Load one probe file, which must import heavy packages only in its `run`. Raises BadProbeError."""
    name = path.stem.replace("_", "-")
    spec = importlib.util.spec_from_file_location(f"smoke_probe_{path.stem}", path)
    assert spec and spec.loader  # a path that ends in .py always has both
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and pickling look a class up by its module's name
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise BadProbeError(f"{path}: {type(error).__name__}: {error}") from error
    probe, run = getattr(module, "PROBE", None), getattr(module, "run", None)
    if not isinstance(probe, Probe) or not callable(run):
        raise BadProbeError(f"{path}: needs a constant PROBE and a function run(context)")
    if not module.__doc__:
        raise BadProbeError(f"{path}: needs a docstring that says what it asks")
    names = [bound.name for bound in probe.bounds]
    if len(names) != len(set(names)) or sum(bound.headline for bound in probe.bounds) != 1:
        raise BadProbeError(f"{path}: its bounds need different names and exactly one headline")
    if any(len(bound.limit() or {}) > 1 for bound in probe.bounds):
        raise BadProbeError(f"{path}: a bound is one of at_most, at_least and equals")
    return ProbeFile(name, inspect.cleandoc(module.__doc__).splitlines()[0], path, probe, run)


def discover(directory: Path = PROBES) -> dict[str, ProbeFile]:
    """All probes of a folder, by name, sorted by name. Raises BadProbeError."""
    paths = sorted(path for path in directory.glob("*.py") if not path.name.startswith("_"))
    return {file.name: file for file in map(load, paths)}
