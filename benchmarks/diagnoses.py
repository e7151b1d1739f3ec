"""Record what the doctor's benchmark measured: docs/evidence/doctor.json, from which the documents' table is made.

    python -m benchmarks.diagnoses benchmarks/cases/batch-1.jsonl benchmarks/cases/batch-2.jsonl
    python -m benchmarks.diagnoses --first-look benchmarks/cases/batch-3.jsonl

The first look at a batch is recorded once, before a line is changed after it was collected, and so is the look at one
that nothing was learnt from yet (--unseen). Neither is written again. The reports that the doctor was developed with,
cases-dev.jsonl, are no part of this repository; where they lie in `shared/` beside it, they are measured with the rest.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import doctor
from builder.base import errors, project
from builder.pages import evidence

KEPT = ("top1", "mends_top1", "mends_top3", "confident_wrong", "confident_on_negatives")
LOOKS = ("first", "unseen", "now")
COMMAND = "python -m benchmarks.diagnoses"
DEVELOPMENT = Path("shared", "cases-dev.jsonl")


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure every batch, and write the file."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("cases", type=Path, nargs="+", help="files of reports")
    looks = parser.add_mutually_exclusive_group()
    looks.add_argument("--first-look", dest="look", action="store_const", const="first",
                       help="nothing was changed yet since these reports were collected")  # fmt: skip
    looks.add_argument("--unseen", dest="look", action="store_const", const="unseen",
                       help="the doctor learnt from others since, and from none of these")  # fmt: skip
    parser.set_defaults(look="now")
    parser.add_argument("--root", type=Path, default=doctor.ROOT, help="the project whose evidence is written")
    options = parser.parse_args(arguments)
    home = project.find(options.root)
    file = evidence.path(home, "doctor")
    document = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {"batches": []}
    batches = {batch["name"]: batch for batch in document["batches"]}
    costs: dict[str, Any] = {}
    development = options.root.parent / DEVELOPMENT
    own = [development] if options.look == "now" and development.is_file() else []
    for path in [*options.cases, *own]:
        measured = doctor.measure(path)
        batch = batches.setdefault(path.stem, {"name": path.stem, **dict.fromkeys(LOOKS)})
        batch.update({"reports": measured["cases"], "causes": measured["positives"], "others": measured["negatives"]})
        batch["unnamed"] = measured["unnamed"]
        score = {key: measured[key] for key in KEPT}
        if options.look != "now" and batch[options.look] is not None:
            raise errors.BadInputError(f"this look at {path.stem} is recorded", next_step=f"{COMMAND} {path}")
        batch[options.look] = score
        costs = _largest(costs, measured)
    if options.look == "now" or "slowest_s" not in document:
        document = {**document, **costs}
    document = {**evidence.head(f"{COMMAND} benchmarks/cases/*.jsonl"), **document}
    document.update({**evidence.head(f"{COMMAND} benchmarks/cases/*.jsonl"), "batches": list(batches.values())})
    with home.holding("benchmark") as scratch:
        print(home.relative(evidence.store(home, "doctor", document, scratch)), file=sys.stderr)
    print(json.dumps(document))
    return 0


def _largest(costs: dict[str, Any], measured: dict[str, Any]) -> dict[str, Any]:
    """The costs of the most costly batch."""
    steps = dict(costs.get("seconds_per_step", {}))
    for step, seconds in measured["seconds_per_step"].items():
        steps[step] = max(seconds, steps.get(step, 0.0))
    return {
        "slowest_s": max(measured["slowest_s"], costs.get("slowest_s", 0.0)),
        "memory_mib": max(measured["memory_mib"], costs.get("memory_mib", 0)),
        "shipped_kib": measured["shipped_kib"],
        "seconds_per_step": dict(sorted(steps.items(), key=lambda step: -step[1])),
    }


if __name__ == "__main__":
    try:
        sys.exit(main())
    except errors.VettedError as error:
        print(f"diagnoses: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
