"""Every other name in an error: a module or a quoted name that the installed release of its package does not have.

The checks before this one know how Python words an error; here any text may say the name, so it is a place to look.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from doctor.base import aliases
from doctor.case import Case
from doctor.checks import missing
from doctor.finding import POINTS, Finding
from doctor.know import history
from doctor.know.history import Fact

MODULE = re.compile(r"(?<![\w./])[a-z]\w*(?:\.\w+){1,8}")
QUOTED = re.compile(r"['\"`](?:[\w.]+\.)?([A-Za-z]*_\w{4,60}|[A-Z][a-z0-9]+[A-Z]\w{2,60})['\"`(]")
FRAME = re.compile(r"^\s*File \"[^\n]*\n[^\n]*$", re.MULTILINE)
BELOW = (
    "numpy", "torch", "triton", "pydantic", "huggingface-hub", "tokenizers", "datasets", "transformers", "accelerate",
    "peft", "bitsandbytes", "deepspeed", "compressed-tensors", "vllm", "sglang", "liger-kernel", "trl",
)  # fmt: skip
MOST = 100  # names of an error that are looked up
WORDED = (missing.IMPORT, missing.MEMBER, missing.MODULE, missing.KEYWORD, missing.BARE, missing.ATTRIBUTE)


def other_names(case: Case) -> Iterator[Finding]:
    """The last of these names: it is the nearest to what ended the run."""
    text = FRAME.sub("", case.error)
    for pattern in WORDED:
        text = pattern.sub(" ", text)
    for fact in [*_modules(case, text), *_names(case, text)]:
        yield _finding(case, fact)
        return


def _modules(case: Case, text: str) -> Iterator[Fact]:
    for dotted in reversed(MODULE.findall(text)[-MOST:]):
        package = aliases.of_module(dotted)
        if case.version(package) is None or package not in case.knowledge.apis:
            continue
        while "." in dotted:
            fact = history.exact(case.knowledge.apis, f"{dotted}:", package)
            if fact is not None and _gone(case, fact):
                yield fact
            dotted = dotted.rpartition(".")[0]


def _names(case: Case, text: str) -> Iterator[Fact]:
    for name in reversed(QUOTED.findall(text)[-MOST:]):
        facts = history.offered(case.knowledge.apis, name)
        owner = min((fact.package for fact in facts), key=_height, default="")
        own = [fact for fact in facts if fact.package == owner]
        # Where the package still has the name in some module, nothing is missed.
        if case.version(owner) and all(_gone(case, fact) for fact in own):
            yield min(own, key=lambda fact: len(fact.name))


def _height(package: str) -> tuple[int, str]:
    """A package's place in the stack: the lowest with a name is its own, the others import it from there."""
    return (BELOW.index(package) if package in BELOW else len(BELOW), package)


def _gone(case: Case, fact: Fact) -> bool:
    return fact.package == fact.name.partition(".")[0].partition(":")[0].replace("_", "-") and (
        fact.in_release(case.version(fact.package) or "") is False
    )


def _finding(case: Case, fact: Fact) -> Finding:
    without, having = fact.spans()
    name = fact.name.rstrip(":").replace(":", ".")
    changes = (change for change in fact.changes if change != "+0")
    releases = "; ".join(f"{'since' if change[0] == '+' else 'gone in'} {change[1:]}" for change in changes)
    return Finding(
        rule="named-and-gone",
        title=f"the error names {name}, which {fact.package} {case.version(fact.package)} does not have",
        packages=case.versions(fact.package),
        severity="crash",
        confidence="possible",
        evidence=[f"in the published releases: {releases}"],
        remedy=[" or ".join(f"{fact.package}{span}" for span in having) + ", or code that does not ask for it"],
        decide=["whether the run fails for want of it"],
        ranges={fact.package: without},
        shown=POINTS,
        weight=0.04,
    )
