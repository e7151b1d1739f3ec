"""Mutants that pass all probes: do their golden trajectories leave the band?"""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

from builder.base import machine
from builder.certify import suite
from builder.trajectory import record, training, verdict
from builder.trajectory.record import Record
from builder.trajectory.training import Settings, Trained

KILLER = "golden trajectories"
FIRST = 2  # seeds; a mutant that gives the same bits in these trains the same


def strays(golden: Record, environment: Path, root: Path, folder: Path) -> str | None:
    """What the verdict says when the training in this environment leaves the band; None while it does not.

    `root` has the suite. Raises VettedError when the training as a whole fails.
    """
    settings = Settings(
        seeds=len(golden.seeds), steps=golden.steps, threads=golden.place.threads, first=golden.seeds[0].seed
    )
    few = _train(golden, replace(settings, seeds=min(FIRST, settings.seeds)), environment, root, folder / "few")
    bits = {seed.seed: seed.bits for seed in golden.seeds}
    if few.seeds and not few.failed and all(bits.get(seed.seed) == seed.bits for seed in few.seeds):
        return None
    trained = _train(golden, settings, environment, root, folder / "all")
    place = golden.place.model_copy(update={"hardware": machine.hardware(golden.place.device).hardware_class})
    task = record.task(root / "smoke")
    after = golden.model_copy(
        update={"seeds": trained.seeds, "failed": trained.failed, "place": place, "task": task, "stack": "mutant"}
    )
    judged = verdict.judge(golden, after)
    return None if judged.good else str(judged)


def _train(golden: Record, settings: Settings, environment: Path, root: Path, folder: Path) -> Trained:
    folder.mkdir(parents=True)
    try:
        runner = suite.on_host(environment, root, folder / "run")
        return training.run(runner, golden.place.device, settings, folder, lambda *_: None)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
