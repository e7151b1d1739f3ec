"""Which settings of a training configuration make it fail: the smallest set that still does, proved by running it.

And from below: the largest set that works, as practitioners find it by adding one setting after the other.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from builder.base import errors
from builder.bisect import ddmin
from builder.bisect.configuration import Configuration
from builder.bisect.journal import Journal, Trial, Verdict


@dataclass(frozen=True)
class BreakingSettings:
    """The result: `failing` is the smallest set that fails; without `take_out`, all other settings work."""

    failing: tuple[str, ...]
    take_out: tuple[str, ...]
    trial: Trial  # of the failing set


class Search:
    """One bisection over settings, with its journal."""

    def __init__(
        self, configuration: Configuration, journal: Journal, run: Callable[[Mapping[str, Any]], Trial],
        report: Callable[[str], None],
    ) -> None:  # fmt: skip
        """`run` tries settings."""
        self.configuration, self.journal, self._run, self.report = configuration, journal, run, report

    def run(self) -> BreakingSettings:
        """Find both sets. Raises VettedError where no settings fail as well, or all of them work."""
        names, journal = list(self.configuration.settings), self.journal
        while True:
            journal.fault = None
            self._check_ends()
            failing = ddmin.smallest(names, lambda part: self._verdict(part) == "red")
            take_out = ddmin.smallest(
                [*(name for name in names if name not in failing), *failing][::-1],
                lambda part: self._verdict([name for name in names if name not in part]) == "green",
                [(name,) for name in failing],
            )
            settings = self.configuration.part(failing)
            key = _key(settings)
            if journal.lead > 1 or journal.confirm(key, lambda settings=settings: self._run(settings)):  # type: ignore[misc]
                return BreakingSettings(failing, take_out, journal.red_trial(key))
            self.report("an outcome changed: trying again until each set is decided")

    def _verdict(self, part: Sequence[str]) -> Verdict:
        settings = self.configuration.part(part)
        self.report(f"trial {self.journal.runs + 1}: {len(settings)} of {len(self.configuration.settings)} settings")
        words = [f"{name}: {json.dumps(value)}" for name, value in settings.items()]
        return self.journal.decide(_key(settings), words, lambda: self._run(settings))

    def _check_ends(self) -> None:
        """No settings must be green, and all of them red. How they fail is the failure that is looked for."""
        configuration, journal = self.configuration, self.journal
        if self._verdict(()) != "green":
            trial = journal.sets[_key({})].trials[-1]
            raise errors.VettedError(
                f"not even a tiny configuration without these settings works: {trial.reason}",
                cause="the environment is broken, or a model, data set or reward that was kept",
                next_step="vetted certify, or the same command without --keep",
            )
        if self._verdict(list(configuration.settings)) != "red":
            raise errors.VettedError(
                f"{configuration.path.name} works with {' and '.join(configuration.ours) or 'all that it names'}"
                " of ours",
                cause="the fault lies in the model, the data or the reward that were replaced, or in their size",
                next_step="--keep model, data, reward, or a setting that was reduced",
            )
        journal.fault = journal.red_trial(_key(configuration.settings)).fault


def _key(settings: Mapping[str, Any]) -> str:
    """The key of a set in the journal."""
    return hashlib.sha256(json.dumps(dict(settings), sort_keys=True).encode()).hexdigest()
