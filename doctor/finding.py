"""A finding: what is wrong, how sure that is, how it is known, and what to do."""

from __future__ import annotations

from dataclasses import dataclass, field

SEVERITIES = ("silent-wrong", "hang", "crash", "waste", "resolve", "unread")  # the worst first
# certain: it is so, or it strikes. likely: what was seen points to it, one thing was not given. possible: see `unless`.
CONFIDENCES = ("certain", "likely", "possible")
SURE = ("certain", "likely")


@dataclass
class Finding:
    rule: str  # an advisory's id, or the name of a check
    title: str
    packages: dict[str, str | None]  # those to blame, each with what is installed, or None where nobody said
    severity: str
    confidence: str
    evidence: list[str]
    remedy: list[str]
    commands: list[str] = field(default_factory=list)
    ranges: dict[str, list[str]] = field(default_factory=dict)  # the bad versions of each package, where they are known
    decide: list[str] = field(default_factory=list)  # what to look at to know whether it applies
    links: list[str] = field(default_factory=list)
    setting: bool = False  # a way out is to set something else, with the versions as they are
    shown: int = 0  # 2: the error says it; 1: the error points to it; 0: no error was given, or it says nothing of it
    weight: float = 0.0  # among findings that are otherwise equal: how much speaks for it

    @property
    def sure(self) -> bool:
        return self.confidence in SURE

    def order(self, failed: bool) -> tuple[object, ...]:
        """What explains the error comes first, then what is sure, then the guesses; among equals what does most harm.

        `failed`: something raised an error. What trains wrongly without one is then not its cause.
        """
        quiet = failed and self.severity in ("silent-wrong", "waste")
        if self.shown == 2:
            place = 0
        elif self.sure:
            place = 1 if self.shown else 4 if quiet else 2
        else:
            place = 3 if self.shown else 5
        return (
            place,
            CONFIDENCES.index(self.confidence),
            -self.weight if self.shown else 0,
            SEVERITIES.index(self.severity),
            -self.weight,
            self.rule,
        )

    def as_json(self) -> dict[str, object]:
        return {
            "rule": self.rule, "title": self.title, "packages": self.packages, "severity": self.severity,
            "confidence": self.confidence, "explains_the_error": self.shown == 2, "evidence": self.evidence,
            "decide": self.decide, "remedy": self.remedy, "commands": self.commands, "links": self.links,
        }  # fmt: skip
