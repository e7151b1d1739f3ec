"""Advisories against an environment, what is known of the run, and the text of an error.

An advisory strikes for certain when every package of a combination lies in its range and every condition holds; it may
strike when nothing contradicts it. What its text says weighs more than what is not known, and a version that lies
outside its range weighs more than any text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from re import Pattern
from typing import Any

from doctor.base import versions
from doctor.finding import Finding
from doctor.read.context import Context
from doctor.read.environment import Environment

Advisory = dict[str, Any]
# An error that names something of somebody's; "expected Half but found Float" can come from anywhere.
WORDS = {
    "hang": re.compile(
        r"\b(?:hangs?|hung|hanging|stuck|deadlocks?|freez\w+|blocked|never returns|time[ds]? ?out)\b", re.I
    ),
    "silent-wrong": re.compile(
        r"\bwors|gibberish|garbage|\bwrong|incorrect|diverg|degrad|mangled|noise|never improv|no training|silent"
        r"|mismatch|not (?:learn|improv|train|synchron|increas)|log-?prob|\bratio\b|\bgap\b|differen|\bkl\b"
        r"|rewards? (?:drop|stay|is|are)|\b(?:higher|lower|larger|multipl\w*|explod\w*|spikes?|collaps\w*|nan)\b",
        re.IGNORECASE,
    ),
    "waste": re.compile(r"memory|\boom\b|\bslow", re.IGNORECASE),
}
FAILED = re.compile(r"\w(?:Error|Exception)\b|Traceback \(most recent|core dumped|Killed|\bfatal\b")
PERSONAL = ({"note"}, {"gpu_model"})
SPECIFIC = re.compile(r"\w_\w|[a-z][A-Z]|[A-Za-z]\.[A-Za-z]|'[\w.]{3,}'|`|--\w")


@dataclass
class Held:
    """One combination of an advisory: what is known of each package's range and of each condition."""

    affected: dict[str, Any]
    packages: dict[str, bool | None]
    context: dict[str, bool | None]

    @property
    def contradicted(self) -> bool:
        return False in self.packages.values() or False in self.context.values()

    @property
    def known(self) -> int:
        """How much of it is known to hold: 2 all of its packages, 1 some, 0 none."""
        if all(self.packages.values()):
            return 2
        return 1 if any(self.packages.values()) else 0

    @property
    def settled(self) -> bool:
        return all(self.context.values())

    @property
    def undecided(self) -> list[str]:
        packages = [f"{name}{_range(wanted)}" for name, wanted in self.affected.get("packages", {}).items()
                    if self.packages[name] is None]  # fmt: skip
        return [*packages, *(key for key, holds in self.context.items() if holds is None)]

    @property
    def weight(self) -> float:
        """What speaks for it. A package that merely has to be there says little."""
        sure = sum(1.0 if wanted != versions.ANY else 0.2 for name, wanted in self.affected.get("packages", {}).items()
                   if self.packages[name])  # fmt: skip
        return sure + 0.5 * sum(1 for holds in self.context.values() if holds)


def hold(affected: dict[str, Any], environment: Environment, context: Context) -> Held:
    packages: dict[str, bool | None] = {}
    for name, wanted in affected.get("packages", {}).items():
        version = environment.version(name)
        if version is None:
            packages[name] = False if environment.whole else None
        else:
            packages[name] = versions.within(wanted, version)
    return Held(affected, packages, context.holds(affected.get("context") or {}))


def advisories(known: list[Advisory], environment: Environment, context: Context, text: str) -> Iterator[Finding]:
    """What every advisory has to say."""
    for one in known:
        found = _advisory(one, environment, context, text)
        if found is not None:
            yield found


