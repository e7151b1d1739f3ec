"""How often does the doctor name the true cause first? `python benchmarks/doctor.py --cases FILE.jsonl`

Each line of the file is one real report with a confirmed cause: what its author stated of packages, hardware, launch
and configuration, the error, and the culprits with their bad and fixed versions. The doctor gets only what the author
stated. A finding is right when it names the culprits for the confirmed reason: the range that it calls bad meets the
culprit's, contains the version of the report, and not the confirmed fix. On a report without a culprit, every
finding that is certain or likely is wrong; where the confirmed cause is a setting, one that offers a setting is not.

That is what a finding names (`top1`). What counts more is what it mends (`mends_top1`, see mended.py): does what it
recommends install a release that is confirmed to work? `confident_wrong` counts the reports whose first finding
is certain or likely, and names another culprit or a release that does not mend; and those without a culprit that get
such a finding at all. What only repeats the report's own advice (`PARROTED`) mends nothing, and is not wrong either.

The last line on stdout is one JSON object. Needs only Python and the `packaging` that pip carries.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
if sys.path[:1] == [str(Path(__file__).resolve().parent)]:
    sys.path[0] = str(ROOT)  # run as a file: `doctor` is the package beside this folder, not this file

from benchmarks import mended  # noqa: E402
from doctor.answer import commands, diagnose  # noqa: E402
from doctor.base import aliases, versions  # noqa: E402
from doctor.case import Case  # noqa: E402
from doctor.checks import registry  # noqa: E402
from doctor.finding import Finding  # noqa: E402
from doctor.know import data  # noqa: E402
from doctor.know.data import Knowledge  # noqa: E402
from doctor.read import context, requirements, symptoms  # noqa: E402
from doctor.read.machine import Machine  # noqa: E402

Report = dict[str, Any]  # a line of the file
PARROTED = ("told", "advised")  # rules of findings that say again what the report itself says to install
SHIPPED = (".py", ".json", ".jsonl", ".gz")  # what the doctor's single file carries


@dataclass
class Result:
    """The findings of one report: where the right one is among them, or which are false alarms."""

    report: Report
    findings: list[Finding]
    seconds: float
    mending: list[bool]  # of each finding: does it install what mends the report?
    steps: dict[str, float]  # seconds of each step

    @property
    def negative(self) -> bool:
        """Did no version cause it?"""
        return not self.report.get("culprit")

    @property
    def counted(self) -> bool:
        """Does it state anything that a cause could be found by?"""
        return bool(self.report.get("culprit_version_stated") or self.report.get("error"))

    @property
    def unnamed(self) -> bool:
        """Does neither its error nor its list of packages name a culprit, so that only who knows the thread can?"""
        said = _plain(" ".join([self.report.get("error") or "", *(self.report.get("packages") or {})]))
        return not any(_plain(culprit["package"]) in said for culprit in self.report.get("culprit") or ())

    @property
    def place(self) -> int:
        """The place of the first right finding, from 1; 0 for none."""
        places = (place for place, finding in enumerate(self.findings, start=1) if right(finding, self.report))
        return next(places, 0)

    @property
    def mending_place(self) -> int:
        """The place of the first finding that mends it and that the report did not say itself, from 1; 0 for none."""
        pairs = zip(self.findings, self.mending, strict=True)
        own = [mends and finding.rule not in PARROTED for finding, mends in pairs]
        return own.index(True) + 1 if any(own) else 0

    @property
    def confident_wrong(self) -> bool:
        """Is it surely told to do what does not mend it?

        A first finding that names the true culprit and recommends no release of anything is vague, not wrong.
        """
        if self.negative:
            return bool(self.alarms)
        first = self.findings[0] if self.findings else None
        if first is None or not first.sure or self.mending[0]:
            return False
        return self.place != 1 or bool(mended.recommended(first))

    @property
    def alarms(self) -> list[Finding]:
        """The findings that are wrong on a report that no version caused."""
        setting = self.report.get("kind") == "config"
        return [finding for finding in self.findings if finding.sure and not (setting and finding.setting)]


def case_of(report: Report, knowledge: Knowledge) -> Case:
    """What the author of a report stated, as a case."""
    packages = {name: str(version) for name, version in _table(report.get("packages")).items() if version}
    environment = requirements.of_versions(str(report.get("id")), packages)
    config = report.get("config")
    run = context.read(config) if isinstance(config, str) else context.of_options(_table(config))
    launch, hardware = report.get("launch"), _table(report.get("hardware"))
    context.add_launch(run, launch if isinstance(launch, str) else " ".join(map(str, _table(launch).values())))
    if "num_processes" in _table(launch):
        run.facts.setdefault("processes", str(_table(launch)["num_processes"]))
    for key, name in (("gpu", "gpu_model"), ("gpus", "gpus"), ("cuda", "cuda")):
        if hardware.get(key) is not None:
            run.facts[name] = str(hardware[key])
    machine = Machine(driver=str(hardware["driver"]) if hardware.get("driver") else None)
    return Case(environment, run, machine, symptoms.plain(str(report.get("error") or "")), knowledge)


def right(finding: Finding, report: Report) -> bool:
    """Does a finding name the confirmed culprits, for the confirmed reason?

    One that the error does not mention is right only where nothing fails, or where a declared requirement is unmet.
    """
    silent = report.get("silent") and finding.sure
    if not finding.shown and report.get("error") and finding.rule != "requires-dist" and not silent:
        return False
    stated = mended.stated_versions(report)
    blamed = [_blames(finding, culprit, stated) for culprit in report.get("culprit") or []]
    return all(blamed) if report.get("culprit_logic") == "all" else any(blamed)


def _blames(finding: Finding, culprit: dict[str, Any], stated: dict[str, str]) -> bool:
    package = aliases.normalise(culprit["package"])
    if package not in finding.packages:
        return False
    ranges = [range_ for range_ in finding.ranges.get(package, []) if range_ != versions.ANY]
    bad, fixed = str(culprit.get("bad") or versions.ANY), str(culprit.get("fixed") or "not known")
    if not ranges:
        # A check that blames no versions, but how files fit together: the error must say it.
        return not finding.ranges and finding.shown > 0
    if versions.specifiers(bad) is None:
        return finding.shown > 0  # "a wheel built for another torch": the culprit is no range
    version = stated.get(package, "")
    both = versions.within(bad, version) is not False and any(versions.within(range_, version) for range_ in ranges)
    if not both and not any(versions.overlaps(bad, range_) for range_ in ranges):
        return False
    if package in stated and all(versions.within(range_, version) is False for range_ in ranges):
        return False
    fixes = [fix for fix in map(str.strip, fixed.split(" or ")) if versions.specifiers(fix)]
    return not any(versions.within(range_, fix) is True for range_ in ranges for fix in fixes)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a line for each report, and the summary."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--cases", type=Path, required=True)
    parser.add_argument("--verbose", action="store_true", help="print the first findings of every miss")
    options = parser.parse_args(arguments)
    print(json.dumps(measure(options.cases, lambda result: _print(result, options.verbose))))
    return 0


def measure(cases: Path, show: Callable[[Result], None] | None = None) -> dict[str, Any]:
    """The summary of a file of reports. `show` is given every result that counts."""
    begin = time.perf_counter()
    knowledge = data.load()
    reading = time.perf_counter() - begin
    lines = cases.read_text(encoding="utf-8").splitlines()
    results = [_result(json.loads(line), knowledge) for line in lines if line.strip()]
    for result in results:
        if show is not None and (result.negative or result.counted):
            show(result)
    return {**_summary(results), **_of_mending(results), **_costs(results, reading)}


def _result(report: Report, knowledge: Knowledge) -> Result:
    steps: dict[str, float] = {}
    begin = time.perf_counter()
    case = case_of(report, knowledge)
    findings = diagnose.findings(case)
    commands.add(case, findings)
    seconds = time.perf_counter() - begin
    for check in registry.CHECKS:
        start = time.perf_counter()
        list(check(case))
        steps[check.__name__] = time.perf_counter() - start
    return Result(report, findings, seconds, [mended.mends(finding, report, knowledge) for finding in findings], steps)


def _summary(results: list[Result]) -> dict[str, Any]:
    negatives = [result for result in results if result.negative]
    positives = [result for result in results if not result.negative and result.counted]
    first = [result for result in positives if result.place == 1]
    third = [result for result in positives if 1 <= result.place <= 3]
    alarms = [result.report["id"] for result in negatives if result.alarms]
    return {
        "cases": len(results),
        "positives": len(positives),
        "negatives": len(negatives),
        "unnamed": sum(result.unnamed for result in positives),
        "top1": round(len(first) / len(positives), 4) if positives else None,
        "top3": round(len(third) / len(positives), 4) if positives else None,
        "top1_only_possible": sum(not result.findings[0].sure for result in first),
        "confident_on_negatives": len(alarms),
        "missed": [result.report["id"] for result in positives if result.place != 1],
        "alarms": alarms,
        "slowest_s": round(max((result.seconds for result in results), default=0.0), 3),
    }


def _of_mending(results: list[Result]) -> dict[str, Any]:
    """The measure that counts: what the first findings mend, and what they get wrong for sure."""
    positives = [result for result in results if not result.negative and result.counted]
    first = [result for result in positives if result.mending_place == 1]
    third = [result for result in positives if 1 <= result.mending_place <= 3]
    wrong = [result.report["id"] for result in results if result.confident_wrong]
    return {
        "mends_top1": _share(len(first), len(positives)),
        "mends_top3": _share(len(third), len(positives)),
        "confident_wrong": _share(len(wrong), len(results)),
        "confidently_wrong": wrong,
        "not_mended": [result.report["id"] for result in positives if result.mending_place != 1],
    }


def _costs(results: list[Result], reading: float) -> dict[str, Any]:
    """Seconds of every step, the slowest first, the memory of the whole run, and the size of what is shipped."""
    steps = {"read the knowledge": reading}
    for name in results[0].steps if results else ():
        steps[name] = max(result.steps[name] for result in results)
    slow = {name: round(seconds, 4) for name, seconds in sorted(steps.items(), key=lambda step: -step[1])}
    # Not getrusage's: it counts what the process that started this one had.
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    peak = int(status["VmHWM"].removesuffix(" kB"))
    shipped = sum(path.stat().st_size for path in (ROOT / "doctor").rglob("*") if path.suffix in SHIPPED)
    return {"seconds_per_step": slow, "memory_mib": round(peak / 1024), "shipped_kib": round(shipped / 1024)}


def _plain(text: str) -> str:
    """In lower case, with the hyphens that distributions have and modules do not."""
    return text.lower().replace("_", "-")


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 4) if whole else None


def _print(result: Result, verbose: bool) -> None:
    report, findings = result.report, result.findings
    if result.negative:
        outcome, findings = ("alarm", result.alarms) if result.alarms else ("quiet", findings)
    else:
        outcome = f"mends {result.mending_place}" if result.mending_place else "missed"
        outcome = f"{outcome} WRONG" if result.confident_wrong else outcome
    first = findings[0] if findings else None
    packages = ", ".join(first.packages)[:48] if first else ""
    summary = f"{first.rule:<24} {first.confidence:<9} {packages}" if first else "nothing found"
    print(f"{report['id']:<28} {outcome:<14} {summary}")
    if verbose and outcome not in ("mends 1", "quiet"):
        culprits = [
            (culprit["package"], culprit.get("bad"), culprit.get("fixed")) for culprit in report.get("culprit") or []
        ]
        print(f"    error: {(report.get('error') or '')[:200]!r}")
        print(f"    culprit: {culprits}")
        for finding in findings[:4]:
            print(f"    - {finding.rule} {finding.confidence} {finding.shown} {finding.packages} {finding.ranges}")
            print(f"      recommends {mended.recommended(finding)} {finding.remedy[:1]}")


def _table(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


if __name__ == "__main__":
    sys.exit(main())
