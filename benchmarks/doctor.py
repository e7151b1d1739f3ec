"""How often does the doctor name the true cause first? `python benchmarks/doctor.py --cases FILE.jsonl`

Each line of the file is one real report with a confirmed cause: what its author said of packages, hardware, launch and
configuration, the error, and the culprits with their bad and fixed versions. The doctor sees what the author said, and
nothing else. A finding is right when it names the culprits for the reason that was confirmed: the range that it calls
bad meets the culprit's, does not hold the version in the report to be good, and is left by the confirmed fix. On a
report without a culprit every finding that is certain or likely is wrong; where the
confirmed cause is a setting, one that offers a setting is not.

The last line on stdout is one JSON object. Needs nothing but Python and the `packaging` that pip carries.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
if sys.path[:1] == [str(Path(__file__).resolve().parent)]:
    sys.path[0] = str(ROOT)  # run as a file: `doctor` is the package beside this folder, not this file

from doctor.answer import diagnose  # noqa: E402
from doctor.base import versions  # noqa: E402
from doctor.case import Case  # noqa: E402
from doctor.finding import Finding  # noqa: E402
from doctor.know import data  # noqa: E402
from doctor.read import context, environment, symptoms  # noqa: E402
from doctor.read.machine import Machine  # noqa: E402


def asked(case: dict[str, Any], *known: Any) -> Case:
    """What the author of a report said, as the doctor is asked it."""
    said = {key: str(value) for key, value in _table(case.get("packages")).items() if value}
    seen = environment.of_versions(str(case.get("id")), said)
    config = case.get("config")
    run = context.read(config) if isinstance(config, str) else context.of_options(_table(config))
    launch, hardware = case.get("launch"), _table(case.get("hardware"))
    context.of_launch(launch if isinstance(launch, str) else " ".join(map(str, _table(launch).values())), run)
    if "num_processes" in _table(launch):
        run.known.setdefault("processes", str(_table(launch)["num_processes"]))
    for key, name in (("gpu", "gpu_model"), ("gpus", "gpus"), ("cuda", "cuda")):
        if hardware.get(key) is not None:
            run.known[name] = str(hardware[key])
    told = Machine(driver=str(hardware["driver"]) if hardware.get("driver") else None)
    return Case(seen, run, told, symptoms.plain(str(case.get("error") or "")), *known)


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def right(found: Finding, case: dict[str, Any]) -> bool:
    """Does a finding name the confirmed culprits, for the confirmed reason?

    One that the error does not speak of is right only where nothing fails, or where a declared requirement is broken.
    """
    if (
        not found.shown
        and case.get("error")
        and found.rule != "requires-dist"
        and not (found.sure and case.get("silent"))
    ):
        return False
    said = {versions.name(key): str(value) for key, value in _table(case.get("packages")).items() if value}
    good = [_blames(found, culprit, said) for culprit in case.get("culprit") or []]
    return all(good) if case.get("culprit_logic") == "all" else any(good)


def _blames(found: Finding, culprit: dict[str, Any], said: dict[str, str]) -> bool:
    package = versions.name(culprit["package"])
    if package not in found.packages:
        return False
    ranges = [one for one in found.ranges.get(package, []) if one != versions.ANY]
    bad, fixed = str(culprit.get("bad") or versions.ANY), str(culprit.get("fixed") or "not known")
    if not ranges:
        # A check that blames no versions but how the files fit together: it must say what this error says.
        return not found.ranges and found.shown > 0
    if versions.specifiers(bad) is None:
        return found.shown > 0  # "a wheel built for another torch": the culprit is no range
    here = said.get(package, "")
    both = any(versions.within(one, here) and versions.within(bad, here) is not False for one in ranges)
    if not both and not any(versions.overlaps(bad, one) for one in ranges):
        return False
    if package in said and all(versions.within(one, said[package]) is False for one in ranges):
        return False
    # The confirmed fixes leave the range.
    fixes = [one.strip() for one in fixed.split(" or ")]
    return not any(versions.within(one, each) is True for one in ranges for each in fixes if versions.specifiers(each))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cases", type=Path, required=True)
    parser.add_argument("--verbose", action="store_true", help="print the first findings of what was missed")
    options = parser.parse_args(arguments)
    known = [data.read(name) for name in data.FILES]
    lines = options.cases.read_text(encoding="utf-8").splitlines()
    cases = [json.loads(line) for line in lines if line.strip()]
    first, third, guessed, missed, alarms, apart = 0, 0, 0, [], [], 0
    slowest = 0.0
    for case in cases:
        begun = time.perf_counter()
        found = diagnose.findings(asked(case, *known))
        slowest = max(slowest, time.perf_counter() - begun)
        if not case.get("culprit"):
            sure = [one for one in found if one.sure and not (case.get("kind") == "config" and one.setting)]
            alarms += [case["id"]] if sure else []
            _row(case, "alarm" if sure else "quiet", sure or found, options.verbose)
            continue
        if not case.get("culprit_version_stated") and not case.get("error"):
            apart += 1
            continue
        place = next((number for number, one in enumerate(found, start=1) if right(one, case)), 0)
        first += place == 1
        guessed += place == 1 and not found[0].sure
        third += 1 <= place <= 3
        if place != 1:
            missed.append(case["id"])
        _row(case, f"rank {place}" if place else "missed", found, options.verbose)
    negatives = sum(not case.get("culprit") for case in cases)
    asked_of = len(cases) - negatives - apart
    answer = {
        "cases": len(cases), "positives": asked_of, "negatives": negatives,
        "top1": round(first / asked_of, 4) if asked_of else None,
        "top3": round(third / asked_of, 4) if asked_of else None,
        "top1_only_possible": guessed,
        "confident_on_negatives": len(alarms), "missed": missed, "alarms": alarms,
        "slowest_s": round(slowest, 3),
    }  # fmt: skip
    print(json.dumps(answer))
    return 0


def _row(case: dict[str, Any], outcome: str, found: list[Finding], verbose: bool) -> None:
    best = found[0] if found else None
    said = f"{best.rule:<24} {best.confidence:<9} {', '.join(best.packages)[:48]}" if best else "nothing found"
    print(f"{case['id']:<28} {outcome:<8} {said}")
    if verbose and outcome not in ("rank 1", "quiet"):
        print(f"    error: {(case.get('error') or '')[:200]!r}")
        print(
            f"    culprit: {[(one['package'], one.get('bad'), one.get('fixed')) for one in case.get('culprit') or []]}"
        )
        for one in found[:4]:
            print(f"    - {one.rule} {one.confidence} shown={one.shown} {one.packages} {one.ranges}")


if __name__ == "__main__":
    sys.exit(main())
