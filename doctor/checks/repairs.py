"""What later releases repaired: the words of an error against the words of every change that called itself a fix.

doctor/know/fixes.json holds them, made from the tags of the packages by scripts/fix-history. That words agree proves
nothing: it is a place to look, and said as that.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from doctor.base import versions
from doctor.case import Case
from doctor.finding import Finding

LONGEST = 4000  # characters of an error that is prose; a log is cut to its end
ENOUGH = 8.0  # information that the words in common must carry
REPOSITORIES = {
    "trl": "huggingface/trl", "deepspeed": "deepspeedai/DeepSpeed", "peft": "huggingface/peft",
    "bitsandbytes": "bitsandbytes-foundation/bitsandbytes", "accelerate": "huggingface/accelerate",
    "liger-kernel": "linkedin/Liger-Kernel", "verl": "verl-project/verl",
}  # fmt: skip
NAMED = {"trl": r"\btrl\b|grpo|rloo|dpo|sft", "deepspeed": "deepspeed|zero[-_ ]?[123]", "liger-kernel": "liger"}


def findings(fixes: dict[str, list[list[Any]]], case: Case) -> Iterator[Finding]:
    """For each package that is there or spoken of, the repair whose words agree best."""
    text = case.error[-LONGEST:]
    if not text:
        return
    said = _words(text) | _of_run(case)
    total = sum(map(len, fixes.values())) or 1
    spread = Counter(word for rows in fixes.values() for row in rows for word in set(row[2].split()))
    for name, rows in fixes.items():
        version = case.environment.version(name)
        spoken = re.search(NAMED.get(name, re.escape(name)), text, re.IGNORECASE)
        if (version is None and not spoken) or (version is not None and versions.parse(version) is None):
            continue
        best = None
        for number, release, telling in rows:
            if version is not None and versions.within(f"<{release}", version) is False:
                continue
            words = set(telling.split())
            common = words & said
            score = sum(math.log(total / spread[word]) for word in common)
            if len(common) < 2 or score < ENOUGH or 2 * len(common) < len(words):
                continue
            if best is None or score > best[0]:
                best = (score, number, release, sorted(common))
        if best is not None:
            yield _finding(name, version, *best)


def _finding(name: str, version: str | None, score: float, number: int, release: str, common: list[str]) -> Finding:
    link = f"https://github.com/{REPOSITORIES[name]}/pull/{number}"
    return Finding(
        "repaired-later", f"{name} {release} repaired something that is described in these words", {name: version},
        "crash", "possible", [f"words in common with its change #{number}: {', '.join(common)}"],
        [f"{name}>={release}, if the change is about this"], decide=[link], links=[link],
        ranges={name: [f"<{release}"]}, shown=1, weight=-2.0 + min(score, 40.0) / 100,
    )  # fmt: skip


def _words(text: str) -> set[str]:
    found = set()
    for one in re.findall(r"[A-Za-z][A-Za-z0-9_]{2,}|[Zz]e[Rr][Oo][-_ ]?\d", text):
        low = one.lower().replace("-", "").replace(" ", "")
        parts = re.findall(r"[A-Z]?[a-z]{2,}|[A-Z]{2,}(?![a-z])", one)
        found |= {low, *low.split("_"), *(part.lower() for part in parts)}
        found |= {each[:-1] for each in (low, *low.split("_")) if each.endswith("s") and len(each) > 4}
    return found


def _of_run(case: Case) -> set[str]:
    """What is asked for, in the words that titles use."""
    known, flags = case.context.known, case.context.flags
    found = {str(key) for key, value in flags.items() if str(value).lower() not in ("false", "none", "", "0")}
    if known.get("zero_stage"):
        found |= {f"zero{known['zero_stage']}", "deepspeed", "zero"}
    if known.get("vllm_mode") not in (None, "off"):
        found |= {"vllm", str(known["vllm_mode"])}
    if "use_peft" in found:
        found |= {"peft", "lora"}
    return found
