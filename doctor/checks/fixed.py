"""What later releases fixed: the words of an error against the words of every change that called itself a fix.

doctor/know/fixes.json has them, from the tags of the packages by scripts/fix_history.py. Words in common prove nothing:
they are a place to look, and the finding says so.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

from doctor.base import versions
from doctor.case import Case
from doctor.finding import POINTS, Finding
from doctor.know.data import PastFix

LONGEST = 4000  # characters of an error that is prose; a log is cut to its end
ENOUGH = 8.0  # information, in nats, that the words in common must carry
REPOSITORIES = {
    "trl": "huggingface/trl", "deepspeed": "deepspeedai/DeepSpeed", "peft": "huggingface/peft",
    "bitsandbytes": "bitsandbytes-foundation/bitsandbytes", "accelerate": "huggingface/accelerate",
    "liger-kernel": "linkedin/Liger-Kernel", "verl": "verl-project/verl",
}  # fmt: skip
MENTIONS = {"trl": r"\btrl\b|grpo|rloo|dpo|sft", "deepspeed": "deepspeed|zero[-_ ]?[123]", "liger-kernel": "liger"}


class Agreement(NamedTuple):
    """A fix, the words that it has in common with an error, and how much information they carry."""

    score: float
    fix: PastFix
    common: list[str]


def fixed_later(case: Case) -> Iterator[Finding]:
    """For each package that is installed or mentioned, the fix whose words agree best."""
    text = case.error[-LONGEST:]
    if not text:
        return
    words = _words(text) | _words_of_run(case)
    information = _information(case.knowledge.fixes)
    for package, fixes in case.knowledge.fixes.items():
        version = case.version(package)
        if version is None:
            if not re.search(MENTIONS.get(package, re.escape(package)), text, re.IGNORECASE):
                continue
        elif versions.parse(version) is None:
            continue
        later = (fix for fix in fixes if version is None or versions.within(f"<{fix.release}", version) is not False)
        agreements = [agreement for agreement in (_agreement(fix, words, information) for fix in later) if agreement]
        if agreements:
            yield _finding(package, version, max(agreements, key=lambda agreement: agreement.score))


def _information(fixes: dict[str, list[PastFix]]) -> dict[str, float]:
    """How much a word tells: the fewer fixes have it, the more."""
    counts = Counter(word for entries in fixes.values() for fix in entries for word in set(fix.words.split()))
    total = sum(map(len, fixes.values())) or 1
    return {word: math.log(total / count) for word, count in counts.items()}


def _agreement(fix: PastFix, words: set[str], information: dict[str, float]) -> Agreement | None:
    own = set(fix.words.split())
    common = own & words
    score = math.fsum(information[word] for word in common)  # in any order the same
    enough = len(common) >= 2 and score >= ENOUGH and 2 * len(common) >= len(own)
    return Agreement(score, fix, sorted(common)) if enough else None


def _finding(package: str, version: str | None, agreement: Agreement) -> Finding:
    number, release, _ = agreement.fix
    link = f"https://github.com/{REPOSITORIES[package]}/pull/{number}"
    return Finding(
        rule="repaired-later",
        title=f"{package} {release} fixed something that is described in these words",
        packages={package: version},
        severity="crash",
        confidence="possible",
        evidence=[f"words in common with its change #{number}: {', '.join(agreement.common)}"],
        remedy=[f"{package}>={release}, if the change is about this"],
        decide=[link],
        links=[link],
        ranges={package: [f"<{release}"]},
        shown=POINTS,
        weight=-2.0 + min(agreement.score, 40.0) / 100,
    )


def _words(text: str) -> set[str]:
    """The words of a text, the parts of its identifiers, and their singulars."""
    words = set()
    for word in re.findall(r"[A-Za-z][A-Za-z0-9_]{2,}|[Zz]e[Rr][Oo][-_ ]?\d", text):
        low = word.lower().replace("-", "").replace(" ", "")
        parts = re.findall(r"[A-Z]?[a-z]{2,}|[A-Z]{2,}(?![a-z])", word)
        words |= {low, *low.split("_"), *(part.lower() for part in parts)}
        words |= {part[:-1] for part in (low, *low.split("_")) if part.endswith("s") and len(part) > 4}
    return words


def _words_of_run(case: Case) -> set[str]:
    """What the run is configured with, in the words that titles of changes use."""
    facts, flags = case.context.facts, case.context.flags
    words = {str(key) for key, value in flags.items() if str(value).lower() not in ("false", "none", "", "0")}
    if facts.get("zero_stage"):
        words |= {f"zero{facts['zero_stage']}", "deepspeed", "zero"}
    if facts.get("vllm_mode") not in (None, "off"):
        words |= {"vllm", str(facts["vllm_mode"])}
    if "use_peft" in words:
        words |= {"peft", "lora"}
    return words
