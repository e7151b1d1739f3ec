"""A finding: what is wrong, how sure that is, the evidence, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass

SEVERITIES = ("silent-wrong", "hang", "crash", "waste", "resolve", "unread")  # the worst first
# certain: it is so, or it will happen. likely: the evidence points to it, and one thing was not given. possible:
# nothing contradicts it, and `decide` says what to look at.
CONFIDENCES = ("certain", "likely", "possible")
SURE = ("certain", "likely")
# What the error text has to do with a finding.
SILENT, POINTS, EXPLAINS = 0, 1, 2


@dataclass(init=False)  # its arguments are keywords, which dataclasses can ask for only since Python 3.10
class Finding:
    """`rule`: the id of an advisory, or the name of a check. `packages`: those to blame, by installed version."""

    rule: str
    title: str
    packages: dict[str, str | None]  # None where no version is installed, or none was given
    severity: str  # one of SEVERITIES
    confidence: str  # one of CONFIDENCES
    evidence: list[str]
    remedy: list[str]
    commands: list[str]
    ranges: dict[str, list[str]]  # the bad versions of each package, where they are known
    decide: list[str]  # what to look at to know whether it applies
    links: list[str]
    setting: bool  # a setting is a way out, with the versions as they are
    shown: int  # SILENT, POINTS or EXPLAINS
    ways: list[dict[str, str]]  # ranges by package that fix it, the best first; a command is made of the first one
    idle: bool  # nothing that was given says that it matters here: it waits for a model or a setting of some kind
    weight: float  # orders findings that are otherwise equal: the more evidence, the larger
    apart: bool  # certain, and not the cause of the error that was given

    def __init__(
        self,
        *,
        rule: str,
        title: str,
        packages: dict[str, str | None],
        severity: str,
        confidence: str,
        evidence: list[str],
        remedy: list[str],
        commands: list[str] | None = None,
        ranges: dict[str, list[str]] | None = None,
        decide: list[str] | None = None,
        links: list[str] | None = None,
        setting: bool = False,
        shown: int = SILENT,
        ways: list[dict[str, str]] | None = None,
        idle: bool = False,
        weight: float = 0.0,
        apart: bool = False,
    ) -> None:
        self.rule, self.title, self.packages = rule, title, packages
        self.severity, self.confidence = severity, confidence
        self.evidence, self.remedy, self.commands = evidence, remedy, commands or []
        self.ranges, self.decide, self.links = ranges or {}, decide or [], links or []
        self.setting, self.shown, self.weight = setting, shown, weight
        self.ways, self.idle, self.apart = ways or [], idle, apart

    @property
    def sure(self) -> bool:
        """Is it certain or likely?"""
        return self.confidence in SURE

    def order(self, failed: bool) -> tuple[object, ...]:
        """Sorts findings: those that explain the error, then the sure ones, then guesses; among equals the worst first.

        `failed`: something raised an error. A fault that raises none is then not its cause.
        """
        quiet = failed and self.severity in ("silent-wrong", "waste")
        if self.shown == EXPLAINS:
            place = 0
        elif self.sure:
            place = 1 if self.shown else 4 if quiet else 2
        else:
            place = 3 if self.shown else 5
        return (
            place,
            CONFIDENCES.index(self.confidence),
            -self.weight if self.shown else 0,
            self.idle,
            SEVERITIES.index(self.severity),
            -self.weight,
            self.rule,
        )

    def as_json(self) -> dict[str, object]:
        """The finding for --json."""
        return {
            "rule": self.rule, "title": self.title, "packages": self.packages, "severity": self.severity,
            "confidence": self.confidence, "explains_the_error": self.shown == EXPLAINS,
            "apart_from_the_error": self.apart, "evidence": self.evidence, "decide": self.decide,
            "remedy": self.remedy, "commands": self.commands, "links": self.links,
        }  # fmt: skip
