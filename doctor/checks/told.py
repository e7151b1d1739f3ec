"""What the text itself says of versions: what pip or a library demands, and what a report blames.

"a 1.0 requires b<2, but you have b 2.1" and "requires b>=2" are demands, and can be compared with what is there. "after
upgrading X from A to B" is its author's guess, no more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from doctor import versions
from doctor.case import Case
from doctor.checks import requires
from doctor.finding import Finding

NAMES = (r"trl|vllm|torch|pytorch|transformers|deepspeed|bitsandbytes|peft|accelerate|datasets|unsloth|triton|numpy"
         r"|liger[-_ ]kernel|flash[-_ ]attn|xformers|huggingface[-_]hub|tokenizers|flashinfer|ms[-_]swift")  # fmt: skip
VERSION = r"v?(\d+\.\d+(?:\.\d+)*(?:\.?(?:post|dev|rc)\d+)?)"
MOVED = re.compile(
    rf"\b({NAMES})\b[^\n.]{{0,40}}?\bfrom\s+(?:v(?:ersion)?\s*)?{VERSION}\s+to\s+(?:v(?:ersion)?\s*)?{VERSION}",
    re.IGNORECASE,
)
BEGINS = re.compile(
    rf"\b({NAMES})\b\s*"
    rf"(?:(?:released|release|version|has released|to)\s+)?(?:==|>=|=)?\s*{VERSION}"
    r"(?![\d.]*\s*(?:works|=> ?Success|is fine|OK))",
    re.IGNORECASE,
)
BLAMES = re.compile(
    r"\b(?:after|since|with|using|on|in)\b|upgrad|updat"
    r"|\bbrea|\bbroke|regress|no longer|stopp?ed|incompat|not work|fail",
    re.IGNORECASE,
)
PIP = re.compile(
    r"(?P<who>[A-Za-z0-9][\w.-]*) (?P<own>\d[\w.+!-]*) (?:requires|has requirement) (?P<what>[A-Za-z0-9][\w.-]*)"
    r"(?:\[[\w,-]+\])?\s*\(?(?P<range>(?:[<>=!~]=?[\w.*+]+,? ?)+)\)?(?:;[^\n]{0,80})?, but you(?:'ll)? have "
    r"(?P=what) (?P<have>\d[\w.+!-]*)",
    re.IGNORECASE,
)
DEMANDS = re.compile(
    rf"(?:requires?|needs?|must|at least|install|upgrade|expected|supported)\b[^\n]{{0,60}}?\b(?P<what>{NAMES})\b"
    r"[`'\" ]{0,3}(?P<range>(?:(?:>=|<=|==|~=|!=|>|<) ?\d[\w.*+]*,? ?)+)"
    rf"|\b(?P<name>{NAMES})\b[`'\" ]{{0,3}}(?P<bounds>(?:(?:>=|<=|==|~=|>|<) ?\d[\w.*+]*,? ?)+)[^\n]{{0,30}}?"
    r"\b(?:is|are|was) (?:required|needed|not supported)",
    re.IGNORECASE,
)
LEAST = re.compile(
    rf"\b(?P<what>{NAMES})\b[^\n]{{0,30}}?\b(?:at least|minimum(?: version)?(?: is| of)?)\s+v?(?P<least>\d+(?:\.\d+)+)"
    rf"|\b(?P<name>{NAMES})\b[`'\" ]{{0,3}}(?:version )?v?(?P<other>\d+(?:\.\d+)+)\+?"
    r" (?:or|and) (?:later|higher|newer|above)",
    re.IGNORECASE,
)
LONGEST = 4000


def demands(case: Case) -> Iterator[Finding]:
    """What pip or a library asks for in so many words."""
    for match in PIP.finditer(case.error):
        what, who = _name(match["what"]), _name(match["who"])
        yield _demand(what, match["have"], who, match["own"], match["range"], match.group(), "likely")
    for match in DEMANDS.finditer(case.error):
        what = _name(match["what"] or match["name"])
        allowed = (match["range"] or match["bounds"]).strip(" ,")
        have = case.environment.version(what)
        if versions.specifiers(allowed) is None or (have is not None and versions.within(allowed, have) is not False):
            continue
        yield _demand(what, have, None, None, allowed, match.group(), "likely" if have else "possible")


def least(case: Case) -> Iterator[Finding]:
    """The same in words: "upgrade torch to at least v2.6", "transformers 4.51 or later"."""
    for match in LEAST.finditer(case.error):
        what, allowed = _name(match["what"] or match["name"]), f">={match['least'] or match['other']}"
        have = case.environment.version(what)
        if have is None or versions.within(allowed, have) is False:
            yield _demand(what, have, None, None, allowed, match.group(), "likely" if have else "possible")


def _demand(
    what: str, have: str | None, who: str | None, own: str | None, asked: str, quoted: str, confidence: str
) -> Finding:
    allowed = asked.strip(" ,")
    packages = {what: have, **({who: own} if who else {})}
    return Finding(
        "demanded", f"{who or 'the error'} asks for {what} {allowed}" + (f", and {have} is installed" if have else ""),
        packages, "crash", confidence, [f"it says: {quoted[:200]}"], [f"{what}{allowed}"],
        commands=[f"uv pip install '{what}{allowed.replace(' ', '')}'"], ranges={what: requires.outside(allowed)},
        shown=2 if have else 1, weight=0.5,
    )  # fmt: skip


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
