"""How the suite was itself tested, as rows for the charts: controls, mutants, false alarms."""

from __future__ import annotations

from dataclasses import dataclass

from builder.base.project import Project
from builder.certify import catalogue
from builder.certify.catalogue import Probe
from builder.pages import evidence, records
from builder.pages.records import Controls, FalseAlarms, Mutants, SuiteSpeed
from builder.site import pictures


@dataclass(frozen=True)
class Proof:
    """The suite, and what was measured of it; None where nothing was yet."""

    probes: tuple[Probe, ...]
    controls: Controls | None
    mutants: Mutants | None
    alarms: FalseAlarms | None
    speed: SuiteSpeed | None

    @property
    def files(self) -> list[str]:
        """The evidence files that the page shows."""
        records_ = (self.controls, self.mutants, self.alarms, self.speed)
        return [record.FILE for record in records_ if record is not None]


def read(project: Project) -> Proof:
    """Raises BadInputError when a file of evidence is damaged."""
    return Proof(
        catalogue.read(project.smoke),
        evidence.read(project, records.Controls),
        evidence.read(project, records.Mutants),
        evidence.read(project, records.FalseAlarms),
        evidence.read(project, records.SuiteSpeed),
    )


def control_rows(proof: Proof) -> list[dict[str, object]]:
    """What the suite said of each control's known-bad set, which must be red, and of its twin, which must be green."""
    rows: list[dict[str, object]] = []
    for row in proof.controls.rows if proof.controls else ():
        for which, outcomes in (("known bad", row.on_control), ("made good", row.on_twin)):
            seen = sorted({each.outcome for each in outcomes if each.probe in row.expected})
            suite = "green" if seen == ["passed"] else "red" if set(seen) - {"passed", "not-run"} else "not run"
            rows.append({"control": row.control, "set": which, "suite": suite, "outcome": ", ".join(seen)})
    return rows


def mutant_rows(proof: Proof) -> list[dict[str, object]]:
    """The killed and the surviving mutants of each package."""
    return [
        {"package": name, "outcome": outcome, "count": count, "place": place}
        for name, tally in (proof.mutants.packages.items() if proof.mutants else ())
        for place, (outcome, count) in enumerate([("killed", tally.killed), ("survived", tally.mutants - tally.killed)])
    ]


def alarm_rows(proof: Proof) -> list[dict[str, object]]:
    """Each headline over the runs of a good stack: the share of its bound at the least, in the middle, at the most."""
    if proof.alarms is None:
        return []
    rows: list[dict[str, object]] = []
    for probe in proof.probes:
        measured = proof.alarms.distributions(probe.name)
        for number in probe.bounds:
            if number.headline and (runs := measured.get(number.name)):
                values = (runs.min, runs.median, runs.max)
                shares = [pictures.nearness(value, number.bound) for value in values]
                known = sorted(share for share in shares if share is not None)
                if len(known) == len(shares) and known[-1] > 0:
                    rows.append({"probe": probe.name, "low": known[0], "median": known[1], "high": known[2]})
    return rows
