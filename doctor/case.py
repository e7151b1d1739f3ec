"""A case: an environment, the run, the machine, the error, and the knowledge to judge them by."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from doctor.know.data import Knowledge
from doctor.read import symptoms
from doctor.read.argument import Given
from doctor.read.context import RunContext
from doctor.read.environment import Environment
from doctor.read.machine import Machine
from doctor.read.suite import Result

FAILED = re.compile(r"\w(?:Error|Exception)\b|\bException: |Traceback \(most recent|core dumped|Killed|\bfatal\b")


@dataclass
class Case:
    """What every check is asked about."""

    environment: Environment
    context: RunContext = field(default_factory=RunContext)
    machine: Machine = field(default_factory=Machine)
    error: str = ""  # of an error or a log, cut to a limit
    knowledge: Knowledge = field(default_factory=Knowledge)
    given: Sequence[Given] = ()  # paths without an option, and what each was taken for
    measured: Sequence[Result] = ()  # what the suite said in this environment, where it was run

    @property
    def failed(self) -> bool:
        """Does the text say that something raised an error or was killed?"""
        return FAILED.search(self.error) is not None

    @property
    def elsewhere(self) -> str | None:
        """The folder of packages that the error comes from, where it is none of the environment's."""
        named = symptoms.package_folders(self.error)
        known = {os.path.realpath(folder) for folder in self.environment.folders}
        if not named or not known or any(os.path.realpath(folder) in known for folder in named):
            return None
        return named[0]

    def version(self, package: str) -> str | None:
        """The installed version of a package."""
        return self.environment.version(package)

    def versions(self, *packages: str | None) -> dict[str, str | None]:
        """The installed versions of packages, for a finding that blames them."""
        return {package: self.version(package) for package in packages if package}