def _advisory(one: Advisory, environment: Environment, context: Context, text: str) -> Finding | None:
    held = [hold(affected, environment, context) for affected in one["affected"]]
    held = [each for each in held if not each.contradicted]
    if not held:
        return None
    best = max(held, key=lambda each: (each.known, each.settled, each.weight))
    shown, quoted = seen(one, text)
    spoken = one["severity"] in WORDS and WORDS[one["severity"]].search(text) is not None
    # What was asked is why this was raised: a run that fails neither hangs nor trains wrongly.
    aside = not shown and (one["severity"] in ("crash", "resolve") or (FAILED.search(text) is not None and not spoken))
    confidence = _confidence(best, shown, quoted, bool(text) and aside, one)
    if confidence is None:
        return None
    if not shown and best.known == 2 and spoken:
        shown = 1  # it does speak of such a thing, which makes it no surer
    return Finding(
        rule=one["id"],
        title=one["summary"],
        packages={name: environment.version(name) for name in best.affected.get("packages", {})},
        severity=one["severity"],
        confidence=confidence,
        evidence=_evidence(one, best, environment, quoted),
        remedy=[_way_out(fix) for fix in one["fix"]],
        ranges={name: [wanted] for name, wanted in best.affected.get("packages", {}).items()},
        decide=[] if confidence == "certain" else best.undecided,
        links=[reference["url"] for reference in one["references"]],
        setting=any(not fix.get("packages") for fix in one["fix"]),
        shown=shown,
        weight=best.weight + (0.01 * len(quoted) if shown == 2 else 0),
    )


def _confidence(best: Held, shown: int, quoted: str, quiet: bool, one: Advisory) -> str | None:
    """How sure it is, or None when nothing speaks for it.

    `quiet`: this error does not speak of it. The run got past it, never came so far, or failed of something else.
    """
    sure = "likely" if one["evidence"]["kind"] == "inferred" else "certain"
    if best.known == 2:
        if shown == 2 and not best.settled and set(best.affected.get("packages", {}).values()) <= {versions.ANY}:
            # In every version, and under conditions that nobody told: the error alone speaks for it.
            return "likely" if SPECIFIC.search(quoted) else "possible"
        if shown == 2:
            return sure
        if best.settled:
            return "possible" if quiet or (not best.affected.get("packages") and not shown) else sure
        # That packages are there, in any version, is no reason to speak of it.
        ranges = set(best.affected.get("packages", {}).values())
        idle = not any(best.context.values()) and (
            ranges <= {versions.ANY}
            # A crash that hangs on what only a person can judge, or on a GPU that nobody named, is spoken of when it
            # has happened.
            or (one["severity"] in ("crash", "resolve") and set(best.affected.get("context") or {}) in PERSONAL)
        )
        return "likely" if shown else None if quiet or idle else "possible"
    if shown == 2:
        given = best.known or any(best.context.values())
        return "likely" if given or SPECIFIC.search(quoted) else "possible"
    if shown == 1:
        return "likely" if best.known and best.settled and best.context else "possible"
    return None


def seen(one: Advisory, text: str) -> tuple[int, str]:
    """2 and the words when a symptom stands in a text, 1 and the words for a hint, else 0."""
    for strength, key in ((2, "symptoms"), (1, "hints")):
        found = [match.group() for match in (_compiled(each).search(text) for each in one.get(key, ())) if match]
        if text and found:
            return strength, max(found, key=len)[:200]
    return 0, ""


@lru_cache(maxsize=2048)
def _compiled(pattern: str) -> Pattern[str]:
    return re.compile(pattern)


def _evidence(one: Advisory, best: Held, environment: Environment, quoted: str) -> list[str]:
    said = []
    for name, wanted in best.affected.get("packages", {}).items():
        version = environment.version(name)
        have = f"{name} {version}" if version else f"{name} (version not given)"
        said.append(have if wanted == versions.ANY else f"{have}, affected {wanted}")
    said += [key for key, holds in best.context.items() if holds]
    if quoted:
        said.append(f"the error says: {quoted}")
    kinds = {
        "executed": "was run by us, or read out of the published packages",
        "read": "was read in the sources",
        "inferred": "is inferred, not confirmed",
    }
    return [*said, f"{one['id']} {kinds[one['evidence']['kind']]}"]


def _way_out(fix: dict[str, Any]) -> str:
    packages = " and ".join(f"{name}{_range(wanted)}" for name, wanted in fix.get("packages", {}).items())
    note = fix.get("note") or ""
    return f"{packages} ({note})" if packages and note else packages or note


def _range(wanted: str) -> str:
    return "" if wanted == versions.ANY else wanted
