"""Does an upgrade change the training? The candidate trains the golden trajectories, and the record judges it."""

from __future__ import annotations

from pathlib import Path

from builder.base import errors
from builder.base.project import Project, write
from builder.certify.certify import Options
from builder.lock.lockfile import Lock
from builder.trajectory import record, training, verdict
from builder.trajectory.record import Record
from builder.trajectory.training import Settings
from builder.upgrade.aside import Aside
from builder.upgrade.recertification import Progress, Recertification


def recorded(home: Project, name: str, options: Options) -> Record | None:
    """The record of a stack on this device and engine. Raises BadInputError for a damaged one."""
    places = record.of_stack(home, name)
    return next((r for r in places if (r.place.device, r.place.engine) == (options.device, options.engine)), None)


def incomparable(home: Project, name: str, options: Options) -> str:
    """Why what a stack trains today cannot be compared with its record; "" where it can be."""
    before = recorded(home, name, options)
    if before is None:
        return f"{name} has no golden trajectories of this device and engine"
    try:
        record.require_todays(home.smoke, before)
    except errors.BadInputError as error:
        return error.what
    return ""


def older(home: Project, name: str) -> list[str]:
    """Of each record of a stack that no run of today can be compared with: why, and the next command."""
    sentences = []
    try:
        for each in record.of_stack(home, name):
            try:
                record.require_todays(home.smoke, each)
            except errors.BadInputError as error:
                sentences.append(f"{error.what} ({record.name(each.place)}): {error.next_step}")
    except errors.BadInputError as error:  # a damaged file
        sentences.append(error.what)
    return sentences


def compare(
    copy: Aside, result: Recertification, new: Lock, options: Options, scratch: Path, progress: Progress
) -> None:
    """Train in the candidate, keep its record beside its certificate, and judge it."""
    before = recorded(copy, new.name, options)
    result.not_trained = incomparable(copy, new.name, options)
    if result.not_trained or before is None:  # training takes many minutes, and nothing would come of it
        return
    seeds = sorted({seed.seed for seed in before.seeds} | before.failed.keys())
    settings = Settings(len(seeds), before.steps, before.place.threads, seeds[0])
    say = training.Progress(progress.step, lambda seed, _: progress.say(f"training: seed {seed} has ended"))
    (folder := scratch / "trajectories").mkdir()
    after = training.of_stack(copy, new, options, settings, folder, say)
    write(record.path(copy, new.name, after.place), after.to_json(), scratch)
    try:
        result.training = verdict.judge(before, after)
    except errors.BadInputError as error:
        result.not_trained = error.what
        return
    if not result.training.good:
        result.outcome = "strays"
