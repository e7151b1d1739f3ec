"""Upgrading a stack: a candidate lock is built and run aside, and replaces the old one only when all is green.

If it is red, everything stays as it was; the culprit is bisected, and a report says what broke.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from builder.base import errors
from builder.base.project import Project, remove, write
from builder.certify import certificate, certify
from builder.certify.certify import Options
from builder.image import render
from builder.intent.advisory import Advisory
from builder.lock import audit, kernels, lockfile, solver
from builder.lock.lockfile import Lock
from builder.upgrade import aside, candidate, compare, culprit, difference, training
from builder.upgrade.aside import Aside
from builder.upgrade.recertification import Progress, Recertification
from builder.upgrade.report import report


def run(
    home: Project, name: str, upgrade: Sequence[str], options: Options, advisories: Sequence[Advisory], scratch: Path,
    progress: Progress, *, train: bool = False,
) -> Recertification:  # fmt: skip
    """Try an upgrade. The caller holds the stack's lock file. `train`: also compare the golden trajectories."""
    aside.finish(home, name, scratch)
    old = lockfile.load(home, name)
    copy = aside.make(home, name, scratch / "candidate")
    try:
        result = _try(copy, old, upgrade, options, advisories, scratch, progress, train=train)
    finally:
        # Environments and images of a candidate that was not taken over.
        remove(copy.state)
    if result.outcome not in ("green", "nothing"):
        result.report = home.state / "recertify" / f"{name}.md"
        write(result.report, report(result), scratch)
    return result


def _try(
    copy: Aside, old: Lock, upgrade: Sequence[str], options: Options, advisories: Sequence[Advisory], scratch: Path,
    progress: Progress, *, train: bool,
) -> Recertification:  # fmt: skip
    result = Recertification(old.name, "nothing", old)
    progress.say("resolving the candidate")
    try:
        candidate.write_lock(copy, old, upgrade, scratch)
    except errors.BadInputError as error:
        if "no solution" not in error.what:
            raise
        result.outcome, result.explanation = "unresolvable", solver.in_short(error.what.partition("\n")[2])
        return result
    new = lockfile.load(copy, old.name)
    if new.digest == old.digest:
        return result
    result.new = new
    progress.say("comparing the two locks")
    result.difference = difference.of(old, new, advisories, scratch)
    progress.say("auditing the candidate")
    result.findings = audit.sound(new, scratch)
    if result.findings:
        result.outcome = "unsound"
        return result
    _certify(copy, result, new, options, scratch, progress)
    if train and result.outcome == "green":
        training.compare(copy, result, new, options, scratch, progress)
    if result.outcome in ("red", "worse"):
        culprit.find(copy.home, result, advisories, scratch, progress.say)
    elif result.outcome == "green":
        progress.say("putting it in place")
        aside.adopt(copy, scratch)
    return result


def _certify(
    copy: Aside, result: Recertification, new: Lock, options: Options, scratch: Path, progress: Progress
) -> None:
    """Build the candidate, run the suite, and compare the numbers with those of the last certificate."""
    write(copy.dockerfile(new.name), render.dockerfile(copy, new), scratch)
    try:
        if kernels.stale(copy, new):  # before the build, because an image says what kernels it has
            kernels.record(copy, new, scratch, progress.say)
        outcome = certify.run(copy, new, replace(options, force=True), scratch, progress.step, progress.event)
    except (errors.NetworkError, errors.StorageError, errors.MissingToolError):
        raise
    except errors.VettedError as error:
        result.outcome, result.explanation = "not built", str(error)
        return
    result.statement = outcome.statement
    path = certificate.path(copy.home, new.name, options.device, options.engine)
    result.before = certificate.read(path) if path.is_file() else None
    if outcome.certificate is None:
        result.outcome = "red"
        return
    result.worse = compare.regressions(result.before, result.statement) if result.before else []
    result.outcome = "worse" if result.worse else "green"
