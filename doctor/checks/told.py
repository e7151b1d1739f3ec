"""What the text itself says of versions: what pip or a library demands, and what a report blames.

"a 1.0 requires b<2, but you have b 2.1" and "requires b>=2" are demands, and can be compared with what is there. "after
upgrading X from A to B" is its author's guess, no more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from doctor.base import versions
from doctor.case import Case
from doctor.checks import requires
from doctor.finding import Finding

NAMES = (r"trl|vllm|torch|pytorch|transformers|deepspeed|bitsandbytes|peft|accelerate|datasets|unsloth(?:[-_ ]zoo)?"
         r"|triton|numpy|liger[-_ ]kernel|flash[-_ ]attn|xformers|huggingface[-_]hub|tokenizers|flashinfer|ms[-_]swift"
         r"|verl|openrlhf|torchao|torchvision|outlines|xgrammar|ray|pyarrow|pandas|pydantic|protobuf|setuptools|sglang"
         r"|llamafactory|axolotl|compressed[-_]tensors|mistral[-_]common|openai|fsspec|gguf|autoawq")  # fmt: skip
VERSION = r"v?(\d+\.\d+(?:\.\d+)*(?:\.?(?:post|dev|rc)\d+)?)"
MOVED = re.compile(
    rf"\b({NAMES})\b[^\n.]{{0,40}}?\bfrom\s+(?:v(?:ersion)?\s*)?{VERSION}\s+to\s+(?:v(?:ersion)?\s*)?{VERSION}",
    re.IGNORECASE,
)
# "downgrading X to 1.0 helps", "works with X 1.0", "fixed in X 1.0": where the good release lies, and which way.
BACK = re.compile(
    r"\b(?:downgrad\w*|revert\w*|roll\w* back|going back|back to|pin\w*)\b[^\n.]{0,30}?"
    rf"\b({NAMES})\b[^\n.]{{0,25}}?{VERSION}"
    rf"|\b(?:works?|worked|fine|ok|success\w*)\b[^\n.]{{0,12}}? (?:with|on|in|using)\s+({NAMES})\b"
    rf"[ =vV]{{1,4}}{VERSION}"
    rf"|\b({NAMES})\b[ =vV]{{1,4}}{VERSION} (?:works|is fine|was fine|is ok)",
    re.IGNORECASE,
)
REPAIRED = re.compile(
    rf"\b(?:fixed|solved|resolved|repaired) (?:in|by|with)\b[^\n.]{{0,20}}?\b({NAMES})\b[ =<>vV]{{1,4}}{VERSION}",
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
    r"(?<![\w.-])(?P<who>[A-Za-z0-9][\w.-]*) (?P<own>\d[\w.+!-]*) (?:requires|has requirement) "
    r"(?P<what>[A-Za-z0-9][\w.-]*)"
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
REMOVED = re.compile(
    rf"\b(?:was|were|is|been) (?:removed|dropped) (?:in|from|since|with) (?:the )?(?P<what>{NAMES}) "
    rf"(?:version |release |v)?(?P<since>\d+(?:\.\d+)+)",
    re.IGNORECASE,
)
UNPUBLISHED = re.compile(
    r"(?:No matching distribution found for|Could not find a version that satisfies the requirement)\s+"
    r"(?P<what>[A-Za-z][\w.-]*)(?:\[[\w,-]+\])?\s*(?P<range>(?:[<>=!~]=? ?\d[\w.*+]*,? ?)+)"
)
LEAST = re.compile(
    rf"\b(?P<what>{NAMES})\b[^\n]{{0,30}}?\b(?:at least|minimum(?: version)?(?: is| of)?)\s+v?(?P<least>\d+(?:\.\d+)+)"
    rf"|\b(?P<name>{NAMES})\b[`'\" ]{{0,3}}(?:version )?v?(?P<other>\d+(?:\.\d+)+)\+?"
    r" (?:or|and) (?:later|higher|newer|above)",
    re.IGNORECASE,
)
SINCE = re.compile(
    rf"\b(since|starting (?:from|with)|as of|in|after|on) (?:version |release )?{VERSION}", re.IGNORECASE
)
PAIR = re.compile(
    r"(?<![\w-])(?P<one>[A-Za-z][\w-]+) version \((?P<has>[\d.]+\w*)\) does not match "
    r"(?P<other>[A-Za-z][\w-]+) version \((?P<have>[\d.]+\w*)\)"
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


def removed(case: Case) -> Iterator[Finding]:
    """What a library says itself that it has no more: "`np.float_` was removed in the NumPy 2.0 release"."""
    match = REMOVED.search(case.error)
    if match is None:
        return
    what, since = _name(match["what"]), match["since"]
    have = case.environment.version(what)
    if have is None or versions.within(f">={since}", have) is not False:
        yield Finding(
            "removed", f"{what} {since} dropped what is asked for", {what: have},
            "crash", "likely" if have else "possible",
            [f"it says: {match.group()[:160]}"], [f"{what}<{since}, or a later release of what asks for it"],
            commands=[requires.install(f"{what}<{since}")], ranges={what: [f">={since}"]}, shown=2, weight=0.5,
        )  # fmt: skip


def unpublished(case: Case) -> Iterator[Finding]:
    """What pip looked for and did not find: not on that index, or not for this Python or system."""
    match = UNPUBLISHED.search(case.error)
    if match is None or versions.specifiers(match["range"].strip(" ,")) is None:
        return
    what, asked = _name(match["what"]), match["range"].strip(" ,")
    yield Finding(
        "not-found", f"pip finds no {what} {asked}", {what: case.environment.version(what)}, "resolve", "possible",
        [f"it says: {match.group()[:160]}"],
        [f"what asks for {what} {asked} in a release that asks for one that is published, or an index that has it"],
        decide=["whether it is on the index that was asked, for this Python and this system"],
        ranges={what: requires.outside(asked)}, shown=1,
    )  # fmt: skip


def pairs(case: Case) -> Iterator[Finding]:
    """Two packages that must have one version and say that they have not."""
    for match in PAIR.finditer(case.error):
        one, other = _name(match["one"]), _name(match["other"])
        yield Finding(
            "unlike-pair", f"{one} {match['has']} and {other} {match['have']} must have the same version",
            {one: match["has"], other: match["have"]}, "crash", "certain", [f"it says: {match.group()}"],
            [f"{one}=={match['have']}, the version that the rest asks for"],
            commands=[requires.install(f"{one}=={match['have']}")],
            ranges={one: [f"!={match['have']}"], other: [f"!={match['has']}"]}, shown=2, weight=1.0,
        )  # fmt: skip


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
        commands=[requires.install(f"{what}{allowed.replace(' ', '')}")], ranges={what: requires.outside(allowed)},
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
    for pattern, way in ((BACK, ">"), (REPAIRED, "<")):
        for match in pattern.finditer(text):
            said, good = [one for one in match.groups() if one][:2]
            name = _name(said)
            if name not in seen:
                seen.add(name)
                have = case.environment.version(name)
                other = way == ">" and have is not None and versions.within(f"<{good}", have)
                bad = f"<{good}" if other else f"{way}{good}"
                yield _finding(case, name, bad, match.group(), f"{name}{'>=' if way == '<' else '=='}{good}")
    if not BLAMES.search(text):
        return
    together = {}
    for match in BEGINS.finditer(text):
        name = _name(match[1])
        if name not in seen:
            seen.add(name)
            together[name] = match
    if not together and not seen:
        together = _since(case, text)
    if together:
        first, match = next(iter(together.items()))
        found = _finding(case, first, f"=={match[2]}", match.group(), "")
        for name, match in list(together.items())[1:3]:
            found.packages[name] = case.environment.version(name)
            found.ranges[name] = [f"=={match[2]}"]
            found.title += f" with {name}"
        yield found


def _since(case: Case, text: str) -> dict[str, re.Match[str]]:
    """ "(since v0.25.0)": of the package that is there in this release."""
    for match in SINCE.finditer(text):
        held = [name for name, package in case.environment.packages.items() if package.version == match[2]]
        if len(held) == 1:
            return {held[0]: match}
    return {}


def _name(said: str) -> str:
    plain = versions.name(said.replace(" ", "-"))
    return {"pytorch": "torch", "flashinfer": "flashinfer-python"}.get(plain, plain)


def _finding(case: Case, name: str, bad: str, quoted: str, good: str) -> Finding:
    packages: dict[str, str | None] = {name: case.environment.version(name)}
    remedy: list[str] = [f"{good}, where it is said to have worked"] if good else [f"another release of {name}"]
    return Finding(
        "told", f"the report itself blames {name}", packages, "crash", "possible",
        [f"it says: {quoted[:160]}"], remedy, commands=[requires.install(good)] if good else [],
        decide=["whether the same run works with that release: nothing else is known of it"],
        ranges={name: [bad]}, shown=1, weight=-1.0,
    )  # fmt: skip
