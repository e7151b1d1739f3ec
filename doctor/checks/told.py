"""What the report itself blames: "after upgrading X from A to B", "X 1.2 breaks …". Its author's guess, no more."""

from __future__ import annotations

import re
from collections.abc import Iterator

from doctor import versions
from doctor.case import Case
from doctor.finding import Finding

NAMES = (r"trl|vllm|torch|pytorch|transformers|deepspeed|bitsandbytes|peft|accelerate|datasets|unsloth|triton|numpy"
         r"|liger[-_ ]kernel|flash[-_ ]attn|xformers|huggingface[-_]hub|tokenizers|flashinfer|ms[-_]swift")  # fmt: skip
VERSION = r"v?(\d+\.\d+(?:\.\d+)*(?:\.?(?:post|dev|rc)\d+)?)"
MOVED = re.compile(
    rf"\b({NAMES})\b[^\n.]{{0,40}}?\bfrom\s+(?:v(?:ersion)?\s*)?{VERSION}\s+to\s+(?:v(?:ersion)?\s*)?{VERSION}",
    re.IGNORECASE,
)
BEGINS = re.compile(
    rf"\b({NAMES})\b\s*(?:version\s*)?(?:==|>=|=)?\s*{VERSION}(?![\d.]*\s*(?:works|=> ?Success|is fine|OK))",
    re.IGNORECASE,
)
BLAMES = re.compile(
    r"\b(?:after|since|with|using|on|in)\b|upgrad|updat"
    r"|\bbrea|\bbroke|regress|no longer|stopp?ed|incompat|not work|fail",
    re.IGNORECASE,
)
LONGEST = 4000


def look(case: Case) -> Iterator[Finding]:
    """Only from prose: a log names versions all over."""
    text = case.error
    if len(text) > LONGEST or "Traceback (most recent call last)" in text:
        return
    seen = set()
    for match in MOVED.finditer(text):
        name = _name(match[1])
        seen.add(name)
        yield _finding(case, name, f">{match[2]},<={match[3]}", match.group(), f"{name}=={match[2]}")
    if not BLAMES.search(text):
        return
    for match in BEGINS.finditer(text):
        name = _name(match[1])
        if name not in seen:
            seen.add(name)
            yield _finding(case, name, f"=={match[2]}", match.group(), "")


def _name(said: str) -> str:
    plain = versions.name(said.replace(" ", "-"))
    return {"pytorch": "torch", "flashinfer": "flashinfer-python"}.get(plain, plain)


def _finding(case: Case, name: str, bad: str, quoted: str, good: str) -> Finding:
    packages: dict[str, str | None] = {name: case.environment.version(name)}
    remedy: list[str] = [f"{good}, where it is said to have worked"] if good else [f"another release of {name}"]
    return Finding(
        "told", f"the report itself blames {name}", packages, "crash", "possible",
        [f"it says: {quoted[:160]}"], remedy, commands=[f"uv pip install '{good}'"] if good else [],
        decide=["whether the same run works with that release: nothing else is known of it"],
        ranges={name: [bad]}, shown=1, weight=-1.0,
    )  # fmt: skip
