"""A run of the monitor's benchmark on each of several ranks: `torchrun monitored_ranks.py FOLDER [FAULT]`.

The fault is on the last rank only. Without FOLDER/watch there is no monitor. Each rank leaves its digests of weights
and random states in FOLDER/rank-N.json.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from benchmarks.monitored import run


def main(folder: Path, fault: str = "") -> None:
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    job = {
        "name": f"rank-{rank}", "options": {"per_device_train_batch_size": 4, "beta": 0.04},
        "monitor": (folder / "watch").exists(), **({"fault": fault} if fault and rank == ranks - 1 else {}),
    }  # fmt: skip
    own = folder / f"rank-{rank}"  # for the model, which every rank makes
    own.mkdir()
    (own / "out").symlink_to(folder / "out")
    result = run.run(job, own)
    (folder / f"rank-{rank}.json").write_text(json.dumps({"weights": result["weights"], "rng": result["rng"]}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
